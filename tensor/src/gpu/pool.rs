//! The pool of reusable buffers and textures. There is one queue, so they can be reused as soon as their last use is recorded.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Gpu, GpuError};

/// Bytes that the pool may hold beyond 9/8 of the largest use so far.
const SPARE: u64 = 256 << 20;

/// The pool keeps as much as was ever in use at once: the device had room for it, and the next training step needs it
/// again. The sizes differ a little from batch to batch, so it keeps an eighth and a constant more. Beyond that it drops
/// the buffers that were unused longest.
#[derive(Default)]
pub(super) struct Pool {
    /// with the last submission that used each; what was unused longest is first
    free: Vec<(Memory, u64)>,
    free_bytes: u64,
    pub(super) in_use: u64,
    /// the largest `in_use` since the device was opened
    needed: u64,
    /// the largest `held()` since the last reset
    pub(super) peak: u64,
    /// the largest `in_use` since the last reset
    pub(super) peak_in_use: u64,
}

impl Pool {
    /// Bytes in use and free.
    pub(super) fn held(&self) -> u64 {
        self.in_use + self.free_bytes
    }

    pub(super) fn reset_peak(&mut self) {
        self.peak = self.held();
        self.peak_in_use = self.in_use;
    }

    /// Takes the free memory of this kind and size that was used last, since a cache may still hold some of it.
    fn reuse(&mut self, is_texture: bool, size: u64) -> Option<(Memory, u64)> {
        let fits = |free: &Memory| free.is_texture() == is_texture && free.size() == size;
        let at = self.free.iter().rposition(|(free, _)| fits(free))?;
        self.free_bytes -= size;
        Some(self.free.remove(at))
    }

    fn give_back(&mut self, memory: Memory, epoch: u64) {
        self.in_use -= memory.size();
        self.free_bytes += memory.size();
        self.free.push((memory, epoch));
        self.trim();
    }

    /// Drops the buffers that were unused longest until the limit is kept.
    fn trim(&mut self) {
        while self.free_bytes > 0 && self.held() > self.needed + self.needed / 8 + SPARE {
            self.free_bytes -= self.free.remove(0).0.size();
        }
    }

    pub(super) fn drop_free(&mut self) {
        self.free.clear();
        self.free_bytes = 0;
    }
}

/// Memory that returns to the pool when its last tensor is dropped.
pub(super) struct Storage {
    gpu: Gpu,
    pub(super) memory: Memory,
    /// the last submission that used it
    epoch: AtomicU64,
    /// false if there was no memory for it, or an earlier failure prevents its computation
    pub(super) is_there: bool,
}

#[derive(Clone)]
pub(super) enum Memory {
    Buffer(wgpu::Buffer),
    /// Rows of [`TEXTURE_ROW`] bytes
    Texture(wgpu::Texture, wgpu::TextureView),
}

/// Texels of four words in a row of a texture, as in weight_texture.wgsl.
const TEXELS: u32 = 512;
/// Bytes of a row of a texture.
pub(super) const TEXTURE_ROW: u64 = 16 * TEXELS as u64;

/// Rounds a size up, so that tensors of nearly the same size share buffers: to powers of two below 1 MiB, to eighths of a
/// power of two above.
fn size_class(bytes: u64) -> u64 {
    let power = bytes.max(256).next_power_of_two();
    if power <= 1 << 20 {
        power
    } else {
        bytes.next_multiple_of(power / 16)
    }
}

/// A buffer, or a texture of at least `bytes`.
#[track_caller]
pub(super) fn take(gpu: &Gpu, is_texture: bool, bytes: u64) -> Binding {
    let caps = &gpu.0.caps;
    let wanted = match is_texture {
        true => size_class(bytes).next_multiple_of(TEXTURE_ROW),
        false => size_class(bytes),
    };
    if wanted > caps.max_buffer {
        // The error is returned when the results are read. Until then the caller works with a smaller buffer.
        let text = format!(
            "a buffer of {bytes} bytes, the device allows {}",
            caps.max_buffer
        );
        gpu.0.failure.set(GpuError::OutOfMemory(text));
    }
    let size = wanted.min(caps.max_buffer);
    let mut pool = gpu.0.pool.lock().expect("pool");
    let reused = pool.reuse(is_texture, size);
    pool.in_use += size;
    pool.needed = pool.needed.max(pool.in_use);
    pool.peak_in_use = pool.peak_in_use.max(pool.in_use);
    let (memory, epoch) = match reused {
        Some(found) => found,
        None => {
            pool.trim();
            if caps.memory.is_some_and(|memory| pool.held() > memory) {
                // The device frees memory only when the work that uses it has finished.
                pool.drop_free();
                gpu.submit();
                gpu.wait();
            }
            pool.peak = pool.peak.max(pool.held());
            let new = if is_texture {
                Memory::texture
            } else {
                Memory::buffer
            };
            (new(&gpu.0.device, size), 0)
        }
    };
    drop(pool);
    let storage = Storage {
        gpu: gpu.clone(),
        memory,
        epoch: AtomicU64::new(epoch),
        // An allocation failure is known by now, and after any failure nothing is computed.
        is_there: !gpu.has_failed(),
    };
    Binding {
        storage: Arc::new(storage),
        offset: 0,
        size: bytes,
    }
}

