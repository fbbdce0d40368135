//! Kernels, compiled once for each set of constants.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lapwing_shaders::Dialect;

use super::caps::{MAX_GROUPS, MAX_PARAMS};
use super::poison::with_poison;
use super::{Bind, Binding, Gpu, GpuError};

/// An entry point of a shader.
#[derive(PartialEq)]
pub(crate) struct Kernel {
    shader: &'static str,
    entry: &'static str,
}

/// The number of workgroups of a launch, and their work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups {
    pub(super) count: usize,
    work: Option<u64>,
}

/// The binding of parameters that come in a buffer. Storage buffers have the lower numbers.
const PARAMS_BINDING: u32 = 7;

/// Operations that take as long as reading or writing a byte.
const PER_BYTE: u64 = 4;

impl Groups {
    /// Enough groups of `per_group` threads for `threads`.
    pub(crate) fn of(threads: usize, per_group: usize) -> Groups {
        Groups::count(threads.div_ceil(per_group))
    }

    /// This number of groups.
    pub(crate) fn count(groups: usize) -> Groups {
        Groups {
            count: groups,
            work: None,
        }
    }

    /// Sets the multiplications and additions of all groups together. The default is an estimate from the bytes that the
    /// kernel binds, which is right if it reads each of them once.
    pub(crate) fn work(self, operations: u64) -> Groups {
        Groups {
            work: Some(operations),
            ..self
        }
    }

    /// Uses a second dimension if one is too short; there may be many surplus groups then.
    pub(super) fn folded(self) -> (u32, u32) {
        let rows = self.count.div_ceil(MAX_GROUPS).max(1);
        (self.count.min(MAX_GROUPS) as u32, rows as u32)
    }
}

/// Makes the parameters of a kernel: the members of its `var<immediate>` in their order, but for the last, `first_group`.
macro_rules! params {
    ($($name:ident: $kind:ty = $value:expr),* $(,)?) => {{
        #[repr(C)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        struct Params { $($name: $kind),* }
        Params { $($name: $value as $kind),* }
    }};
}
pub(crate) use params;

