//! Snake compared with rounds of FastSnake (`fixtures/golden/snake_rounds.json`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::board::Snake;
use super::*;

#[derive(Deserialize)]
struct GoldenRounds {
    cases: Vec<GoldenRound>,
}

/// A round. Snakes are named "1", "2", "3"; a dead one can have no body.
#[derive(Deserialize)]
struct GoldenRound {
    width: usize,
    height: usize,
    round: usize,
    max_rounds: usize,
    apple_reward: f64,
    banana_reward: f64,
    snakes: BTreeMap<String, GoldenBody>,
    apples: Vec<Cell>,
    bananas: Vec<Cell>,
    moves: BTreeMap<String, String>,
    after: GoldenAfter,
}

#[derive(Deserialize)]
struct GoldenAfter {
    snakes: BTreeMap<String, GoldenBody>,
    rewards: BTreeMap<String, f64>,
    over: bool,
    ate: Vec<String>,
}

#[derive(Deserialize)]
struct GoldenBody {
    alive: bool,
    #[serde(default)]
    body: Vec<Cell>,
}

impl GoldenBody {
    fn snake(&self) -> Snake {
        let body = self.body.iter().copied();
        body.filter(|_| self.alive).collect()
    }
}

#[test]
fn rounds_go_as_in_the_golden_game() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../fixtures/golden/snake_rounds.json"
    );
    let golden: GoldenRounds =
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(golden.cases.len(), 240);
    for (number, case) in golden.cases.iter().enumerate() {
        let apples = case.apples.iter().map(|&cell| (cell, Food::Apple));
        let bananas = case.bananas.iter().map(|&cell| (cell, Food::Banana));
        let mut board = SnakeBoard {
            width: case.width,
            height: case.height,
            snakes: case.snakes.values().map(GoldenBody::snake).collect(),
            food: apples.chain(bananas).collect(),
        };
        let way = |name| {
            case.moves.get(name).map(|word| {
                UP_DOWN_LEFT_RIGHT
                    .iter()
                    .position(|action| action == word)
                    .unwrap()
            })
        };
        let moves: Vec<Option<usize>> = case.snakes.keys().map(way).collect();
        let things = board.food.len();
        let before = board.clone();
        let events = board.advance(&moves);

        let expected: Vec<Snake> = case.after.snakes.values().map(GoldenBody::snake).collect();
        assert_eq!(board.snakes, expected, "case {number}");
        // The golden game has its own rewards: -1 for a death.
        let reward = |event: &SnakeEvent| match event {
            SnakeEvent::Nothing => 0.0,
            SnakeEvent::Died(_) => -1.0,
            SnakeEvent::Ate(Food::Apple) => case.apple_reward,
            SnakeEvent::Ate(_) => case.banana_reward,
        };
        let mut eaten = Vec::new();
        for (event, name) in events.iter().zip(case.snakes.keys()) {
            assert_eq!(
                reward(event),
                case.after.rewards.get(name).copied().unwrap_or(0.0),
                "case {number}, snake {name}"
            );
            if matches!(event, SnakeEvent::Ate(_)) {
                eaten.push(name.clone());
            }
        }
        assert_eq!(eaten, case.after.ate, "case {number}");
        assert_eq!(board.food.len(), things - eaten.len(), "case {number}");
        let over = board.living() <= 1 || case.round + 1 >= case.max_rounds;
        assert_eq!(over, case.after.over, "case {number}");

        // The same round with agents in all seats.
        let options = SnakeOptions {
            agents: moves.len(),
            enemies: 0,
            apples: 0,
            apple_reward: case.apple_reward,
            banana_reward: case.banana_reward,
            death_reward: -1.0,
            step_reward: 0.0,
            ..SnakeOptions::default()
        };
        let mut episode = episode(options, before);
        for (agent, (outcome, name)) in episode
            .play(&moves)
            .unwrap()
            .iter()
            .zip(case.snakes.keys())
            .enumerate()
        {
            let golden = case.after.rewards.get(name).copied().unwrap_or(0.0);
            let over = board.living() <= 1 || board.snakes[agent].is_empty();
            assert_eq!(
                *outcome,
                Outcome {
                    reward: golden,
                    over
                },
                "case {number}, snake {name}"
            );
        }
    }
}

