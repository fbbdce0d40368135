//! Moves compared with boards worked out by hand, and invariants of moves.

use proptest::prelude::*;

use super::board::UP;
use super::*;

const DOWN: usize = 1;
const LEFT: usize = 2;
const RIGHT: usize = 3;

/// Returns a board from the numbers of its tiles.
fn board(rows: [[u32; 4]; 4]) -> TileBoard {
    let level = |tile: u32| if tile == 0 { 0 } else { tile.ilog2() as u8 };
    TileBoard(
        rows.concat()
            .iter()
            .map(|&tile| level(tile))
            .collect::<Vec<u8>>()
            .try_into()
            .unwrap(),
    )
}

fn after(board: &TileBoard, way: usize) -> TileBoard {
    let mut after = *board;
    after.slide(way);
    after
}

fn sum(board: &TileBoard) -> u64 {
    let worth = |&level: &u8| if level == 0 { 0 } else { 1u64 << level };
    board.0.iter().map(worth).sum()
}

#[test]
fn equal_tiles_merge_once_from_the_wall() {
    let start = board([[2, 2, 2, 0], [2, 2, 2, 2], [4, 2, 2, 0], [0, 4, 0, 4]]);
    let after = |way| after(&start, way);
    let left = board([[4, 2, 0, 0], [4, 4, 0, 0], [4, 4, 0, 0], [8, 0, 0, 0]]);
    let right = board([[0, 0, 2, 4], [0, 0, 4, 4], [0, 0, 4, 4], [0, 0, 0, 8]]);
    let up = board([[4, 4, 4, 2], [4, 2, 2, 4], [0, 4, 0, 0], [0, 0, 0, 0]]);
    let down = board([[0, 0, 0, 0], [0, 2, 0, 0], [4, 4, 2, 2], [4, 4, 4, 4]]);
    assert_eq!(
        [after(LEFT), after(RIGHT), after(UP), after(DOWN)],
        [left, right, up, down]
    );
}

#[test]
fn a_full_board_is_stuck_only_if_nothing_merges() {
    let stuck = board([[2, 4, 2, 4], [4, 2, 4, 2], [2, 4, 2, 4], [4, 2, 4, 2]]);
    assert!(stuck.stuck());
    for cell in 0..16 {
        let mut open = stuck;
        open.0[cell] = 0;
        assert!(!open.stuck());
        let mut pair = stuck;
        pair.0[cell] = 3 - pair.0[cell];
        assert!(!pair.stuck(), "a neighbour is equal");
    }
}

fn boards() -> impl Strategy<Value = TileBoard> {
    proptest::array::uniform16(prop_oneof![3 => Just(0), 5 => 1..12u8]).prop_map(TileBoard)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn a_slide_keeps_the_sum_and_a_spawn_adds_two_or_four(board in boards(), seed: u64) {
        let moves: Vec<bool> = (0..4).map(|way| board.clone().slide(way)).collect();
        prop_assert_eq!(board.stuck(), !moves.contains(&true));
        for (way, moved) in moves.into_iter().enumerate() {
            let mut after = board;
            prop_assert_eq!(after.slide(way), moved);
            prop_assert_eq!(sum(&after), sum(&board));
            prop_assert!(after.empty().count() >= board.empty().count());
            prop_assert!(after.highest() <= board.highest() + 1);
            let (before, empty) = (sum(&after), after.empty().count());
            after.spawn(&mut Stream::new(seed, "test"));
            let added = sum(&after) - before;
            prop_assert!(added == 0 || (empty > 0 && [2, 4].contains(&added)));
            prop_assert_eq!(added == 0, empty == 0);
        }
    }

    /// The four directions are mirror images of one.
    #[test]
    fn ways_are_mirrors_of_each_other(board in boards()) {
        let mirrored = |board: &TileBoard| TileBoard(std::array::from_fn(|cell| board.0[cell / 4 * 4 + 3 - cell % 4]));
        let turned = |board: &TileBoard| TileBoard(std::array::from_fn(|cell| board.0[cell % 4 * 4 + cell / 4]));
        prop_assert_eq!(after(&mirrored(&board), LEFT), mirrored(&after(&board, RIGHT)));
        prop_assert_eq!(after(&turned(&board), UP), turned(&after(&board, LEFT)));
        prop_assert_eq!(after(&turned(&board), DOWN), turned(&after(&board, RIGHT)));
    }
}

#[test]
fn one_new_tile_in_ten_is_a_four() {
    let mut stream = Stream::new(1, "test");
    let mut cells = [0; 16];
    let mut fours = 0;
    for _ in 0..16_000 {
        let mut board = TileBoard::default();
        board.spawn(&mut stream);
        let cell = board.0.iter().position(|&level| level > 0).unwrap();
        cells[cell] += 1;
        fours += usize::from(board.0[cell] == 2);
    }
    // Five standard deviations, which are 38 and 31.
    assert!((1410..1790).contains(&fours), "{fours}");
    assert!(
        cells.iter().all(|count| (845..1155).contains(count)),
        "{cells:?}"
    );
}