/// Values for the `const` lines of a shader, by name.
pub(crate) type Constants = Vec<(&'static str, u32)>;

/// Shader, entry point and constants.
type PipelineKey = (&'static str, &'static str, Constants);

struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

#[derive(Default)]
pub(super) struct CompiledKernels {
    pipelines: Mutex<HashMap<PipelineKey, Arc<Pipeline>>>,
    /// See [`Gpu::miscompile`].
    replacements: Mutex<Vec<[String; 3]>>,
}

impl Gpu {
    /// Simulates a broken driver: replaces `right` by `wrong` in the text of a shader, for all kernels that are compiled
    /// afterwards. For tests of the self-test.
    ///
    /// # Panics
    /// If the shader does not contain `right`.
    #[track_caller]
    pub fn miscompile(&self, shader: &str, right: &str, wrong: &str) {
        let text = lapwing_shaders::source(shader, self.caps().dialect());
        assert!(text.contains(right), "{shader} has no {right}");
        let change = [shader, right, wrong].map(str::to_owned);
        let mut replacements = self.0.kernels.replacements.lock().expect("replacements");
        replacements.push(change);
    }
}

#[cfg(test)]
impl CompiledKernels {
    /// The shader and entry point of each kernel compiled so far.
    pub(super) fn used(&self) -> Vec<(&'static str, &'static str)> {
        let known = self.pipelines.lock().expect("kernels");
        known
            .keys()
            .map(|(shader, entry, _)| (*shader, *entry))
            .collect()
    }
}

impl Kernel {
    pub(crate) const fn new(shader: &'static str, entry: &'static str) -> Kernel {
        Kernel { shader, entry }
    }

    /// Records one run. `constants` replace the shader's `const` lines of these names; `buffers` are
    /// `@binding(0)`, `@binding(1)`, …; `params` is its `var<immediate>` but for the last member, `first_group`.
    #[track_caller]
    pub(crate) fn launch<P: bytemuck::Pod>(
        &self,
        constants: &[(&'static str, u32)],
        buffers: &[&dyn Bind],
        params: &P,
        groups: Groups,
    ) {
        let bindings: Vec<&Binding> = buffers.iter().map(|buffer| buffer.binding()).collect();
        let gpu = Binding::gpu_of(&bindings);
        // After a failure nothing is computed until the caller has got the error.
        if groups.count == 0 || gpu.has_failed() {
            return;
        }
        let params = bytemuck::bytes_of(params);
        assert!(
            params.len() + 4 <= MAX_PARAMS as usize,
            "{}: {} bytes of parameters",
            self.shader,
            params.len()
        );
        let inner = &gpu.0;
        let key = (self.shader, self.entry, constants.to_vec());
        let mut known = inner.kernels.pipelines.lock().expect("kernels");
        let compile = || Arc::new(self.compile(gpu, constants));
        let compiled = known.entry(key).or_insert_with(compile).clone();
        drop(known);
        // Not the limit in `caps`, which a test may have changed.
        let most = inner.device.limits().max_storage_buffer_binding_size;
        if let Some(bound) = bindings.iter().find(|bound| bound.size > most) {
            // Returned when the results are read. The message of the driver would not say how to fix it.
            let (shader, size) = (self.shader, bound.size);
            let text = format!(
                "{shader} needs {size} bytes of one buffer, the device binds at most {most}"
            );
            inner.failure.set(GpuError::OutOfMemory(text));
            return;
        }
        let bind = |params: Option<wgpu::BufferBinding<'_>>| {
            let resources = bindings.iter().map(|bound| bound.resource()).zip(0..);
            let params = params.map(wgpu::BindingResource::Buffer);
            let params = params.map(|params| (params, PARAMS_BINDING));
            let entry = |(resource, binding)| wgpu::BindGroupEntry { binding, resource };
            let bound = inner.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(self.shader),
                layout: &compiled.layout,
                entries: &resources.chain(params).map(entry).collect::<Vec<_>>(),
            });
            // The kernel or its bindings may have failed.
            (!gpu.has_failed()).then_some(bound)
        };
        let bytes: u64 = bindings.iter().map(|bound| bound.size).sum();
        let work = groups.work.unwrap_or(PER_BYTE * bytes);
        let mut recorder = inner.recorder.lock().expect("recorder");
        recorder.record(&compiled.pipeline, &bind, params, groups, work);
        recorder.counts.bytes += bytes;
        // Only now: recording may have submitted earlier work and begun a new submission.
        for bound in &bindings {
            bound.storage.mark_used(recorder.epoch());
        }
    }

    fn compile(&self, gpu: &Gpu, constants: &[(&'static str, u32)]) -> Pipeline {
        let device = &gpu.0.device;
        if let Some(on_compile) = gpu.0.options.on_compile {
            on_compile(self.shader, self.entry, constants);
        }
        let mut text = Kernel::text(self.shader, constants, gpu.caps().dialect());
        let replacements = gpu.0.kernels.replacements.lock().expect("replacements");
        for [_, right, wrong] in replacements.iter().filter(|[of, ..]| of == self.shader) {
            text = text.replace(right, wrong);
        }
        drop(replacements);
        if gpu.0.options.poison {
            text = with_poison(&text, self.entry);
        }
        let description = wgpu::ShaderModuleDescriptor {
            label: Some(self.shader),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        let module = if gpu.0.options.checked {
            device.create_shader_module(description)
        } else {
            // SAFETY: the kernels compare each index with the counts in their parameters. The tests run the same kernels
            // with checks.
            unsafe {
                device.create_shader_module_trusted(
                    description,
                    wgpu::ShaderRuntimeChecks::unchecked(),
                )
            }
        };
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(self.shader),
            layout: None,
            module: &module,
            entry_point: Some(self.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &[],
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        });
        let layout = pipeline.get_bind_group_layout(0);
        Pipeline { pipeline, layout }
    }

    /// Returns the text of a shader with its constants replaced.
    pub(crate) fn text(
        shader: &str,
        constants: &[(&'static str, u32)],
        dialect: Dialect,
    ) -> String {
        let mut text = String::new();
        let mut replaced = 0;
        for line in lapwing_shaders::source(shader, dialect).lines() {
            let declared = line.strip_prefix("const ").and_then(|l| l.split_once(':'));
            let constant = constants
                .iter()
                .find(|(of, _)| declared.is_some_and(|(name, _)| name == *of));
            match constant {
                Some((name, value)) => {
                    text += &format!("const {name}: u32 = {value}u;\n");
                    replaced += 1;
                }
                None => text += &format!("{line}\n"),
            }
        }
        assert_eq!(
            replaced,
            constants.len(),
            "{shader}: the shader lacks some of the constants {constants:?}"
        );
        text
    }
}
