//! Recording of dispatches: one encoder and one compute pass with many dispatches, submitted in short batches.
//!
//! A desktop resets a GPU whose submission takes too long: Windows after two seconds, Linux after a few. So a submission
//! holds no more work than the device is estimated to do in [`SUBMISSION_TIME`], and a longer dispatch is split into
//! parts of its workgroups, each a submission. Workgroups are independent, so no bit depends on the split.

use web_time::{Duration, Instant};

use super::caps::{MAX_GROUPS, MAX_PARAMS};
use super::pool::{Memory, TEXTURE_ROW};
use super::{Binding, Counts, Groups};

/// Distance of the parameters of two dispatches in the parameter buffer: the alignment that every device accepts.
const SLOT: usize = 256;

/// Dispatches in a submission. The device works on one while the next is recorded.
const BATCH: usize = 64;

/// The longest time of a submission: an eighth of the limit of Windows, since the work is an estimate.
const SUBMISSION_TIME: Duration = Duration::from_millis(250);

/// Bounds for the operations (see [`super::kernel::Groups::work`]) of a submission. Any GPU does the least in a fraction
/// of [`SUBMISSION_TIME`]. A GPU with 16 billion operations a second does the most in two seconds, and a fast one in a few
/// milliseconds, so that longer submissions would not be more efficient.
const LEAST_WORK: u64 = 1 << 30;
const MOST_WORK: u64 = 32 << 30;

/// The limit before the first measurement.
const FIRST_WORK: u64 = 4 << 30;

pub(super) struct Recorder {
    device: wgpu::Device,
    queue: wgpu::Queue,
    // The pass must be dropped before the encoder.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    /// in the submission that is being recorded
    dispatches: usize,
    pub(super) counts: Counts,
    /// operations recorded and not yet submitted
    work: u64,
    limit: WorkLimit,
    uniform: Option<UniformParams>,
}

/// The parameters of a batch on a device without immediates. They are written when the batch is submitted. A write happens
/// after all earlier submissions, so the next batch can use the same buffer.
struct UniformParams {
    buffer: wgpu::Buffer,
    /// a slot for each dispatch recorded
    slots: Vec<u8>,
}

impl UniformParams {
    fn new(device: &wgpu::Device) -> UniformParams {
        let description = wgpu::BufferDescriptor {
            label: Some("parameters"),
            size: (BATCH * SLOT) as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        };
        UniformParams {
            buffer: device.create_buffer(&description),
            slots: Vec::new(),
        }
    }

    /// The slot of the next dispatch.
    fn next(&self) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding {
            buffer: &self.buffer,
            offset: self.slots.len() as u64,
            size: wgpu::BufferSize::new(MAX_PARAMS.into()),
        }
    }
}

/// The place of a byte at which a texel starts.
pub(super) fn in_texture(texture: &wgpu::Texture, at: u64) -> wgpu::TexelCopyTextureInfo<'_> {
    let origin = wgpu::Origin3d {
        x: (at % TEXTURE_ROW / 16) as u32,
        y: (at / TEXTURE_ROW) as u32,
        z: 0,
    };
    wgpu::TexelCopyTextureInfo {
        origin,
        ..texture.as_image_copy()
    }
}

/// Rows of a texture one after the other, from the byte `offset` on.
pub(super) fn texel_layout(offset: u64) -> wgpu::TexelCopyBufferLayout {
    wgpu::TexelCopyBufferLayout {
        offset,
        bytes_per_row: Some(TEXTURE_ROW as u32),
        rows_per_image: None,
    }
}