fn board(width: usize, height: usize, snakes: &[&[Cell]]) -> SnakeBoard {
    let snakes = snakes
        .iter()
        .map(|cells| cells.iter().copied().collect())
        .collect();
    SnakeBoard {
        width,
        height,
        snakes,
        food: Vec::new(),
    }
}

/// Returns an episode with this board.
fn episode(options: SnakeOptions, board: SnakeBoard) -> SnakeEpisode {
    let scores = vec![0.0; options.agents];
    SnakeEpisode::new(options, board, scores, 1)
}

const UP: Option<usize> = Some(0);
const LEFT: Option<usize> = Some(2);
const RIGHT: Option<usize> = Some(3);

/// Returns an episode of agents without food.
fn agents(board: SnakeBoard) -> SnakeEpisode {
    let options = SnakeOptions {
        agents: board.snakes.len(),
        enemies: 0,
        apples: 0,
        ..SnakeOptions::default()
    };
    episode(options, board)
}

fn outcome(reward: f64, over: bool) -> Outcome {
    Outcome { reward, over }
}

#[test]
fn a_death_ends_the_episode_of_that_agent_alone_while_two_others_live() {
    let mut game = agents(board(3, 3, &[&[(0, 0)], &[(2, 0)], &[(1, 2)]]));
    let (alive, dead, gone) = (
        outcome(-0.01, false),
        outcome(-2.01, true),
        Outcome::AFTER_THE_END,
    );
    assert_eq!(game.play(&[LEFT, UP, None]).unwrap(), [dead, alive, alive]);
    assert!(game.observe(0).unwrap().find('1').is_none());
    assert!(!game.succeeded(0) && !game.over()[1]);
    // Actions of the dead snake are ignored; the second runs into the wall, and the third is the only one left.
    let last = outcome(-0.01, true);
    assert_eq!(
        game.play(&[Some(9), RIGHT, None]).unwrap(),
        [gone, dead, last]
    );
    assert_eq!(game.play(&[None; 3]).unwrap(), [gone; 3]);
}

#[test]
fn of_two_agents_alone_the_death_of_one_ends_the_game_of_both() {
    let mut game = agents(board(4, 2, &[&[(0, 0)], &[(2, 0)]]));
    game.options.apples = 1;
    game.board.food.push(((3, 0), Food::Apple));
    let outcomes = game.play(&[LEFT, RIGHT]).unwrap();
    assert_eq!(outcomes, [outcome(-2.01, true), outcome(0.99, true)]);
    assert_eq!((game.succeeded(0), game.succeeded(1)), (false, true));
}

#[test]
fn agents_that_meet_both_die_and_a_standing_one_is_a_wall() {
    let two = || agents(board(3, 1, &[&[(0, 0)], &[(2, 0)]]));
    let died = outcome(-2.01, true);
    assert_eq!(two().play(&[RIGHT, LEFT]).unwrap(), [died, died]);
    let mut standing = agents(board(3, 1, &[&[(1, 0)], &[(2, 0)]]));
    assert_eq!(
        standing.play(&[None, LEFT]).unwrap(),
        [outcome(-0.01, true), died]
    );
}

#[test]
fn enemies_live_on_after_the_last_agent_but_no_one_plays_on() {
    let mut game = agents(board(5, 5, &[&[(0, 0)], &[(2, 2)], &[(4, 4)]]));
    (game.options.agents, game.options.enemies) = (1, 2);
    game.scores.truncate(1);
    assert_eq!(game.play(&[LEFT]).unwrap(), [outcome(-2.01, true)]);
    let after = game.key(0).unwrap();
    assert_eq!(game.play(&[LEFT]).unwrap(), [Outcome::AFTER_THE_END]);
    assert_eq!(game.key(0).unwrap(), after);
    assert_eq!(game.board.living(), 2);
}

