//! The launch of a product: its operands, the added terms, and the choice of the kernel.

use crate::gpu::{Bind, Binding, Groups, Kernel};
use crate::ops::weight::{MatrixPiece, WeightFormat};
use crate::{Gpu, Tensor};

const LANES: Kernel = Kernel::new("matmul_lanes", "product");
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

/// The kernels for products. Their results are equal up to rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MatmulKernel {
    /// For a processor: eight threads exchange values.
    Lanes,
    /// For a GPU: tiles in workgroup memory.
    Tiles,
}

impl MatmulKernel {
    fn for_device(gpu: &Gpu) -> MatmulKernel {
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

    /// Rows and columns of the tile of a workgroup.
    fn tile(self, product: &Product<'_>) -> (usize, usize) {
        match self {
            MatmulKernel::Lanes => (product.height_in_lanes(), 32),
            MatmulKernel::Tiles => (64, 64),
        }
    }

    /// Workgroups needed to use the whole device. With fewer, a long sum is split into slices.
    fn wanted_groups(self) -> usize {
        match self {
            MatmulKernel::Lanes => 2,
            MatmulKernel::Tiles => 128,
        }
    }
}

/// The shortest slice of k. A multiple of 16, the step of the tiles.
const MIN_SLICE: usize = 256;

/// Elements of a matrix above which tiles of another height are worth the second that their compilation takes.
pub(super) const LARGE: usize = 1 << 18;

fn large() -> usize {
    #[cfg(test)]
    if let Some(forced) = super::tests::FORCED_LARGE.get() {
        return forced;
    }
    LARGE
}

/// A matrix in a buffer. `at` is the offset of its first element, `step` the distance of two rows, in elements.
pub(crate) struct Operand {
    pub(crate) binding: Binding,
    pub(crate) at: usize,
    pub(crate) step: usize,
}

impl Operand {
    /// The whole tensor.
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

/// One launch: y (m, n) = alpha left right + low up + bias + residual. The bias has an element for each stored column of
/// y and is read from `y.at`; the residual is stored like y.
pub(crate) struct Product<'a> {
    pub(crate) layout: ProductLayout,
    /// m, n and k
    pub(crate) size: [usize; 3],
    pub(crate) left: Operand,
    pub(crate) right: Operand,
    pub(crate) format: WeightFormat,
    pub(crate) alpha: f32,
    /// low (m, r), and up with the layout of `right`
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

impl<'a> Product<'a> {
    /// left right, with no other terms.
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

    /// Whether the low-rank term can be part of the launch: its rows must be multiples of four.
    pub(crate) fn fits(low: &Tensor, up: &Operand) -> bool {
        low.cols().is_multiple_of(4) && up.is_wide()
    }

    pub(crate) fn launch(self, gpu: &Gpu) {
        let kernel = MatmulKernel::for_device(gpu);
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
        let params = [m, n, y.step, y.at, slices].map(|number| number as u32);
        ADD_SLICES.launch(&[], &[&parts, &y.binding], &params, Groups::of(m * n, 64));
    }

    /// Whether left and right can be read as vectors of four. A sum along the rows of left must not read beyond a row.
    fn is_wide(&self) -> bool {
        let ends_with_rows = self.layout == ProductLayout::Tn || self.size[2].is_multiple_of(4);
        self.left.is_wide() && self.right.is_wide() && ends_with_rows
    }

    /// Whether y can be written as vectors of four.
    fn has_wide_y(&self) -> bool {
        self.y.is_wide() && self.size[1].is_multiple_of(4)
    }

    /// Rows of a tile of the kernel for processors. Higher tiles need fewer loads per element, but load surplus rows too:
    /// with 16 rows in a tile of 64, three of five loads would be useless. Gradients of weights have few rows. Lengths that
    /// are not multiples of four are rare and use one height, to compile fewer kernels.
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
        // Absent terms are bound to `left` and not read.
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

/// The length of about `wanted` slices of k.
fn slice_length(k: usize, wanted: usize) -> usize {
    k.div_ceil(wanted).next_multiple_of(16).max(MIN_SLICE)
}
