//! Integers on the device.

use std::ops::Range;
use std::sync::Arc;

use crate::Tensor;
use crate::gpu::{Bind, Binding, Gpu, GpuError};

/// A list of integers on the device, such as token ids, positions or row numbers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Indices {
    values: Binding,
    len: usize,
    host: Option<Arc<[u32]>>,
}

impl Indices {
    /// Copies the values to the device, and keeps a copy on the host, which gradients of gathered rows need.
    pub fn new(gpu: &Gpu, values: &[u32]) -> Indices {
        Indices {
            values: gpu.upload(values),
            len: values.len(),
            host: Some(values.into()),
        }
    }

    /// Uninitialised: a kernel must write them.
    pub(crate) fn empty(gpu: &Gpu, len: usize) -> Indices {
        Indices {
            values: gpu.alloc(4 * len as u64),
            len,
            host: None,
        }
    }

    /// A range of the values. It must start at a multiple of 64.
    pub(crate) fn window(&self, range: Range<usize>) -> Indices {
        Indices {
            values: self.values.window(range.clone()),
            len: range.len(),
            host: self.host.as_ref().map(|host| host[range].into()),
        }
    }

    /// A range of the same memory as floats, for a kernel to write. It must start at a multiple of 64.
    pub(crate) fn floats(&self, range: Range<usize>) -> Tensor {
        Tensor::view(self.values.window(range.clone()), &[range.len()])
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device that holds the values.
    pub fn gpu(&self) -> &Gpu {
        self.values.gpu()
    }

    /// The values, if they are known on the host.
    pub(crate) fn host(&self) -> Option<&[u32]> {
        self.host.as_deref()
    }

    /// Panics if a value that is known on the host is not below `count`.
    #[track_caller]
    pub(crate) fn check_below(&self, count: usize, op: &str, what: &str) {
        let mut values = self.host().unwrap_or_default().iter();
        if let Some(value) = values.find(|value| **value as usize >= count) {
            panic!("{op}: {what} {value} of {count}");
        }
    }

    /// Waits for the values and copies them to the host.
    ///
    /// # Errors
    /// An error of the device.
    pub fn to_vec(&self) -> Result<Vec<u32>, GpuError> {
        match &self.host {
            Some(host) => Ok(host.to_vec()),
            None => self.values.read(),
        }
    }
}

impl Bind for Indices {
    fn binding(&self) -> &Binding {
        &self.values
    }
}