/// If two agents change seats, each sees the game of the other.
#[test]
fn agents_that_change_seats_change_nothing_else() {
    use ListedView::{Board, Coordinates, Full, Relative};
    for view in [Board, Coordinates, Relative, Full] {
        let options = SnakeOptions {
            size: Some(4),
            agents: 2,
            enemies: 1,
            apples: 3,
            view,
            ..SnakeOptions::default()
        };
        let mut deaths = 0;
        for seed in 0..100 {
            let there = options.board(seed);
            let mut swapped = there.clone();
            swapped.snakes.swap(0, 1);
            let (mut one, mut other) = (
                episode(options.clone(), there),
                episode(options.clone(), swapped),
            );
            let mut player = Stream::new(seed, "player");
            for _ in 0..10 {
                for (agent, seat) in [(0, 1), (1, 0)] {
                    assert_eq!(one.observe(agent), other.observe(seat));
                    assert_eq!(one.key(agent), other.key(seat));
                    assert_eq!(one.best_actions(agent), other.best_actions(seat));
                    assert_eq!(one.succeeded(agent), other.succeeded(seat));
                }
                let [first, second] = [0; 2].map(|_| Some(player.below(5)).filter(|&way| way < 4));
                let outcomes = one.play(&[first, second]).unwrap();
                let mut mirrored = other.play(&[second, first]).unwrap();
                mirrored.swap(0, 1);
                assert_eq!(outcomes, mirrored);
                deaths += usize::from(outcomes[0].reward < -1.5);
            }
        }
        assert!(deaths > 10, "{deaths}");
    }
}

const OTHER: &str = "hit another snake";

#[test]
fn an_enemy_that_runs_into_a_standing_agent_dies_alone() {
    for agent in [&[(1, 0)][..], &[(0, 0), (1, 0)][..]] {
        let mut board = board(4, 1, &[agent, &[(2, 0)]]);
        assert_eq!(
            board.advance(&[None, LEFT]),
            [SnakeEvent::Nothing, SnakeEvent::Died(OTHER)]
        );
        assert_eq!(board.snakes[0], agent);
        assert_eq!(board.living(), 1);
    }
}

/// Moves that the golden rounds do not cover.
#[test]
fn the_cell_that_a_tail_or_a_head_is_leaving_still_kills() {
    let own_tail = [(1, 0), (1, 1), (0, 1), (0, 0)];
    assert_eq!(
        board(3, 3, &[&own_tail]).advance(&[LEFT]),
        [SnakeEvent::Died("hit its own body")]
    );
    let mut swap = board(4, 1, &[&[(2, 0)], &[(1, 0)]]);
    assert_eq!(
        swap.advance(&[LEFT, Some(3)]),
        [SnakeEvent::Died(OTHER), SnakeEvent::Died(OTHER)]
    );
    let mut chase = board(4, 1, &[&[(2, 0)], &[(1, 0)]]);
    assert_eq!(
        chase.advance(&[LEFT, LEFT]),
        [SnakeEvent::Died(OTHER), SnakeEvent::Nothing]
    );
}

fn ways_of_the_enemy(body: &[Cell]) -> Vec<usize> {
    let board = board(3, 3, &[&[(1, 0)], body]);
    players::random(&board, 1)
}

#[test]
fn the_enemy_avoids_walls_and_itself_but_no_one_else() {
    // The agent is to its right.
    assert_eq!(ways_of_the_enemy(&[(0, 0)]), [0, 3]);
    // With length 2 it does not turn back.
    assert_eq!(ways_of_the_enemy(&[(0, 0), (0, 1)]), [3]);
    // With length 4 in a circle it would bite its tail, which is above it.
    assert_eq!(ways_of_the_enemy(&[(0, 1), (1, 1), (1, 2), (0, 2)]), [0, 1]);
    // Enclosed on all sides it still moves.
    assert_eq!(
        ways_of_the_enemy(&[(0, 0), (0, 1), (1, 1), (1, 0), (2, 0)]),
        [0, 1, 2, 3]
    );
}

