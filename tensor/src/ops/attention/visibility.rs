//! The keys that each query sees, and the order in which the attention kernels read them.
//!
//! A block of neighbouring queries reads one list of keys, so that its threads load each key once. A mask marks the queries
//! that see the key. Masked keys change no bit: the order of each sum depends only on the query.
//! So packed trees and key-value arenas give identical results.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::{Gpu, Indices};

/// A query sees the ranges `above[above]`, then the keys from `start` to `end`.
#[derive(Clone, Debug, Copy)]
struct QueryRanges {
    above: u32,
    start: u32,
    end: u32,
}

type Ranges = Vec<(u32, u32)>;

#[derive(Debug)]
struct VisibilityInner {
    gpu: Gpu,
    keys: usize,
    queries: Vec<QueryRanges>,
    /// Shared by the tokens of a segment.
    above: Vec<Ranges>,
    /// For the packed tree: `visible_until` of each token.
    until: Option<Vec<u32>>,
    keys_met: Mutex<HashMap<usize, usize>>,
    by_query: Mutex<HashMap<(usize, bool), QueryWalk>>,
    by_key: Mutex<HashMap<usize, KeyWalk>>,
}

/// The keys that each query of an attention sees. Cheap to clone; make it once for all layers.
#[derive(Clone, Debug)]
pub struct Visibility(Arc<VisibilityInner>);

/// The order of the keys for each block of queries. All offsets are into `words`.
#[derive(Clone, Debug)]
pub(crate) struct QueryWalk {
    /// With single keys: `blocks + 1` offsets of items, then the items: key, mask of the queries.
    /// With tiles: `blocks + 1` offsets of tiles, then for each tile, and for the end, the offset of its items, then the
    /// items: first key, end, mask. A tile has up to [`KEYS_OF_A_TILE`] keys.
    pub(crate) words: Indices,
    pub(crate) blocks: usize,
    /// Keys read by all blocks together. A tile counts in full.
    pub(crate) met: usize,
}

/// Keys of a tile, as in attention.wgsl.
const KEYS_OF_A_TILE: u32 = 64;

/// The order of the queries for each block of keys, split into parts if it is long.
#[derive(Clone, Debug)]
pub(crate) struct KeyWalk {
    /// `visible_until` of each key, then items of three words: first key of the block, first query, end.
    pub(crate) words: Indices,
    pub(crate) items: usize,
    /// The first item of each block of keys, and the number of items.
    pub(crate) starts: Indices,
    pub(crate) blocks: usize,
    /// Queries read by all blocks together.
    pub(crate) met: usize,
}

impl Visibility {
    /// Self-attention in a packed tree: token i sees token j if j <= i < `visible_until[j]`. The tokens are in depth-first
    /// order, so the ranges are nested.
    ///
    /// # Panics
    /// If a token does not see itself, or sees a token that its ancestor does not see.
    #[track_caller]
    pub fn tree(gpu: &Gpu, visible_until: &[u32]) -> Visibility {
        let count = visible_until.len();
        let (mut queries, mut above) = (Vec::with_capacity(count), Vec::new());
        // The segments on the path to the current token: (first token, end, visible until).
        let mut path: Vec<(u32, u32, u32)> = Vec::new();
        for (i, &until) in (0u32..).zip(visible_until) {
            assert!(
                until > i && until as usize <= count,
                "visibility: visible_until[{i}] is {until}, wanted more than {i} and at most {count}, the number of tokens"
            );
            while path.pop_if(|(_, _, ends)| *ends <= i).is_some() {}
            match path.last_mut() {
                Some((_, end, same)) if *same == until && *end == i => *end += 1,
                parent => {
                    if let Some((first, _, ends)) = parent {
                        assert!(
                            until <= *ends,
                            "visibility: visible_until[{i}] is {until}, beyond the {ends} of its ancestor {first}: subtrees must nest"
                        );
                    }
                    above.push(joined(path.iter().map(|(first, end, _)| (*first, *end))));
                    path.push((i, i + 1, until));
                }
            }
            let start = path.last().map_or(i, |(first, _, _)| *first);
            queries.push(QueryRanges {
                above: above.len() as u32 - 1,
                start,
                end: i + 1,
            });
        }
        Visibility::new(gpu, queries, above, Some(visible_until.to_vec()))
    }

    /// For each query the ranges (start, end) of its key rows, in the order of the sum: for decoding over scattered rows of
    /// an arena. There is no gradient.
    ///
    /// # Panics
    /// If a query sees no key.
    #[track_caller]
    pub fn ranges(gpu: &Gpu, queries: &[Vec<(u32, u32)>]) -> Visibility {
        let mut above = Vec::with_capacity(queries.len());
        let mut ends = Vec::with_capacity(queries.len());
        for (i, ranges) in queries.iter().enumerate() {
            let ranges = joined(ranges.iter().copied().filter(|(start, end)| start < end));
            let Some((&(start, end), before)) = ranges.split_last() else {
                panic!("visibility: query {i} sees no key: a softmax over nothing is undefined")
            };
            ends.push(QueryRanges {
                above: i as u32,
                start,
                end,
            });
            above.push(before.to_vec());
        }
        Visibility::new(gpu, ends, above, None)
    }

