//! The launches of the two variants of the attention kernels.

use super::Visibility;
use super::visibility::QueryWalk;
use crate::gpu::{Bind, Constants, Groups, Kernel, params};
use crate::{Gpu, Tensor};

const LANES: &str = "attention_lanes";
const TILES: &str = "attention";
const SUM_ITEMS: Kernel = Kernel::new(TILES, "sum_items");

/// Operations per channel of a pair of query and key: up to four products and sums, and a share of the softmax.
const WORK: u64 = 16;

/// Whether there is a kernel for processors with this head size. It loads eight channels at once. lavapipe unrolls loops of up
/// to 32 rounds, and a head of 128 channels has 32 parts.
pub(crate) fn fits_lanes(head_size: u32) -> bool {
    head_size.is_multiple_of(8) && head_size <= 128
}

/// Whether the kernels are those for a processor, in which eight threads exchange rows. Those for a GPU multiply tiles; on a
/// processor without subgroups of eight, whose threads exchange rows through memory, they are six times slower.
/// The results are equal up to rounding.
/// Must not depend on the number of queries: a rollout and its update must compute the same bits.
fn uses_lanes(gpu: &Gpu, head_size: usize) -> bool {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED.get() {
        return forced && fits_lanes(head_size as u32);
    }
    gpu.is_software() && fits_lanes(head_size as u32)
}

/// The rows of each thread of a kernel for a processor. `few`: the variant of `forward` for queries that see different keys.
/// With more of them a loaded row is used more often, but the code grows with rows times channels. lavapipe must still unroll
/// it, and takes longer to compile it: the gradients at 64 channels 8 instead of 4 s with twice the rows, for no gain.
pub(crate) fn rows_of_a_thread(entry: &str, head_size: u32, few: bool) -> u32 {
    match (entry, head_size) {
        ("forward", _) if few => 1,
        ("forward", ..=64) => 4,
        ("forward", _) | (_, ..=64) => 2,
        _ => 1,
    }
}

/// The constants of a kernel for a GPU. `few`: the variant of `forward` for few queries.
pub(crate) fn tile_constants(entry: &str, head_size: u32, few: bool) -> Constants {
    // Twice the threads where each would need more registers than it can have.
    let (rows, threads) = match (entry, few) {
        ("forward", true) => (8, 128),
        ("forward" | "queries_backward", _) if head_size <= 128 => (ROWS, 128),
        _ => (ROWS, 256),
    };
    vec![
        ("HEAD_SIZE", head_size),
        ("ROWS", rows),
        ("THREADS", threads),
    ]
}

/// Rows of a workgroup on a GPU, unless there are few.
const ROWS: u32 = 32;

/// The sizes of one attention.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) queries: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    lanes: bool,
}

/// How the workgroups of a launch divide queries and heads.
struct Division {
    constants: Constants,
    walk: QueryWalk,
    /// queries of a workgroup
    block: usize,
    /// heads of a workgroup, all with the same key head
    together: usize,
}

impl Sizes {
    pub(super) fn new(
        gpu: &Gpu,
        queries: usize,
        heads: usize,
        kv_heads: usize,
        head_size: usize,
    ) -> Sizes {
        Sizes {
            queries,
            heads,
            kv_heads,
            head_size,
            lanes: uses_lanes(gpu, head_size),
        }
    }

