//! The one tensor type: f32 values on one device, contiguous, of any shape.

use std::ops::Range;
use std::sync::Arc;

use crate::gpu::{Binding, Gpu, GpuError, Storage};
use crate::tape::Node;

/// Values on the device. Cheap to clone: clones share the values, which no public method changes except where it
/// says so.
#[derive(Clone)]
pub struct Tensor {
    storage: Arc<Storage>,
    /// in bytes
    offset: u64,
    shape: Arc<[usize]>,
    pub(crate) node: Option<Arc<Node>>,
}

impl Tensor {
    /// Copies `values` to the device.
    ///
    /// # Panics
    /// If the shape does not hold that many values.
    #[track_caller]
    pub fn from_slice(gpu: &Gpu, values: &[f32], shape: &[usize]) -> Tensor {
        let wanted: usize = shape.iter().product();
        assert!(
            values.len() == wanted,
            "from_slice: {} values for the shape {shape:?} ({wanted})",
            values.len()
        );
        Tensor {
            storage: gpu.upload(values),
            offset: 0,
            shape: shape.into(),
            node: None,
        }
    }

    /// Every element zero.
    pub fn zeros(gpu: &Gpu, shape: &[usize]) -> Tensor {
        Tensor::full(gpu, shape, 0.0)
    }

    /// Every element `value`.
    pub fn full(gpu: &Gpu, shape: &[usize], value: f32) -> Tensor {
        let tensor = Tensor::empty(gpu, shape);
        gpu.fill(&tensor.storage, value.to_bits());
        tensor
    }

    /// Whatever the memory held: the kernel that gets this must write all of it.
    pub(crate) fn empty(gpu: &Gpu, shape: &[usize]) -> Tensor {
        let bytes = 4 * shape.iter().product::<usize>() as u64;
        Tensor {
            storage: gpu.alloc(bytes),
            offset: 0,
            shape: shape.into(),
            node: None,
        }
    }

    /// A range of a single axis, which begins at a multiple of 64. Not tracked.
    pub(crate) fn window(&self, range: Range<usize>) -> Tensor {
        let offset = self.offset + 4 * range.start as u64;
        Tensor::view(self.storage.clone(), offset, &[range.len()])
    }

    /// A window of a buffer, `offset` in bytes and a multiple of 256.
    pub(crate) fn view(storage: Arc<Storage>, offset: u64, shape: &[usize]) -> Tensor {
        Tensor {
            storage,
            offset,
            shape: shape.into(),
            node: None,
        }
    }

    /// The length of each axis.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of the last axis; 1 for a single number.
    pub fn cols(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// The product of all other axes.
    pub fn rows(&self) -> usize {
        self.shape.iter().rev().skip(1).product()
    }

    /// The device that holds it.
    pub fn gpu(&self) -> &Gpu {
        self.storage.gpu()
    }

    /// Waits for the values.
    ///
    /// # Errors
    /// What the device reported: lost, out of memory, or refused work.
    pub fn to_vec(&self) -> Result<Vec<f32>, GpuError> {
        let bytes = self
            .gpu()
            .read(&self.storage, self.offset, 4 * self.len() as u64)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    /// Overwrites the values, after all work recorded so far. Tensors that share them change too.
    ///
    /// # Panics
    /// If the number of values differs.
    #[track_caller]
    pub fn write(&self, values: &[f32]) {
        assert!(
            values.len() == self.len(),
            "write: {} values for the shape {:?}",
            values.len(),
            self.shape
        );
        self.gpu()
            .write(&self.storage, self.offset, bytemuck::cast_slice(values));
    }

    /// The same values under another shape.
    ///
    /// # Panics
    /// If the shape does not hold as many elements.
    #[track_caller]
    pub fn reshape(&self, shape: &[usize]) -> Tensor {
        let wanted: usize = shape.iter().product();
        assert!(
            self.len() == wanted,
            "reshape: {:?} has {} elements, {shape:?} has {wanted}",
            self.shape,
            self.len()
        );
        let before = self.shape.clone();
        let view = Tensor {
            shape: shape.into(),
            node: None,
            ..self.clone()
        };
        view.recorded("reshape", &[self], move |dy| {
            vec![Some(dy.reshape(&before))]
        })
    }

    /// The same values, cut off from the tape.
    pub fn detach(&self) -> Tensor {
        Tensor {
            node: None,
            ..self.clone()
        }
    }

    pub(crate) fn with_node(self, node: Arc<Node>) -> Tensor {
        Tensor {
            node: Some(node),
            ..self
        }
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding::new(
            self.storage.clone(),
            self.offset,
            4 * self.len().max(1) as u64,
        )
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Tensor{:?}{}",
            self.shape,
            if self.is_tracked() { " tracked" } else { "" }
        )
    }
}

/// Whole numbers on the device: token ids, positions, row numbers.
#[derive(Clone)]
pub struct Indices {
    storage: Arc<Storage>,
    /// in bytes
    offset: u64,
    len: usize,
    host: Option<Arc<[u32]>>,
}

impl Indices {
    /// Copies them to the device and keeps a copy here: gradients of gathers are planned on the host.
    pub fn new(gpu: &Gpu, values: &[u32]) -> Indices {
        Indices {
            storage: gpu.upload(values),
            offset: 0,
            len: values.len(),
            host: Some(values.into()),
        }
    }

    /// To be written by a kernel.
    pub(crate) fn empty(gpu: &Gpu, len: usize) -> Indices {
        Indices {
            storage: gpu.alloc(4 * len as u64),
            offset: 0,
            len,
            host: None,
        }
    }

    /// A range of them, which begins at a multiple of 64.
    pub(crate) fn window(&self, range: Range<usize>) -> Indices {
        Indices {
            storage: self.storage.clone(),
            offset: self.offset + 4 * range.start as u64,
            len: range.len(),
            host: self.host.as_ref().map(|host| host[range].into()),
        }
    }

    /// A range of them that a kernel is to fill with floats; it begins at a multiple of 64.
    pub(crate) fn floats(&self, range: Range<usize>) -> Tensor {
        let offset = self.offset + 4 * range.start as u64;
        Tensor::view(self.storage.clone(), offset, &[range.len()])
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds them.
    pub fn gpu(&self) -> &Gpu {
        self.storage.gpu()
    }

    /// The values, if they came from the host.
    pub fn host(&self) -> Option<&[u32]> {
        self.host.as_deref()
    }

    /// Waits for the values.
    ///
    /// # Errors
    /// What the device reported.
    pub fn to_vec(&self) -> Result<Vec<u32>, GpuError> {
        if let Some(host) = &self.host {
            return Ok(host.to_vec());
        }
        let bytes = self
            .storage
            .gpu()
            .read(&self.storage, self.offset, 4 * self.len as u64)?;
        Ok(bytemuck::pod_collect_to_vec(&bytes))
    }

    pub(crate) fn binding(&self) -> Binding {
        Binding::new(
            self.storage.clone(),
            self.offset,
            4 * self.len.max(1) as u64,
        )
    }
}