/// Creates the bind group of a dispatch, with the parameters if they are in a buffer; `None` if the device failed.
type BindFn<'a> = &'a dyn Fn(Option<wgpu::BufferBinding<'_>>) -> Option<wgpu::BindGroup>;

impl Recorder {
    /// `fixed` is a limit for the operations of a submission that replaces the measured one.
    pub(super) fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        immediates: bool,
        fixed: Option<u64>,
    ) -> Recorder {
        Recorder {
            uniform: (!immediates).then(|| UniformParams::new(device)),
            device: device.clone(),
            queue: queue.clone(),
            pass: None,
            encoder: None,
            dispatches: 0,
            counts: Counts::default(),
            work: 0,
            limit: WorkLimit::new(fixed),
        }
    }

    /// The number of the submission that is being recorded; the first is 1.
    pub(super) fn epoch(&self) -> u64 {
        self.counts.submissions + 1
    }

    /// Records a dispatch of `work` operations, in parts if it is too long for one submission. `params` lack the last
    /// member, the first group.
    pub(super) fn record(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        bind: BindFn<'_>,
        params: &[u8],
        groups: Groups,
        work: u64,
    ) {
        let count = groups.count;
        let parts = work.div_ceil(self.limit.work).min(count as u64) as usize;
        if parts <= 1 {
            return self.record_part(pipeline, bind, params, 0, groups.folded(), work);
        }
        // In one dimension: a fold would add surplus groups, which belong to the next part.
        let length = count.div_ceil(parts).min(MAX_GROUPS);
        for first in (0..count).step_by(length) {
            let some = length.min(count - first);
            let work = (work as u128 * some as u128 / count as u128) as u64;
            self.record_part(pipeline, bind, params, first as u32, (some as u32, 1), work);
        }
    }

    fn record_part(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        bind: BindFn<'_>,
        params: &[u8],
        first_group: u32,
        (x, y): (u32, u32),
        work: u64,
    ) {
        if self.dispatches > 0 && self.work + work > self.limit.work {
            self.submit();
        }
        let slot = self.uniform.as_ref().map(UniformParams::next);
        let Some(bound) = bind(slot) else {
            return;
        };
        let new = || self.device.create_command_encoder(&Default::default());
        let encoder = self.encoder.get_or_insert_with(new);
        let pass = self.pass.get_or_insert_with(|| {
            let pass = encoder.begin_compute_pass(&Default::default());
            pass.forget_lifetime()
        });
        pass.set_pipeline(pipeline);
        pass.set_bind_group(0, &bound, &[]);
        let first_group = first_group.to_ne_bytes();
        match &mut self.uniform {
            Some(UniformParams { slots, .. }) => {
                let end = slots.len() + SLOT;
                slots.extend_from_slice(params);
                slots.extend_from_slice(&first_group);
                slots.resize(end, 0);
            }
            None => {
                pass.set_immediates(0, params);
                pass.set_immediates(params.len() as u32, &first_group);
            }
        }
        pass.dispatch_workgroups(x, y, 1);
        self.dispatches += 1;
        self.counts.dispatches += 1;
        self.work += work;
        if self.dispatches == BATCH {
            self.submit();
        }
    }

    /// Copies to the byte `at`. Copies from and to a texture start at a row, and those from one end with a row.
    pub(super) fn copy(&mut self, from: &Binding, to: &Memory, at: u64) {
        self.pass = None;
        let new = || self.device.create_command_encoder(&Default::default());
        let encoder = self.encoder.get_or_insert_with(new);
        let rows = |width, height| wgpu::Extent3d {
            width: width as u32,
            height: height as u32,
            depth_or_array_layers: 1,
        };
        let whole_rows = rows(TEXTURE_ROW / 16, from.room() / TEXTURE_ROW);
        match (&from.storage.memory, to) {
            (Memory::Buffer(buffer), Memory::Buffer(to)) => {
                encoder.copy_buffer_to_buffer(buffer, from.offset, to, at, Some(from.size));
            }
            (Memory::Texture(texture, _), Memory::Texture(to, _)) => {
                let source = in_texture(texture, from.offset);
                encoder.copy_texture_to_texture(source, in_texture(to, at), whole_rows);
            }
            (Memory::Texture(texture, _), Memory::Buffer(buffer)) => {
                let layout = texel_layout(at);
                let to = wgpu::TexelCopyBufferInfo { buffer, layout };
                let source = in_texture(texture, from.offset);
                encoder.copy_texture_to_buffer(source, to, whole_rows);
            }
            (Memory::Buffer(buffer), Memory::Texture(to, _)) => {
                let (whole, rest) = (from.size / TEXTURE_ROW, from.size % TEXTURE_ROW);
                let parts = [
                    (0, rows(TEXTURE_ROW / 16, whole)),
                    (whole * TEXTURE_ROW, rows(rest.div_ceil(16), 1)),
                ];
                for (first, size) in parts {
                    if size.width * size.height > 0 {
                        let layout = texel_layout(from.offset + first);
                        let source = wgpu::TexelCopyBufferInfo { buffer, layout };
                        encoder.copy_buffer_to_texture(source, in_texture(to, at + first), size);
                    }
                }
            }
        }
    }

    pub(super) fn submit(&mut self) {
        self.pass = None;
        if let Some(encoder) = self.encoder.take() {
            if let Some(uniform) = &mut self.uniform {
                self.queue.write_buffer(&uniform.buffer, 0, &uniform.slots);
                uniform.slots.clear();
            }
            self.limit.submitted(self.work, Instant::now());
            self.queue.submit([encoder.finish()]);
            self.counts.submissions += 1;
            self.dispatches = 0;
            self.work = 0;
        }
    }

    /// Measures the speed, after the device has finished all submitted work.
    pub(super) fn finished(&mut self) {
        self.limit.finished(Instant::now());
    }
}

/// The operations that a submission may hold: the measured work of the device in [`SUBMISSION_TIME`].
struct WorkLimit {
    work: u64,
    fixed: bool,
    /// the start and the work of all submissions since the device was last idle
    since: Option<(Instant, u64)>,
}

