//! Work on its way to the device: one encoder, one compute pass, many dispatches.

use super::kernel::Dispatch;

/// Dispatches after which a batch is submitted, so that the device works while the next batch is recorded.
const BATCH: usize = 64;

#[derive(Default)]
pub(super) struct Recorder {
    // the pass before the encoder: it must be dropped first
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: Option<wgpu::CommandEncoder>,
    dispatches: usize,
    submissions: u64,
}

impl Recorder {
    /// The number of the submission that is being recorded; the first is 1.
    pub(super) fn epoch(&self) -> u64 {
        self.submissions + 1
    }

    pub(super) fn record(
        &mut self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        dispatch: Dispatch<'_>,
    ) {
        let encoder = self
            .encoder
            .get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        let pass = self.pass.get_or_insert_with(|| {
            encoder
                .begin_compute_pass(&Default::default())
                .forget_lifetime()
        });
        pass.set_pipeline(dispatch.pipeline);
        pass.set_bind_group(0, dispatch.bind_group, &[]);
        if !dispatch.params.is_empty() {
            pass.set_immediates(0, dispatch.params);
        }
        pass.dispatch_workgroups(dispatch.groups.0, dispatch.groups.1, 1);
        self.dispatches += 1;
        if self.dispatches == BATCH {
            self.submit(queue);
        }
    }

    pub(super) fn copy_out(
        &mut self,
        device: &wgpu::Device,
        from: &wgpu::Buffer,
        offset: u64,
        to: &wgpu::Buffer,
        bytes: u64,
    ) {
        self.pass = None;
        let encoder = self
            .encoder
            .get_or_insert_with(|| device.create_command_encoder(&Default::default()));
        encoder.copy_buffer_to_buffer(from, offset, to, 0, Some(bytes));
    }

    pub(super) fn submit(&mut self, queue: &wgpu::Queue) {
        self.pass = None;
        if let Some(encoder) = self.encoder.take() {
            queue.submit([encoder.finish()]);
            self.submissions += 1;
            self.dispatches = 0;
        }
    }
}
