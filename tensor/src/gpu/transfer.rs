//! Copies of values between the host and the device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::kernel::{Groups, Kernel, params};
use super::{Binding, Gpu, GpuError, pool, recorder, wait};

/// Bytes of uploads that may wait in host memory.
const MAX_PENDING_UPLOAD: u64 = 64 << 20;

impl Binding {
    /// Overwrites the bytes from `at` on, after all work recorded so far.
    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        let (gpu, storage) = (self.gpu(), &self.storage);
        if bytes.is_empty() || gpu.has_failed() {
            return;
        }
        // A write through the queue happens before the next submission, so before the work that is recorded and not
        // submitted. If that work may use this buffer, it is submitted first.
        let mut recorder = gpu.0.recorder.lock().expect("recorder");
        if storage.used_since(recorder.epoch()) {
            recorder.submit();
        }
        storage.mark_used(recorder.epoch());
        drop(recorder);
        let offset = self.offset + at;
        match &storage.memory {
            pool::Memory::Buffer(buffer) => gpu.0.queue.write_buffer(buffer, offset, bytes),
            pool::Memory::Texture(texture, _) => self.write_texels(texture, offset, bytes),
        }
        // Uploads wait in host memory for the next submission. Loading a model writes gigabytes without one.
        let pending_upload = &gpu.0.pending_upload;
        if pending_upload.fetch_add(bytes.len() as u64, Ordering::Relaxed) > MAX_PENDING_UPLOAD {
            pending_upload.store(0, Ordering::Relaxed);
            gpu.0.queue.submit([]);
            gpu.wait();
        }
    }

    /// Writes the rest of the first row, whole rows, and the start of the last row.
    fn write_texels(&self, texture: &wgpu::Texture, at: u64, bytes: &[u8]) {
        let row = pool::TEXTURE_ROW as usize;
        let first = bytes.len().min((row - at as usize % row) % row);
        let whole = (bytes.len() - first) / row * row;
        let mut at = at;
        let (first, rest) = bytes.split_at(first);
        let (whole, last) = rest.split_at(whole);
        let parts = [(first, 1), (whole, whole.len() / row), (last, 1)];
        for (part, height) in parts.into_iter().filter(|(part, _)| !part.is_empty()) {
            let size = wgpu::Extent3d {
                width: (part.len() / height / 16) as u32,
                height: height as u32,
                depth_or_array_layers: 1,
            };
            let to = recorder::in_texture(texture, at);
            let layout = recorder::texel_layout(0);
            self.gpu().0.queue.write_texture(to, part, layout, size);
            at += part.len() as u64;
        }
    }

    /// A copy in a texture.
    pub(crate) fn in_texture(&self) -> Binding {
        let gpu = self.gpu();
        let to = gpu.alloc_texture(self.size);
        let mut recorder = gpu.0.recorder.lock().expect("recorder");
        if !gpu.has_failed() {
            recorder.copy(self, &to.storage.memory, 0);
        }
        for storage in [&self.storage, &to.storage] {
            storage.mark_used(recorder.epoch());
        }
        to
    }

    /// Waits for the values and copies them to the host.
    pub(crate) fn read<T: bytemuck::Pod>(&self) -> Result<Vec<T>, GpuError> {
        Ok(Binding::read_all(&[self])?.remove(0))
    }

    /// The device of all of them.
    #[track_caller]
    pub(super) fn gpu_of<'a>(all: &[&'a Binding]) -> &'a Gpu {
        let gpu = all[0].gpu();
        let is_there = |binding: &&Binding| Arc::ptr_eq(&binding.gpu().0, &gpu.0);
        assert!(
            all.iter().all(is_there),
            "the tensors are on several devices"
        );
        gpu
    }

    /// Does so for several bindings of one device, which waits only once.
    #[track_caller]
    pub(crate) fn read_all<T: bytemuck::Pod>(all: &[&Binding]) -> Result<Vec<Vec<T>>, GpuError> {
        let size: u64 = all.iter().map(|binding| binding.room()).sum();
        if size == 0 {
            return Ok(vec![Vec::new(); all.len()]);
        }
        let gpu = Binding::gpu_of(all);
        gpu.take_failure()?;
        if !all.iter().all(|binding| binding.storage.is_there) {
            let text = "this tensor was made after a failure and never computed".to_owned();
            return Err(GpuError::Failed(text));
        }
        let staging = gpu.0.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("read back"),
            size,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        // If the staging buffer failed, recording the copy would invalidate the work recorded before it.
        gpu.take_failure()?;
        let mut recorder = gpu.0.recorder.lock().expect("recorder");
        let mut at = 0;
        let to = pool::Memory::Buffer(staging.clone());
        for binding in all.iter().filter(|binding| binding.size > 0) {
            recorder.copy(binding, &to, at);
            at += binding.room();
        }
        recorder.submit();
        drop(recorder);
        wait::map(gpu, &staging)?;
        let view = staging.get_mapped_range(..);
        let view = view.map_err(|e| GpuError::Failed(e.to_string()))?;
        let mut rest = &view[..];
        let values = all.iter().map(|binding| {
            let (own, after) = rest.split_at(binding.room() as usize);
            rest = after;
            bytemuck::pod_collect_to_vec(&own[..binding.size as usize])
        });
        let values = values.collect();
        drop(view);
        // A browser would keep its memory until the next garbage collection.
        staging.destroy();
        Ok(values)
    }

    /// Sets every word of the whole buffer.
    pub(crate) fn fill(&self, bits: u32) {
        const FILL: Kernel = Kernel::new("fill", "fill");
        // One launch per binding.
        let most = (self.gpu().caps().max_binding / 1024 * 1024).max(1024);
        let end = self.storage.buffer().size();
        for offset in (0..end).step_by(most as usize) {
            let (storage, size) = (self.storage.clone(), most.min(end - offset));
            let part = Binding {
                storage,
                offset,
                size,
            };
            let params = params! { count: u32 = size / 4, bits: u32 = bits };
            let groups = Groups::of(size.div_ceil(16) as usize, 64);
            FILL.launch(&[], &[&part], &params, groups);
        }
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Binding({} bytes)", self.size)
    }
}