#[test]
fn the_greedy_player_weighs_death_then_clashes_then_poison_then_distance() {
    let worth = |thing| if thing == Food::Apple { 1.0 } else { -1.0 };
    let mut board = board(7, 7, &[&[(3, 3), (3, 2)]]);
    board.food.push(((5, 4), Food::Apple));
    assert_eq!(
        players::greedy(&board, worth),
        [0, 3],
        "up and right are as near"
    );
    board.food.push(((3, 4), Food::Fire));
    assert_eq!(players::greedy(&board, worth), [3], "up costs a point");
    board.snakes.push([(5, 3)].into());
    assert_eq!(
        players::greedy(&board, worth),
        [2],
        "on the right both could meet; left is harmless"
    );
    board.snakes.push([(2, 3)].into());
    assert_eq!(
        players::greedy(&board, worth),
        [0],
        "left kills now, and losing a point is better than a clash"
    );
}

/// Apples at (0, 2), (0, 1), a stack of two; a head below (2, 1); a body below (1, 1); a banana below (3, 1).
fn slope() -> SnakeBoard {
    let mut board = board(4, 3, &[&[(2, 0), (1, 0)]]);
    board.food = [(0, 2), (0, 1), (2, 1), (1, 1), (3, 1)]
        .map(|cell| (cell, Food::Apple))
        .to_vec();
    board.food.push(((3, 0), Food::Banana));
    board
}

#[test]
fn apples_roll_until_something_stops_them() {
    let mut board = slope();
    let apples = |board: &SnakeBoard| {
        let apples = board.food.iter().filter(|(_, it)| *it == Food::Apple);
        let mut cells: Vec<Cell> = apples.map(|&(cell, _)| cell).collect();
        cells.sort();
        cells
    };
    assert_eq!(board.roll(1), [0], "one rolls onto the head");
    assert_eq!(apples(&board), [(0, 0), (0, 1), (1, 1), (3, 1)]);
    assert_eq!(board.snakes[0], [(2, 0), (1, 0)], "no length is added");
    assert_eq!(board.roll(1), [0; 0]);
    assert_eq!(apples(&board), [(0, 0), (0, 1), (1, 1), (3, 1)]);
    assert_eq!(board.roll(0), [0; 0]);
    assert_eq!(apples(&board), [(0, 1), (0, 2), (1, 2), (3, 2)]);
    assert_eq!(board.roll(3), [0; 0]);
    assert_eq!(apples(&board), [(1, 1), (1, 2), (2, 2), (3, 2)]);
    assert_eq!(board.roll(2), [0; 0]);
    assert_eq!(apples(&board), [(0, 1), (0, 2), (1, 2), (2, 2)]);
}

/// A standing snake eats an apple that rolls onto it, and a moving one can eat two in a round.
#[test]
fn what_rolls_onto_a_head_is_eaten() {
    let options = |enemies| SnakeOptions {
        hill: Hill::Down,
        apples: 2,
        enemies,
        size: Some(5),
        ..SnakeOptions::default()
    };
    let mut game = episode(options(0), board(5, 5, &[&[(2, 0)]]));
    game.board.food = vec![((2, 1), Food::Apple), ((0, 3), Food::Apple)];
    assert_eq!(game.play(&[None]).unwrap(), [outcome(0.99, false)]);
    assert!(game.succeeded(0) && game.board.snakes[0] == [(2, 0)]);
    let heights: Vec<usize> = game.board.food.iter().map(|((_, y), _)| *y).collect();
    assert_eq!(heights, [2, 4], "the new one is at the top");

    let mut game = episode(options(0), board(5, 5, &[&[(2, 0)]]));
    game.board.food = vec![((3, 0), Food::Apple), ((3, 1), Food::Apple)];
    assert_eq!(game.play(&[RIGHT]).unwrap(), [outcome(1.99, false)]);
    assert_eq!(game.board.snakes[0], [(3, 0), (2, 0)]);
    assert_eq!(game.scores, [2.0]);
    assert_eq!(game.options.reward_bounds(), Some((-2.01, 1.99)));
}