    fn shader(self) -> &'static str {
        if self.lanes { LANES } else { TILES }
    }

    pub(super) fn launch_by_query<const N: usize>(
        self,
        entry: &'static str,
        visible: &Visibility,
        inputs: [&Tensor; 3],
        others: [&Tensor; N],
    ) {
        let division = match self.lanes {
            true => self.divide_for_lanes(entry, visible),
            false => self.divide_for_tiles(entry, visible),
        };
        let Division {
            constants,
            walk,
            block,
            together,
        } = division;
        let mut buffers: Vec<&dyn Bind> = inputs.map(|x| x as &dyn Bind).into();
        buffers.push(&walk.words);
        buffers.extend(others.map(|x| x as &dyn Bind));
        let groups = walk.blocks * self.heads / together;
        let work = self.work(walk.met * block);
        Kernel::new(self.shader(), entry).launch(
            &constants,
            &buffers,
            &self.params(groups, 0, [block, together]),
            Groups::count(groups).work(work),
        );
    }

    /// The division with the least work. No bit depends on it.
    fn divide_for_lanes(self, entry: &str, visible: &Visibility) -> Division {
        let sharing = self.heads / self.kv_heads;
        let is_forward = entry == "forward";
        // The threads of a workgroup may take the heads that see the same keys.
        let together = [1, sharing]
            .into_iter()
            .filter(|n| *n == 1 || (is_forward && *n <= 8));
        // Queries that see different keys, as in decoding, may share no workgroup.
        let few = [false, true]
            .into_iter()
            .filter(|few| !few || (is_forward && !visible.is_tree()));
        let divide = |(together, few): (usize, bool)| {
            let each = rows_of_a_thread(entry, self.head_size as u32, few) as usize;
            let block = 8 / together * each;
            // Loading a key takes as long as computing a row with it.
            let cost = visible.keys_met(block) * (each + 1) * self.heads / together;
            (cost, block, together, few)
        };
        let all = together.flat_map(|together| few.clone().map(move |few| (together, few)));
        let best = all.map(divide).min_by_key(|(cost, ..)| *cost);
        let (_, block, together, few) = best.expect("one division at least");
        let mut constants = self.constants_for_lanes(entry, few);
        if is_forward {
            constants.push(("HEADS", together as u32));
        }
        Division {
            constants,
            walk: visible.by_query(block, true),
            block,
            together,
        }
    }

    fn divide_for_tiles(self, entry: &str, visible: &Visibility) -> Division {
        let sharing = self.heads / self.kv_heads;
        let with = |few: bool| {
            let constants = tile_constants(entry, self.head_size as u32, few);
            let rows = constants[1].1 as usize;
            // The heads of a key head read the same keys, so a workgroup takes as many of them as fit.
            let fits = |heads: &usize| sharing.is_multiple_of(*heads);
            let together = (1..=rows).rev().find(fits).unwrap_or(1);
            let block = if few { 1 } else { rows / together };
            let walk = visible.by_query(block, false);
            let work = walk.met * rows / together;
            (
                Division {
                    constants,
                    walk,
                    block,
                    together,
                },
                work,
            )
        };
        let (many, work_of_many) = with(false);
        // Queries that see different keys, as in decoding, go to workgroups of their own. No bit depends on it.
        if entry == "forward" && !visible.is_tree() {
            let (few, work_of_few) = with(true);
            if work_of_few <= work_of_many {
                return few;
            }
        }
        many
    }

    fn constants_for_lanes(self, entry: &str, few: bool) -> Constants {
        let size = self.head_size as u32;
        vec![
            ("HEAD_SIZE", size),
            ("SHARING", (self.heads / self.kv_heads) as u32),
            ("PER_THREAD", rows_of_a_thread(entry, size, few)),
        ]
    }

    /// Returns the multiplications and additions for so many pairs of a query and a key.
    fn work(self, pairs: usize) -> u64 {
        pairs as u64 * (self.heads * self.head_size) as u64 * WORK
    }

    /// `division`: queries and heads of a workgroup.
    fn params(self, groups: usize, values_at: usize, division: [usize; 2]) -> impl bytemuck::Pod {
        params! {
            count: u32 = self.queries,
            heads: u32 = self.heads,
            kv_heads: u32 = self.kv_heads,
            groups: u32 = groups,
            scale: f32 = 1.0 / (self.head_size as f32).sqrt(),
            values_at: u32 = values_at,
            block: u32 = division[0],
            together: u32 = division[1],
            parts: u32 = self.head_size / 4,
        }
    }

    /// The log sum and dy · y of each row and head.
    pub(super) fn row_sums(self, y: &Tensor, log_sums: &Tensor, dy: &Tensor) -> Tensor {
        let row_sums = Tensor::empty(y.gpu(), &[self.queries, self.heads, 2]);
        Kernel::new(self.shader(), "sum_rows").launch(
            &[("HEAD_SIZE", self.head_size as u32)],
            &[y, log_sums, dy, &row_sums],
            &self.params(0, 0, [0, 0]),
            Groups::of(self.queries * self.heads, 64),
        );
        row_sums
    }

    pub(super) fn key_gradients(self, visible: &Visibility, inputs: [&Tensor; 5]) -> [Tensor; 2] {
        let (gpu, cols) = (inputs[1].gpu(), inputs[1].cols());
        let size = self.head_size as u32;
        let entry = "keys_backward";
        let (rows, constants) = match self.lanes {
            true => (
                8 * rows_of_a_thread(entry, size, false),
                self.constants_for_lanes(entry, false),
            ),
            false => (ROWS, tile_constants(entry, size, false)),
        };
        let block = rows as usize;
        let walk = visible.by_key(block);
        let split = walk.items > walk.blocks;
        let sums = pair(gpu, self.queries * cols);
        let partial = match split {
            true => pair(gpu, walk.items * block * cols),
            false => sums.clone(),
        };
        // In units of four numbers.
        let second_at = |pair: &Tensor| pair.cols() / 4;
        let groups = walk.items * self.kv_heads;
        let work = self.work(walk.met * block);
        let [q, k, v, dy, row_sums] = inputs;
        Kernel::new(self.shader(), entry).launch(
            &constants,
            &[q, k, v, &walk.words, dy, row_sums, &partial],
            &self.params(groups, second_at(&partial), [0, 0]),
            Groups::count(groups).work(work),
        );
        if split {
            SUM_ITEMS.launch(
                &[("HEAD_SIZE", size), ("ROWS", rows)],
                &[&partial, &walk.starts, &sums],
                &self.params(second_at(&sums), second_at(&partial), [0, 0]),
                Groups::of(self.queries * cols / 4, 64),
            );
        }
        [0, sums.cols()].map(|first| {
            let sums = sums.window(first..first + self.queries * cols);
            sums.reshape(&[self.queries, cols])
        })
    }
}

/// Two tensors of `len` elements in one, since a kernel can bind only seven. The second starts with the second row.
fn pair(gpu: &Gpu, len: usize) -> Tensor {
    Tensor::empty(gpu, &[2, len.next_multiple_of(64)])
}