    fn new(
        gpu: &Gpu,
        queries: Vec<QueryRanges>,
        above: Vec<Ranges>,
        until: Option<Vec<u32>>,
    ) -> Visibility {
        let last = |query: &QueryRanges| {
            let ends = above[query.above as usize].iter().map(|range| range.1);
            ends.max().unwrap_or(0).max(query.end)
        };
        let keys = queries.iter().map(last).max().unwrap_or(0) as usize;
        Visibility(Arc::new(VisibilityInner {
            gpu: gpu.clone(),
            keys,
            queries,
            above,
            until,
            keys_met: Mutex::default(),
            by_query: Mutex::default(),
            by_key: Mutex::default(),
        }))
    }

    /// The number of queries.
    pub(crate) fn queries(&self) -> usize {
        self.0.queries.len()
    }

    /// The number of key rows needed: one more than the last one that a query sees.
    pub(crate) fn keys(&self) -> usize {
        self.0.keys
    }

    /// Whether it comes from [`Visibility::tree`], so that there is a gradient.
    pub(crate) fn is_tree(&self) -> bool {
        self.0.until.is_some()
    }

    fn ranges_of(&self, query: &QueryRanges) -> Ranges {
        let above = &self.0.above[query.above as usize];
        joined(above.iter().copied().chain([(query.start, query.end)]))
    }

    /// The keys that all blocks of `per_block` queries read together: `met` of their walk with single keys.
    pub(crate) fn keys_met(&self, per_block: usize) -> usize {
        let mut known = self.0.keys_met.lock().expect("numbers of keys");
        *known.entry(per_block).or_insert_with(|| {
            let mut met = 0;
            for queries in self.0.queries.chunks(per_block) {
                let lists = queries.iter().map(|query| self.ranges_of(query)).collect();
                walk_together(lists, |start, end, _| met += (end - start) as usize);
            }
            met
        })
    }

    /// The walk for blocks of `per_block` queries, at most 32, with single keys or with tiles.
    pub(crate) fn by_query(&self, per_block: usize, each_key: bool) -> QueryWalk {
        let mut known = self.0.by_query.lock().expect("walks");
        known
            .entry((per_block, each_key))
            .or_insert_with(|| self.walk_by_query(per_block, each_key))
            .clone()
    }

    fn walk_by_query(&self, per_block: usize, each_key: bool) -> QueryWalk {
        assert!(per_block <= 32, "visibility: a mask has 32 bits");
        let (mut blocks, mut tiles, mut items) = (Vec::new(), Vec::new(), Vec::new());
        for queries in self.0.queries.chunks(per_block) {
            blocks.push(if each_key { items.len() } else { tiles.len() });
            let lists = queries.iter().map(|query| self.ranges_of(query)).collect();
            let mut room = 0;
            walk_together(lists, |mut start, end, mask| {
                if each_key {
                    (start..end).for_each(|key| items.extend([key, mask]));
                    return;
                }
                while start < end {
                    if room == 0 {
                        tiles.push(items.len());
                        room = KEYS_OF_A_TILE;
                    }
                    let until = end.min(start + room);
                    items.extend([start, until, mask]);
                    room -= until - start;
                    start = until;
                }
            });
        }
        let count = blocks.len();
        let met = match each_key {
            true => items.len() / 2,
            false => tiles.len() * KEYS_OF_A_TILE as usize,
        };
        blocks.push(if each_key { items.len() } else { tiles.len() });
        if !each_key {
            tiles.push(items.len());
        }
        let (tiles_at, items_at) = (blocks.len(), blocks.len() + tiles.len());
        let blocks = blocks.iter().map(|offset| offset + tiles_at);
        let tiles = tiles.iter().map(|offset| offset + items_at);
        let offsets = blocks.chain(tiles).map(|offset| offset as u32);
        let words: Vec<u32> = offsets.chain(items).collect();
        QueryWalk {
            words: Indices::new(&self.0.gpu, &words),
            blocks: count,
            met,
        }
    }

    /// The walk for blocks of `per_block` keys.
    /// Panics if this is not a tree.
    pub(crate) fn by_key(&self, per_block: usize) -> KeyWalk {
        let mut known = self.0.by_key.lock().expect("walks");
        known
            .entry(per_block)
            .or_insert_with(|| self.walk_by_key(per_block))
            .clone()
    }

