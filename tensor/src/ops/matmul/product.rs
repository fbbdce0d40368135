//! One launch of a product: its operands, what is added to it, and which kernel runs.

use crate::gpu::{Bind, Binding, Groups, Kernel};
use crate::ops::weight::{MatrixPiece, WeightFormat};
use crate::{Gpu, Tensor};

const LANES: Kernel = Kernel::new("matmul_lanes", "product");
const TILES: Kernel = Kernel::new("matmul_tiles", "product");
const ADD_SLICES: Kernel = Kernel::new("matmul_slices", "add");

/// How the factors are stored; the numbering is that of `LAYOUT` in the shaders.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProductLayout {
    /// left (m, k), right (n, k)
    Nt,
    /// left (m, k), right (k, n)
    Nn,
    /// left (k, m), right (k, n)
    Tn,
}

/// The kernels for products. They give the same numbers up to rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MatmulKernel {
    /// For a processor: eight threads hand values to each other.
    Lanes,
    /// For a GPU: tiles in workgroup memory.
    Tiles,
}

impl MatmulKernel {
    fn of(gpu: &Gpu) -> MatmulKernel {
        #[cfg(test)]
        if let Some(forced) = super::tests::FORCED.get() {
            return forced;
        }
        match gpu.is_software() {
            true => MatmulKernel::Lanes,
            false => MatmulKernel::Tiles,
        }
    }

    fn kernel(self) -> &'static Kernel {
        match self {
            MatmulKernel::Lanes => &LANES,
            MatmulKernel::Tiles => &TILES,
        }
    }

    /// Rows and columns that a workgroup computes.
    fn tile(self, product: &Product<'_>) -> (usize, usize) {
        match self {
            MatmulKernel::Lanes => (product.height_in_lanes(), 32),
            MatmulKernel::Tiles => (64, 64),
        }
    }

    /// Workgroups below which a long sum is cut into slices to keep all of the device at work.
    fn wanted_groups(self) -> usize {
        match self {
            MatmulKernel::Lanes => 2,
            MatmulKernel::Tiles => 128,
        }
    }
}

/// Numbers of k below which a sum is not cut. A multiple of 16, the step of the tiles.
const SHORTEST_SLICE: usize = 256;

/// Numbers of a matrix for which tiles of another height are worth a kernel more to compile: a second or so.
pub(super) const LARGE: usize = 1 << 18;

fn large() -> usize {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED_LARGE.get() {
        return forced;
    }
    LARGE
}

/// A matrix in a buffer: numbers before the first one used and from one stored row to the next.
pub(crate) struct Operand {
    pub(crate) binding: Binding,
    pub(crate) at: usize,
    pub(crate) step: usize,
}

impl Operand {
    /// All of a tensor.
    pub(crate) fn of(x: &Tensor) -> Operand {
        Operand {
            binding: x.binding(),
            at: 0,
            step: x.cols(),
        }
    }

    fn is_wide(&self) -> bool {
        self.at.is_multiple_of(4) && self.step.is_multiple_of(4)
    }
}

impl From<MatrixPiece> for Operand {
    fn from(piece: MatrixPiece) -> Operand {
        Operand {
            binding: piece.binding,
            at: piece.at,
            step: piece.step,
        }
    }
}

/// One launch: y (m, n) = alpha left right + low up + bias + residual. The bias is that of all of y's columns and is
/// read from `y.at` on; the residual lies as y does.
pub(crate) struct Product<'a> {
    pub(crate) layout: ProductLayout,
    /// m, n and k
    pub(crate) size: [usize; 3],
    pub(crate) left: Operand,
    pub(crate) right: Operand,
    pub(crate) format: WeightFormat,
    pub(crate) alpha: f32,
    /// low (m, r) and up, which has the layout of `right`
    pub(crate) low: Option<(&'a Tensor, Operand)>,
    pub(crate) bias: Option<&'a Tensor>,
    pub(crate) residual: Option<&'a Tensor>,
    pub(crate) y: Operand,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    m: u32,
    n: u32,
    k: u32,
    rank: u32,
    left_step: u32,
    right_step: u32,
    up_step: u32,
    y_step: u32,
    left_at: u32,
    right_at: u32,
    up_at: u32,
    y_at: u32,
    slice: u32,
    y_slice: u32,
    alpha: f32,
}

#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct SliceParams {
    m: u32,
    n: u32,
    y_step: u32,
    y_at: u32,
    slices: u32,
}