#[test]
fn new_apples_appear_uphill_while_there_is_room() {
    for (way, edge) in [
        (0, [(0, 0), (1, 0)]),
        (1, [(0, 1), (1, 1)]),
        (2, [(1, 0), (1, 1)]),
        (3, [(0, 0), (0, 1)]),
    ] {
        let mut stream = Stream::new(1, "test");
        let mut board = board(2, 2, &[]);
        for count in 1..=4 {
            board.put(Food::Apple, Some(way ^ 1), &mut stream);
            let on_edge = board.food.iter().filter(|(at, _)| edge.contains(at));
            assert_eq!(on_edge.count(), count.min(2), "{way}");
        }
        board.put(Food::Apple, Some(way ^ 1), &mut stream);
        assert_eq!(board.food.len(), 4);
    }
}

#[test]
fn a_greedy_enemy_moves_as_the_scripted_player_would_in_its_place() {
    let options = SnakeOptions {
        opponent: Opponent::Greedy,
        size: Some(10),
        enemies: 2,
        ..SnakeOptions::default()
    };
    for seed in 0..50 {
        let mut game = episode(options.clone(), options.board(seed));
        for _ in 0..10 {
            let before = game.board.clone();
            game.play(&[None]).unwrap();
            for who in 1..3 {
                let (Some(&from), Some(&to)) =
                    (before.snakes[who].front(), game.board.snakes[who].front())
                else {
                    continue;
                };
                let best = players::greedy(&before.seen_by(who), |thing| options.worth(thing));
                assert!(
                    best.iter()
                        .any(|&way| before.neighbour(from, way) == Some(to))
                );
            }
        }
    }
}

/// With swapped words the same words move the other way.
#[test]
fn swapped_words_swap_the_moves_and_the_best_of_them() {
    let play = |swapped| {
        let options = SnakeOptions {
            swapped,
            size: Some(10),
            enemies: 0,
            ..SnakeOptions::default()
        };
        let mut played = Vec::new();
        for seed in 0..30 {
            let mut game = options.start(seed, seed).unwrap();
            let word = |action| match action {
                2 | 3 if swapped => 5 - action,
                _ => action,
            };
            for _ in 0..20 {
                let mut best: Vec<usize> = game.best_actions(0).unwrap();
                best.iter_mut().for_each(|action| *action = word(*action));
                best.sort();
                let habit = game.habit(0);
                assert_eq!(habit, swapped.then(|| best.clone()));
                let outcomes = game.play(&[Some(word(best[0]))]).unwrap();
                played.push((game.key(0).unwrap(), best, outcomes));
            }
        }
        played
    };
    assert_eq!(play(false), play(true));
}

#[test]
fn the_habit_is_to_eat_apples_and_to_know_of_nothing_else() {
    let mut game = episode(
        SnakeOptions {
            enemies: 0,
            apple_reward: -1.0,
            bananas: 1,
            ..SnakeOptions::default()
        },
        board(5, 5, &[&[(2, 2)]]),
    );
    game.board.food = vec![((3, 2), Food::Apple), ((0, 2), Food::Banana)];
    assert_eq!(game.best_actions(0), Some(vec![2]));
    assert_eq!(game.habit(0), Some(vec![3]));
    game.options.apple_reward = 1.0;
    game.options.bananas = 0;
    assert_eq!(game.habit(0), None, "the usual instructions");
}

#[test]
fn a_full_board_has_no_free_cell() {
    let mut board = board(2, 1, &[&[(0, 0), (1, 0)]]);
    board.put(Food::Apple, None, &mut Stream::new(1, "test"));
    assert_eq!(board.food, []);
}

#[test]
fn the_key_does_not_tell_in_which_order_things_appeared() {
    let mut there = board(3, 3, &[&[(0, 0)], &[]]);
    there.food = vec![((1, 1), Food::Apple), ((0, 2), Food::Fire)];
    let mut turned = there.clone();
    turned.food.reverse();
    assert_eq!(text::key(&there), text::key(&turned));
    insta::assert_snapshot!(text::key(&there), @"3x3 F0,2 A1,1|0,0|");
}
