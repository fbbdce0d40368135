//! Buffers, used again. There is one queue, so a buffer may be given out as soon as its last use is recorded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Gpu, GpuError};

/// Unused bytes that the pool keeps beyond what is in use.
const SPARE: u64 = 256 << 20;

#[derive(Default)]
pub(super) struct Pool {
    free: HashMap<u64, Vec<(wgpu::Buffer, u64)>>,
    free_bytes: u64,
    in_use: u64,
}

impl Pool {
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }
}

/// A buffer that goes back to the pool when the last tensor on it is gone.
pub(crate) struct Storage {
    gpu: Gpu,
    // None only while it is being dropped
    buffer: Option<wgpu::Buffer>,
    /// The submission that last knew this buffer.
    epoch: AtomicU64,
}

/// Sizes come in classes, so that tensors of nearly the same size share buffers: powers of two below 1 MiB, eighths
/// of a power of two above.
fn size_class(bytes: u64) -> u64 {
    let power = bytes.max(256).next_power_of_two();
    if power <= 1 << 20 {
        power
    } else {
        bytes.next_multiple_of(power / 16)
    }
}

#[track_caller]
pub(super) fn take(gpu: &Gpu, bytes: u64) -> Arc<Storage> {
    let size = size_class(bytes);
    let mut pool = gpu.0.pool.lock().expect("pool");
    pool.in_use += size;
    let reused = pool.free.get_mut(&size).and_then(Vec::pop);
    let (buffer, epoch) = match reused {
        Some(found) => {
            pool.free_bytes -= size;
            found
        }
        None => {
            if size > gpu.0.caps.max_buffer {
                // Reported when the results are read; the stand-in lets the caller go on until then.
                let text = format!(
                    "a buffer of {bytes} bytes, the adapter allows {}",
                    gpu.0.caps.max_buffer
                );
                let _ = gpu.0.failure.set(GpuError::OutOfMemory(text));
            }
            (create(gpu, size.min(gpu.0.caps.max_buffer)), 0)
        }
    };
    Arc::new(Storage {
        gpu: gpu.clone(),
        buffer: Some(buffer),
        epoch: AtomicU64::new(epoch),
    })
}

fn create(gpu: &Gpu, size: u64) -> wgpu::Buffer {
    use wgpu::BufferUsages as Usage;
    gpu.0.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("tensor"),
        size,
        usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
        mapped_at_creation: false,
    })
}

impl Storage {
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn size(&self) -> u64 {
        self.buffer().size()
    }

    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        self.buffer.as_ref().expect("a live buffer")
    }

    pub(super) fn mark_used(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub(super) fn used_since(&self, epoch: u64) -> bool {
        self.epoch.load(Ordering::Relaxed) >= epoch
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let buffer = self.buffer.take().expect("a live buffer");
        let size = buffer.size();
        let Ok(mut pool) = self.gpu.0.pool.lock() else {
            return;
        };
        pool.in_use -= size;
        pool.free_bytes += size;
        pool.free
            .entry(size)
            .or_default()
            .push((buffer, self.epoch.load(Ordering::Relaxed)));
        if pool.free_bytes > pool.in_use + SPARE {
            pool.free.clear();
            pool.free_bytes = 0;
        }
    }
}

/// A range of a buffer as a kernel sees it.
pub(crate) struct Binding {
    pub(super) storage: Arc<Storage>,
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Binding {
    /// `offset` and `size` in bytes; the offset a multiple of 256.
    pub(crate) fn new(storage: Arc<Storage>, offset: u64, size: u64) -> Binding {
        Binding {
            storage,
            offset,
            size,
        }
    }
}