impl Memory {
    fn buffer(device: &wgpu::Device, size: u64) -> Memory {
        use wgpu::BufferUsages as Usage;
        Memory::Buffer(device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tensor"),
            size,
            usage: Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST,
            mapped_at_creation: false,
        }))
    }

    fn texture(device: &wgpu::Device, size: u64) -> Memory {
        use wgpu::TextureUsages as Usage;
        let texture = device.create_texture(&wgpu::TextureDescriptor {
            label: Some("matrix"),
            size: wgpu::Extent3d {
                width: TEXELS,
                height: (size / TEXTURE_ROW) as u32,
                depth_or_array_layers: 1,
            },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba32Uint,
            usage: Usage::STORAGE_BINDING | Usage::COPY_SRC | Usage::COPY_DST,
            view_formats: &[],
        });
        let view = texture.create_view(&Default::default());
        Memory::Texture(texture, view)
    }

    fn is_texture(&self) -> bool {
        matches!(self, Memory::Texture(..))
    }

    fn size(&self) -> u64 {
        match self {
            Memory::Buffer(buffer) => buffer.size(),
            Memory::Texture(texture, _) => u64::from(texture.height()) * TEXTURE_ROW,
        }
    }
}

impl Storage {
    /// # Panics
    /// If it is a texture.
    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        match &self.memory {
            Memory::Buffer(buffer) => buffer,
            Memory::Texture(..) => panic!("a texture where a kernel reads a buffer"),
        }
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
        if let Ok(mut pool) = self.gpu.0.pool.lock() {
            match self.is_there {
                true => pool.give_back(self.memory.clone(), self.epoch.load(Ordering::Relaxed)),
                false => pool.in_use -= self.memory.size(),
            }
        }
    }
}

/// A value that a kernel can bind: a tensor, indices, or a range of a buffer.
pub(crate) trait Bind {
    fn binding(&self) -> &Binding;
}

/// A range of a buffer or texture, in bytes.
#[derive(Clone)]
pub(crate) struct Binding {
    pub(super) storage: Arc<Storage>,
    /// a multiple of 256, of a texture of [`TEXTURE_ROW`]
    pub(super) offset: u64,
    pub(super) size: u64,
}

impl Bind for Binding {
    fn binding(&self) -> &Binding {
        self
    }
}

impl Binding {
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.storage.gpu
    }

    /// A range of its words of four bytes. It must start at a multiple of 64.
    pub(crate) fn window(&self, words: Range<usize>) -> Binding {
        Binding {
            storage: self.storage.clone(),
            offset: self.offset + 4 * words.start as u64,
            size: 4 * words.len() as u64,
        }
    }

    /// The smallest range that contains all of these, and the offset of each in it in words; `None` if they are not of one
    /// buffer or too far apart for a binding.
    pub(crate) fn union(all: &[&Binding]) -> Option<(Binding, Vec<usize>)> {
        let first = all.first()?;
        let is_shared = |other: &&Binding| Arc::ptr_eq(&other.storage, &first.storage);
        let offset = all.iter().map(|one| one.offset).min()?;
        let end = all.iter().map(|one| one.offset + one.size).max()?;
        let offsets = all.iter().map(|one| ((one.offset - offset) / 4) as usize);
        let union = Binding {
            storage: first.storage.clone(),
            offset,
            size: end - offset,
        };
        let fits = union.size <= first.most();
        (fits && all.iter().all(is_shared)).then(|| (union, offsets.collect()))
    }

    /// Copies of these, one after the other in one buffer or texture; `None` if they do not fit into a binding.
    pub(crate) fn together(all: &[&Binding]) -> Option<Vec<Binding>> {
        let first = all.first()?;
        let gpu = first.gpu();
        let unit = if first.is_texture() { TEXTURE_ROW } else { 256 };
        let room = |one: &&Binding| one.size.next_multiple_of(unit);
        let size = all.iter().map(room).sum();
        if size > first.most() {
            return None;
        }
        let storage = match first.is_texture() {
            true => gpu.alloc_texture(size).storage,
            false => gpu.alloc(size).storage,
        };
        let mut offset = 0;
        let mut recorder = gpu.0.recorder.lock().expect("recorder");
        let copy = |one: &&Binding| {
            let to = Binding {
                storage: storage.clone(),
                offset,
                size: one.size,
            };
            offset += room(one);
            if !gpu.has_failed() {
                recorder.copy(one, &to.storage.memory, to.offset);
            }
            for storage in [&one.storage, &to.storage] {
                storage.mark_used(recorder.epoch());
            }
            to
        };
        Some(all.iter().map(copy).collect())
    }

    pub(crate) fn is_texture(&self) -> bool {
        self.storage.memory.is_texture()
    }

    /// The largest binding of its kind, in bytes.
    fn most(&self) -> u64 {
        let gpu = self.gpu();
        let texture = gpu.max_texture().filter(|_| self.is_texture());
        texture.unwrap_or(gpu.caps().max_binding)
    }

    /// The place of its first byte in what a kernel sees, which is all of a texture.
    pub(crate) fn seen_at(&self) -> u64 {
        if self.is_texture() { self.offset } else { 0 }
    }

    /// What a kernel sees. Buffers are padded, so that kernels can read them as vectors of four.
    pub(super) fn resource(&self) -> wgpu::BindingResource<'_> {
        match &self.storage.memory {
            Memory::Texture(_, view) => wgpu::BindingResource::TextureView(view),
            Memory::Buffer(buffer) => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset: self.offset,
                size: wgpu::BufferSize::new(self.size.max(1).next_multiple_of(16)),
            }),
        }
    }

    /// The bytes that a copy to the host takes: whole rows of a texture.
    pub(super) fn room(&self) -> u64 {
        match self.is_texture() {
            true => self.size.next_multiple_of(TEXTURE_ROW),
            false => self.size,
        }
    }
}

#[cfg(test)]
mod tests;