impl WorkLimit {
    fn new(fixed: Option<u64>) -> WorkLimit {
        WorkLimit {
            work: fixed.unwrap_or(FIRST_WORK).max(1),
            fixed: fixed.is_some(),
            since: None,
        }
    }

    fn submitted(&mut self, work: u64, now: Instant) {
        let (_, so_far) = self.since.get_or_insert((now, 0));
        *so_far += work;
    }

    /// The measured speed is a lower bound, since the host may have been slower than the device, or have compiled kernels.
    /// So a higher speed raises the limit at once, and a lower one reduces it slowly.
    fn finished(&mut self, now: Instant) {
        let Some((start, work)) = self.since.take() else {
            return;
        };
        if self.fixed || work < LEAST_WORK {
            return;
        }
        let seconds = now.duration_since(start).as_secs_f64().max(1e-6);
        let measured = work as f64 / seconds * SUBMISSION_TIME.as_secs_f64();
        let limit = measured.max(0.9 * self.work as f64) as u64;
        self.work = limit.clamp(LEAST_WORK, MOST_WORK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_grows_at_once_and_shrinks_slowly_within_bounds() {
        let start = Instant::now();
        let mut limit = WorkLimit::new(None);
        let mut run = |work: u64, milliseconds: u64| {
            limit.submitted(work, start);
            limit.finished(start + Duration::from_millis(milliseconds));
            limit.work
        };
        // 8 Gi in half a second are 4 Gi in a quarter.
        assert_eq!(run(8 << 30, 500), FIRST_WORK);
        assert_eq!(run(8 << 30, 250), 8 << 30);
        assert_eq!(run(64 << 30, 10), MOST_WORK);
        // One slow round may be caused by the host, many are caused by the device.
        assert_eq!(run(8 << 30, 60_000), (0.9 * MOST_WORK as f64) as u64);
        for _ in 0..50 {
            run(8 << 30, 60_000);
        }
        assert_eq!(run(8 << 30, 60_000), LEAST_WORK);
        // Little work is no measurement.
        assert_eq!(run(1 << 20, 1), LEAST_WORK);
        let mut fixed = WorkLimit::new(Some(100));
        fixed.submitted(8 << 30, start);
        fixed.finished(start + Duration::from_millis(1));
        assert_eq!(fixed.work, 100);
    }

    /// Long products and walks with their gradients, with and without a limit, also with only the features of WebGPU.
    #[test]
    fn neither_cuts_nor_the_dialect_change_a_bit() {
        use crate::testing::{Array, assert_agree};
        use crate::{Gpu, GpuOptions, Visibility};
        const LIMIT: u64 = 2_000_000;
        let run = |max_work, webgpu, software| {
            let options = GpuOptions {
                max_work,
                webgpu,
                poison: true,
                ..GpuOptions::default()
            };
            let gpu = Gpu::open(options).unwrap();
            let gpu = gpu.with_caps(|caps| caps.is_software &= software);
            let random = |shape: &[usize], seed| {
                Array::random(shape, seed, -1.0..1.0).tensor(&gpu).tracked()
            };
            let (x, w, v) = (
                random(&[300, 64], 1),
                random(&[500, 64], 2),
                random(&[64], 3),
            );
            let visible = Visibility::tree(&gpu, &[300; 300]);
            let before = gpu.counts();
            let attended = x.attention(&x, &x, &visible, 4, 4).rms_norm(&v, 1e-6);
            let y = attended.matmul_nt(&w);
            let gradients = y.square().mean().backward();
            let tensors = [&w, &v, &x].map(|leaf| gradients.get(leaf).unwrap().clone());
            let values = |t: &crate::Tensor| t.to_vec().unwrap();
            let product = x.matmul_nt(&w);
            let results = [&product, &y].into_iter().chain(&tensors).map(values);
            let results: Vec<_> = results.collect();
            (results, gpu.counts().since(before).submissions)
        };
        let bits = |results: &[Vec<f32>]| -> Vec<u32> {
            results.iter().flatten().map(|v| v.to_bits()).collect()
        };
        for software in [true, false] {
            let ((whole, few), (parts, many)) = (
                run(None, false, software),
                run(Some(LIMIT), false, software),
            );
            assert!(bits(&whole) == bits(&parts));
            for limit in [None, Some(LIMIT)] {
                let (web, _) = run(limit, true, software);
                // Without subgroups a processor has the attention of a GPU, which rounds differently.
                let same = if software { 1 } else { whole.len() };
                assert!(bits(&whole[..same]) == bits(&web[..same]), "{limit:?}");
                for (web, whole) in web.iter().zip(&whole) {
                    assert_agree("value or gradient", web, whole, 1e-5);
                }
            }
            // Forward and backward products alone are 3 x 2 x 300 x 500 x 64 operations.
            let least = 3 * 2 * 300 * 500 * 64 / LIMIT;
            assert!(
                many > few + least,
                "{many} submissions, {few} without a limit"
            );
        }
    }
}
