//! The launch of a product: its operands, the added terms, and the choice of the kernel.

use crate::gpu::{Bind, Binding, Constants, Groups, Kernel, params};
use crate::ops::weight::Operand;
use crate::{Gpu, Tensor};

const LANES: Kernel = Kernel::new("matmul_lanes", "product");
const LANES_TEXTURE: Kernel = Kernel::new("matmul_lanes_texture", "product");
const FEW_ROWS: Kernel = Kernel::new("matmul_rows", "few_rows");
const FEW_ROWS_TEXTURE: Kernel = Kernel::new("matmul_rows_texture", "few_rows");
const TILES: Kernel = Kernel::new("matmul_tiles", "product");
const ADD_SLICES: Kernel = Kernel::new("matmul_slices", "add");

/// The layout of the factors. The numbering is that of `LAYOUT` in the shaders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProductLayout {
    /// left (m, k), right (n, k)
    Nt,
    /// left (m, k), right (k, n)
    Nn,
    /// left (k, m), right (k, n)
    Tn,
}

/// Whether products use the kernel for processors, in which eight threads exchange values. That for GPUs has tiles in
/// workgroup memory. The results are equal up to rounding.
fn uses_lanes(gpu: &Gpu) -> bool {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED.get() {
        return forced;
    }
    gpu.is_software()
}

/// The shortest slice of k. A multiple of 16, the step of the tiles.
const MIN_SLICE: usize = 256;

/// Elements of a matrix above which other kernels are worth the second that their compilation takes on a processor. On a GPU
/// twice as many elements of a result keep it busy with the large tile.
pub(super) const LARGE: usize = 1 << 18;

/// Terms of a sum from which few rows are worth their own kernel on a processor, also with a small matrix: the first one of an
/// adapter.
const LONG: usize = 512;

fn large() -> usize {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED_LARGE.get() {
        return forced;
    }
    LARGE
}