impl<'a> Product<'a> {
    /// left right, nothing added.
    pub(crate) fn new(
        layout: ProductLayout,
        size: [usize; 3],
        left: Operand,
        right: Operand,
        y: Operand,
    ) -> Product<'a> {
        Product {
            layout,
            size,
            left,
            right,
            format: WeightFormat::F32,
            alpha: 1.0,
            low: None,
            bias: None,
            residual: None,
            y,
        }
    }

    /// Whether the low-rank term can be part of the launch: its kernels know only rows of whole fours.
    pub(crate) fn fits(low: &Tensor, up: &Operand) -> bool {
        low.cols().is_multiple_of(4) && up.is_wide()
    }

    pub(crate) fn launch(self, gpu: &Gpu) {
        let kernel = MatmulKernel::of(gpu);
        let [m, n, k] = self.size;
        let (height, width) = kernel.tile(&self);
        let tiles = m.div_ceil(height) * n.div_ceil(width);
        let slice = match self.layout {
            ProductLayout::Tn => slice_length(k, kernel.wanted_groups().div_ceil(tiles.max(1))),
            ProductLayout::Nt | ProductLayout::Nn => k.max(1),
        };
        let slices = k.div_ceil(slice);
        if slices <= 1 {
            return self.run(kernel, tiles, slice, 0);
        }
        let parts = Tensor::empty(gpu, &[slices, m, n]);
        let y = self.y;
        let in_parts = Product {
            y: Operand {
                binding: parts.binding(),
                at: 0,
                step: n,
            },
            ..self
        };
        in_parts.run(kernel, tiles * slices, slice, m * n);
        let params = SliceParams {
            m: m as u32,
            n: n as u32,
            y_step: y.step as u32,
            y_at: y.at as u32,
            slices: slices as u32,
        };
        ADD_SLICES.launch(&[], &[&parts, &y.binding], &params, Groups::of(m * n, 64));
    }

    /// Whether left and right can be read in fours. A sum along the rows of left must end with them: what follows may
    /// belong to something else.
    fn is_wide(&self) -> bool {
        let ends_with_rows = self.layout == ProductLayout::Tn || self.size[2].is_multiple_of(4);
        self.left.is_wide() && self.right.is_wide() && ends_with_rows
    }

    /// Whether y can be written in fours.
    fn has_wide_y(&self) -> bool {
        self.y.is_wide() && self.size[1].is_multiple_of(4)
    }

    /// Rows of a tile of the kernel for processors. 64 where the rows are tokens: fewer loads for each number, but weight
    /// gradients have few rows. Lengths that are no multiples of four are rare and keep the small kernel, which compiles
    /// faster. Rows that only the tile has are loaded like the others: with 16 rows in a tile of 64, three loads of five
    /// would be for nothing.
    fn height_in_lanes(&self) -> usize {
        let [m, n, k] = self.size;
        match (self.layout, self.is_wide() && self.has_wide_y()) {
            (ProductLayout::Tn, _) | (_, false) => 32,
            _ if n * k < large() || m > 32 => 64,
            _ if m > 16 => 32,
            _ => 16,
        }
    }

    fn run(self, kernel: MatmulKernel, groups: usize, slice: usize, y_slice: usize) {
        let [m, n, k] = self.size;
        let low = self.low.as_ref();
        let params = Params {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            rank: low.map_or(0, |(low, _)| low.cols() as u32),
            left_step: self.left.step as u32,
            right_step: self.right.step as u32,
            up_step: low.map_or(0, |(_, up)| up.step as u32),
            y_step: self.y.step as u32,
            left_at: self.left.at as u32,
            right_at: self.right.at as u32,
            up_at: low.map_or(0, |(_, up)| up.at as u32),
            y_at: self.y.at as u32,
            slice: slice as u32,
            y_slice: y_slice as u32,
            alpha: self.alpha,
        };
        let rank = params.rank as usize;
        let groups = Groups::count(groups).work(2 * m * n * (k + rank));
        let (wide, wide_y) = (self.is_wide(), self.has_wide_y());
        let mut constants = vec![
            ("LAYOUT", self.layout as u32),
            ("FORMAT", self.format as u32),
            ("WIDE", wide.into()),
            ("Y_WIDE", wide_y.into()),
            ("HAS_LOW", low.is_some().into()),
            ("HAS_BIAS", self.bias.is_some().into()),
            ("HAS_RESIDUAL", self.residual.is_some().into()),
        ];
        if kernel == MatmulKernel::Lanes {
            constants.push(("HEIGHT", kernel.tile(&self).0 as u32));
        }
        // Absent terms are bound to something that is there anyway.
        let left: &dyn Bind = &self.left.binding;
        let buffers = [
            left,
            &self.right.binding,
            &self.y.binding,
            low.map_or(left, |(low, _)| *low),
            low.map_or(left, |(_, up)| &up.binding),
            self.bias.map_or(left, |bias| bias),
            self.residual.map_or(left, |residual| residual),
        ];
        kernel
            .kernel()
            .launch(&constants, &buffers, &params, groups);
    }
}

/// How much of k one of about `wanted` slices sums.
fn slice_length(k: usize, wanted: usize) -> usize {
    k.div_ceil(wanted).next_multiple_of(16).max(SHORTEST_SLICE)
}