    fn walk_by_key(&self, per_block: usize) -> KeyWalk {
        let until = self.0.until.as_ref().expect("a tree");
        let spans: Vec<_> = until
            .chunks(per_block)
            .enumerate()
            .map(|(block, ends)| {
                let first = (block * per_block) as u32;
                (first, ends.iter().copied().max().unwrap_or(first))
            })
            .collect();
        let total: usize = spans
            .iter()
            .map(|(first, end)| (end - first) as usize)
            .sum();
        // Every query sees the first tokens, so a few threads would work while the others wait. Splitting at the mean at
        // most doubles the memory for partial sums.
        let longest = (total / spans.len().max(1)).max(LONGEST_WALK) as u32;
        let mut words = until.clone();
        let mut starts = vec![0];
        let mut items = 0;
        for (first, end) in spans {
            for query in (first..end).step_by(longest as usize) {
                words.extend([first, query, end.min(query + longest)]);
                items += 1;
            }
            starts.push(items);
        }
        KeyWalk {
            words: Indices::new(&self.0.gpu, &words),
            items: items as usize,
            blocks: starts.len() - 1,
            starts: Indices::new(&self.0.gpu, &starts),
            met: total,
        }
    }
}

/// Queries per key below which a walk is not split.
const LONGEST_WALK: usize = 256;

/// Merges neighbouring ranges.
fn joined(ranges: impl Iterator<Item = (u32, u32)>) -> Ranges {
    let mut joined: Ranges = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Calls `item` with (first key, end, mask), so that each query of a block gets the ranges of its list in order. Queries
/// share an item where their lists agree.
fn walk_together(mut lists: Vec<Ranges>, mut item: impl FnMut(u32, u32, u32)) {
    // `pop` takes the last range.
    for list in &mut lists {
        list.reverse();
    }
    while let Some(&(start, _)) = lists.iter().find_map(|list| list.last()) {
        let together = |list: &Ranges| list.last().is_some_and(|next| next.0 == start);
        let ends = lists.iter().filter(|list| together(list));
        let end = ends.filter_map(|list| list.last()).map(|next| next.1).min();
        let end = end.unwrap_or(start);
        let mut mask = 0;
        for (lane, list) in lists.iter_mut().enumerate() {
            if !together(list) {
                continue;
            }
            mask |= 1 << lane;
            if let Some(next) = list.last_mut() {
                next.0 = end;
            }
            list.pop_if(|next| next.0 == next.1);
        }
        item(start, end, mask);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu;

    /// Two roots; under the first 0..2 the children 2..4 and 4..7, under 4 the leaf 5..7.
    const UNTIL: [u32; 9] = [7, 7, 4, 4, 7, 7, 7, 9, 9];

    fn seen(visibility: &Visibility, query: usize) -> Vec<u32> {
        let ranges = visibility.ranges_of(&visibility.0.queries[query]);
        ranges
            .into_iter()
            .flat_map(|(start, end)| start..end)
            .collect()
    }

    #[test]
    fn a_token_sees_its_path() {
        let visibility = Visibility::tree(&gpu(), &UNTIL);
        for i in 0..9u32 {
            let wanted: Vec<_> = (0..=i).filter(|j| i < UNTIL[*j as usize]).collect();
            assert_eq!(seen(&visibility, i as usize), wanted, "token {i}");
        }
        assert_eq!((visibility.queries(), visibility.keys()), (9, 9));
    }

    #[test]
    fn a_block_takes_each_query_through_its_own_list_in_order() {
        let lists = [
            vec![(0, 6), (20, 23)],
            vec![(0, 6), (9, 11)],
            vec![(0, 6), (20, 21), (3, 4)],
            vec![],
        ];
        let mut words = Vec::new();
        walk_together(lists.to_vec(), |start, end, mask| {
            words.extend([start, end, mask]);
        });
        for (lane, list) in lists.iter().enumerate() {
            let mine = words.chunks(3).filter(|item| item[2] >> lane & 1 == 1);
            let mine = joined(mine.map(|item| (item[0], item[1])));
            assert_eq!(mine, *list, "lane {lane}");
        }
        assert_eq!(
            words[..3],
            [0, 6, 0b111],
            "a range that all see is one item"
        );
    }

    #[test]
    #[should_panic(expected = "visible_until[2] is 2, wanted more than 2")]
    fn a_token_that_does_not_see_itself_is_refused() {
        Visibility::tree(&gpu(), &[3, 3, 2]);
    }

    #[test]
    #[should_panic(expected = "visible_until[1] is 3, beyond the 2 of its ancestor 0")]
    fn subtrees_that_do_not_nest_are_refused() {
        Visibility::tree(&gpu(), &[2, 3, 3]);
    }

    #[test]
    #[should_panic(expected = "query 1 sees no key")]
    fn a_query_without_keys_is_refused() {
        Visibility::ranges(&gpu(), &[vec![(0, 2)], vec![(3, 3)]]);
    }
}