/// One launch: y (m, n) = alpha left right + low up + bias + residual. The residual is stored like y.
pub(crate) struct Product<'a> {
    pub(crate) layout: ProductLayout,
    pub(crate) left: Operand,
    pub(crate) right: Operand,
    pub(crate) alpha: f32,
    /// low (m, r), and up with the layout of `right`
    pub(crate) low: Option<(&'a Tensor, Operand)>,
    /// the bias, and the place of its first element
    pub(crate) bias: Option<(&'a dyn Bind, usize)>,
    pub(crate) residual: Option<&'a Tensor>,
    /// up to two more products with `left`, without a residual, in the layout `Nt`
    pub(crate) more: &'a [MoreColumns],
    /// y = silu(first product) · second product, for two products of one size without a bias
    pub(crate) gated: bool,
}

/// Another product of a launch: rows of `right`, and the places of its matrices in the buffers of the first product. Its part
/// of y, as its low-rank term, starts at the next multiple of 64 behind that of the product before.
pub(crate) struct MoreColumns {
    pub(crate) rows: usize,
    pub(crate) right_at: usize,
    pub(crate) up_at: usize,
    pub(crate) bias_at: usize,
}

/// A kernel with the rows and columns of the tile of a workgroup.
struct Tile {
    kernel: Kernel,
    height: usize,
    width: usize,
    /// Workgroups needed to use the whole device. With fewer, a long sum is split into slices.
    wanted_groups: usize,
    /// What the kernel has as constants.
    constants: Constants,
}

impl<'a> Product<'a> {
    /// left right, with no other terms.
    pub(crate) fn new(layout: ProductLayout, left: Operand, right: Operand) -> Product<'a> {
        Product {
            layout,
            left,
            right,
            alpha: 1.0,
            low: None,
            bias: None,
            residual: None,
            more: &[],
            gated: false,
        }
    }

    /// How many tiles of `width` columns are beside each other.
    fn tiles_across(&self, width: usize) -> usize {
        let [_, n, _] = self.size();
        let more = self.more.iter().map(|other| other.rows.div_ceil(width));
        match self.gated {
            true => (2 * n).div_ceil(width),
            false => n.div_ceil(width) + more.sum::<usize>(),
        }
    }

    /// The columns of all products.
    fn columns(&self) -> usize {
        let [_, n, _] = self.size();
        n + self.more.iter().map(|other| other.rows).sum::<usize>()
    }

    /// m, n and k
    fn size(&self) -> [usize; 3] {
        let (left, right) = (&self.left, &self.right);
        match self.layout {
            ProductLayout::Nt => [left.rows.len(), right.rows.len(), left.cols],
            ProductLayout::Nn => [left.rows.len(), right.cols, left.cols],
            ProductLayout::Tn => [left.cols, right.cols, left.rows.len()],
        }
    }

    /// Whether the low-rank term can be part of the launch: its rows must be multiples of four.
    pub(crate) fn fits(low: &Tensor, up: &Operand) -> bool {
        low.cols().is_multiple_of(4) && up.is_wide()
    }

    /// Returns y as a new tensor.
    pub(crate) fn compute(self) -> Tensor {
        let [m, n, _] = self.size();
        let y = Tensor::empty(self.left.binding.gpu(), &[m, n]);
        self.write(&Operand::of(&y));
        y
    }

    /// Writes y.
    pub(crate) fn write(self, y: &Operand) {
        let gpu = self.left.binding.gpu();
        let [m, n, k] = self.size();
        let tile = match uses_lanes(gpu) {
            true => self.tile_in_lanes(y),
            false => self.tile_on_gpu(),
        };
        let copied = (tile.kernel == LANES_TEXTURE).then(|| self.left.binding.in_texture());
        let left = copied.as_ref().unwrap_or(&self.left.binding);
        let tiles = m.div_ceil(tile.height) * self.tiles_across(tile.width);
        let slice = match self.layout {
            ProductLayout::Tn => slice_length(k, usize::div_ceil(tile.wanted_groups, tiles.max(1))),
            ProductLayout::Nt | ProductLayout::Nn => k.max(1),
        };
        let slices = k.div_ceil(slice);
        if slices <= 1 {
            return self.launch(&tile, left, tiles, slice, y, 0);
        }
        let parts = Tensor::empty(gpu, &[slices, m, n]);
        let to = Operand::of(&parts);
        self.launch(&tile, left, tiles * slices, slice, &to, m * n);
        let params = [m, n, y.step, y.at, slices].map(|number| number as u32);
        ADD_SLICES.launch(&[], &[&parts, &y.binding], &params, Groups::of(m * n, 64));
    }

    /// Whether left and right can be read as vectors of four. A sum along the rows of left must not read beyond a row.
    fn is_wide(&self) -> bool {
        let ends_with_rows = self.layout == ProductLayout::Tn || self.left.cols.is_multiple_of(4);
        self.left.is_wide() && self.right.is_wide() && ends_with_rows
    }

    /// Whether all rows of right start at a multiple of 32 bytes.
    fn starts_at_32_bytes(&self) -> bool {
        let right = &self.right;
        let others = self.more.iter().map(|other| other.right_at);
        let mut places = others.chain([right.at, right.step]);
        places.all(|place| (place * right.format.unit()).is_multiple_of(32))
    }

    /// Whether y can be written as vectors of four.
    fn has_wide_y(&self, y: &Operand) -> bool {
        let rows = self.more.iter().map(|other| other.rows);
        let mut columns = rows.chain([self.size()[1]]);
        y.is_wide() && columns.all(|n| n.is_multiple_of(4))
    }

    /// The kernel for processors. Other kernels than the smallest tile are faster for large matrices, and compiling them takes
    /// a second.
    fn tile_in_lanes(&self, y: &Operand) -> Tile {
        let [m, _, k] = self.size();
        let n = self.columns();
        let has_wide_y = self.has_wide_y(y);
        let y_wide = ("Y_WIDE", has_wide_y.into());
        let (lanes, few_rows) = match self.right.binding.is_texture() {
            true => (LANES_TEXTURE, FEW_ROWS_TEXTURE),
            false => (LANES, FEW_ROWS),
        };
        let tile = |height: usize, width: usize| Tile {
            kernel: lanes,
            height,
            width,
            wanted_groups: 2,
            constants: vec![y_wide, ("HEIGHT", height as u32), ("WIDTH", width as u32)],
        };
        if self.layout == ProductLayout::Tn || !(self.is_wide() && has_wide_y) {
            return tile(32, 32);
        }
        let is_small = n * k < large();
        let height = m.next_power_of_two().clamp(1, 8);
        let step = match self.right.format.group() {
            Some(_) => 64,
            None => usize::max(16, 32 / height),
        };
        let is_whole = k.is_multiple_of(step) && self.starts_at_32_bytes();
        let pays = m <= 16 && (!is_small || k >= LONG);
        if self.layout == ProductLayout::Nt && pays && is_whole {
            return Tile {
                kernel: few_rows,
                height,
                constants: vec![y_wide, ("HEIGHT", height as u32)],
                ..tile(height, 32)
            };
        }
        let mut rows = self.more.iter().map(|other| other.rows);
        let fits = !is_small && n.is_multiple_of(64) && rows.all(|n| n.is_multiple_of(32));
        if !fits {
            return tile(32, 32);
        }
        // With weights in 16 bits, a tile of 28 rows takes three quarters of the time of one of 32 (LOG.md, 2026-11-27).
        let height = match 4 * m.div_ceil(32) <= 3 * m.div_ceil(28) {
            true => 32,
            false => 28,
        };
        tile(height, 64)
    }

    /// The kernel for GPUs. No bit of a result depends on the tile, unless it is a gradient of a weight.
    fn tile_on_gpu(&self) -> Tile {
        let [m, _, _] = self.size();
        let is_large = m > 64 && m * self.columns() >= 2 * large();
        let [height, width, step] = match self.layout {
            ProductLayout::Nt if m <= 16 => [16, 32, 64],
            _ if is_large => [128, 64, 16],
            _ => [64, 32, 16],
        };
        let sizes = [("ROWS", height), ("COLUMNS", width), ("STEP", step)];
        Tile {
            kernel: TILES,
            height,
            width,
            wanted_groups: 128,
            constants: sizes.map(|(name, size)| (name, size as u32)).into(),
        }
    }

    /// `left` is the left factor, or a copy.
    fn launch(
        &self,
        tile: &Tile,
        left: &Binding,
        groups: usize,
        slice: usize,
        y: &Operand,
        y_slice: usize,
    ) {
        let [m, n, k] = self.size();
        let low = self.low.as_ref();
        let rank = low.map_or(0, |(_, up)| match self.layout {
            ProductLayout::Nt => up.cols,
            ProductLayout::Nn | ProductLayout::Tn => up.rows.len(),
        });
        let more = |i: usize, number: fn(&MoreColumns) -> usize| self.more.get(i).map_or(0, number);
        let seen_at = self.right.seen_at();
        let params = params! {
            m: u32 = m,
            n: u32 = n,
            k: u32 = k,
            rank: u32 = rank,
            left_step: u32 = self.left.step,
            right_step: u32 = self.right.step,
            up_step: u32 = low.map_or(0, |(_, up)| up.step as u32),
            y_step: u32 = y.step,
            left_at: u32 = self.left.at,
            right_at: u32 = self.right.at + seen_at,
            up_at: u32 = low.map_or(0, |(_, up)| up.at as u32),
            y_at: u32 = y.at,
            slice: u32 = slice,
            y_slice: u32 = y_slice,
            alpha: f32 = self.alpha,
            bias_at: u32 = self.bias.map_or(0, |(_, at)| at),
            has_bias: u32 = self.bias.is_some(),
            has_residual: u32 = self.residual.is_some(),
            n_1: u32 = more(0, |p| p.rows),
            right_at_1: u32 = more(0, |p| p.right_at) + seen_at,
            up_at_1: u32 = more(0, |p| p.up_at),
            bias_at_1: u32 = more(0, |p| p.bias_at),
            n_2: u32 = more(1, |p| p.rows),
            right_at_2: u32 = more(1, |p| p.right_at) + seen_at,
            up_at_2: u32 = more(1, |p| p.up_at),
            bias_at_2: u32 = more(1, |p| p.bias_at),
        };
        let mut constants = vec![
            ("LAYOUT", self.layout as u32),
            ("FORMAT", self.right.format as u32),
            ("WIDE", self.is_wide().into()),
            ("GATED", self.gated.into()),
        ];
        constants.extend(&tile.constants);
        // Absent terms are bound to the left factor and not read.
        let absent: &dyn Bind = &self.left.binding;
        let buffers = [
            left as &dyn Bind,
            &self.right.binding,
            &y.binding,
            low.map_or(absent, |(low, _)| *low),
            low.map_or(absent, |(_, up)| &up.binding),
            self.bias.map_or(absent, |(bias, _)| bias),
            self.residual.map_or(absent, |residual| residual),
        ];
        let groups =
            Groups::count(groups).work(2 * (m * self.columns()) as u64 * (k + rank) as u64);
        tile.kernel.launch(&constants, &buffers, &params, groups);
    }
}

/// The length of about `wanted` slices of k.
fn slice_length(k: usize, wanted: usize) -> usize {
    k.div_ceil(wanted).next_multiple_of(16).max(MIN_SLICE)
}
