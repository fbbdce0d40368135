//! Kernels: compiled once for each set of constants, then launched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lapwing_shaders::Dialect;

use super::caps::MAX_PARAMS;
use super::poison::with_nonsense;
use super::{Bind, Binding, Gpu, GpuError};

/// An entry point of a shader.
pub(crate) struct Kernel {
    shader: &'static str,
    entry: &'static str,
}

/// How many workgroups to launch, and how much work they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Groups {
    pub(super) count: usize,
    work: Option<u64>,
}

/// Where the parameters are bound that come in a buffer. The other numbers are those of storage buffers.
const PARAMS_BINDING: u32 = 7;

/// The most workgroups along one dimension that every adapter allows.
pub(super) const MAX_GROUPS: usize = 65_535;

/// Operations that take as long as a byte that is read or written.
const PER_BYTE: u64 = 4;

impl Groups {
    /// Enough groups of `per_group` threads for `threads`.
    pub(crate) fn of(threads: usize, per_group: usize) -> Groups {
        Groups::count(threads.div_ceil(per_group))
    }

    /// That many groups.
    pub(crate) fn count(groups: usize) -> Groups {
        Groups {
            count: groups,
            work: None,
        }
    }

    /// Multiplications and additions of all groups together. Without this it is guessed from the bytes that the kernel
    /// binds, which is right where each is met once.
    pub(crate) fn work(self, operations: usize) -> Groups {
        Groups {
            work: Some(operations as u64),
            ..self
        }
    }

    /// In two dimensions where one is too short; there may be a few surplus groups then.
    pub(super) fn folded(self) -> (u32, u32) {
        let rows = self.count.div_ceil(MAX_GROUPS).max(1);
        (self.count.div_ceil(rows) as u32, rows as u32)
    }
}

/// Values for the `const` lines of a shader, by name.
pub(crate) type Constants = Vec<(&'static str, u32)>;

type Key = (&'static str, &'static str, Constants);

struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

#[derive(Default)]
pub(super) struct Compiled {
    pipelines: Mutex<HashMap<Key, Arc<Pipeline>>>,
    /// See [`Gpu::miscompile`].
    wrong: Mutex<Vec<[String; 3]>>,
}

impl Gpu {
    /// Plays a broken driver: puts `wrong` in the place of `right` in the text of a shader, for kernels that are compiled
    /// from then on.
    ///
    /// # Panics
    /// If the shader does not have that text.
    #[track_caller]
    pub fn miscompile(&self, shader: &str, right: &str, wrong: &str) {
        let text = lapwing_shaders::source(shader, self.caps().dialect());
        assert!(text.contains(right), "{shader} has no {right}");
        let change = [shader, right, wrong].map(str::to_owned);
        self.0.kernels.wrong.lock().expect("changes").push(change);
    }
}

#[cfg(test)]
impl Compiled {
    /// The entry points that were used, each with the name of its shader.
    pub(super) fn used(&self) -> Vec<(&'static str, &'static str)> {
        let known = self.pipelines.lock().expect("kernels");
        known
            .keys()
            .map(|(shader, entry, _)| (*shader, *entry))
            .collect()
    }
}

pub(super) struct Dispatch<'a> {
    pub(super) pipeline: &'a wgpu::ComputePipeline,
    /// Binds the buffers, and the parameters too where they lie in one; nothing if the device does not.
    pub(super) bind: &'a dyn Fn(Option<wgpu::BufferBinding<'_>>) -> Option<wgpu::BindGroup>,
    /// without the first group, which comes behind them
    pub(super) params: &'a [u8],
    pub(super) groups: Groups,
    /// in operations
    pub(super) work: u64,
}

impl Kernel {
    pub(crate) const fn new(shader: &'static str, entry: &'static str) -> Kernel {
        Kernel { shader, entry }
    }

    /// Records one run. `constants` replace the shader's `const` lines of these names; `buffers` are
    /// `@binding(0)`, `@binding(1)`, …; `params` is its `var<immediate>` but for the last member, `first_group`.
    pub(crate) fn launch<P: bytemuck::Pod>(
        &self,
        constants: &[(&'static str, u32)],
        buffers: &[&dyn Bind],
        params: &P,
        groups: Groups,
    ) {
        let bindings: Vec<Binding> = buffers.iter().map(|buffer| buffer.binding()).collect();
        let gpu = bindings[0].storage.gpu();
        // After a failure nothing is computed until it is told: what the device holds stays as it was.
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
        let compiled = self.compiled(gpu, constants);
        let inner = &gpu.0;
        // The device's own limit: capabilities may be changed for a test.
        let most = inner.device.limits().max_storage_buffer_binding_size;
        if let Some(bound) = bindings.iter().find(|bound| bound.size > most) {
            // Reported when the results are read, in place of the driver's words, which name no cure.
            let (shader, size) = (self.shader, bound.size);
            let text =
                format!("{shader} needs {size} bytes of one buffer, the adapter binds {most}");
            inner.failure.set(GpuError::OutOfMemory(text));
            return;
        }
        let bind = |params: Option<wgpu::BufferBinding<'_>>| {
            let buffers = bindings.iter().map(|bound| bound.in_full()).zip(0..);
            let params = params.map(|params| (params, PARAMS_BINDING));
            let entry = |(buffer, binding)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(buffer),
            };
            let bound = inner.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some(self.shader),
                layout: &compiled.layout,
                entries: &buffers.chain(params).map(entry).collect::<Vec<_>>(),
            });
            // Nothing if the kernel or its bindings could not be made.
            (!gpu.has_failed()).then_some(bound)
        };
        let dispatch = Dispatch {
            pipeline: &compiled.pipeline,
            bind: &bind,
            params,
            groups,
            work: groups
                .work
                .unwrap_or_else(|| PER_BYTE * bindings.iter().map(|bound| bound.size).sum::<u64>()),
        };
        let mut recorder = inner.recorder.lock().expect("recorder");
        recorder.record(&inner.device, &inner.queue, dispatch);
        // Afterwards: what was recorded before may have been submitted first.
        for bound in &bindings {
            bound.storage.mark_used(recorder.epoch());
        }
    }

    fn compiled(&self, gpu: &Gpu, constants: &[(&'static str, u32)]) -> Arc<Pipeline> {
        let key = (self.shader, self.entry, constants.to_vec());
        let mut known = gpu.0.kernels.pipelines.lock().expect("kernels");
        known
            .entry(key)
            .or_insert_with(|| Arc::new(self.compile(gpu, constants)))
            .clone()
    }

    fn compile(&self, gpu: &Gpu, constants: &[(&'static str, u32)]) -> Pipeline {
        let device = &gpu.0.device;
        if let Some(on_compile) = gpu.0.options.on_compile {
            on_compile(self.shader, self.entry, constants);
        }
        let text = Kernel::text(self.shader, constants, gpu.caps().dialect());
        let text = {
            let wrong = gpu.0.kernels.wrong.lock().expect("changes");
            let ours = wrong.iter().filter(|[shader, ..]| shader == self.shader);
            ours.fold(text, |text, [_, right, wrong]| text.replace(right, wrong))
        };
        let text = match gpu.0.options.poison {
            true => with_nonsense(&text, self.entry),
            false => text,
        };
        let description = wgpu::ShaderModuleDescriptor {
            label: Some(self.shader),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        let module = if gpu.0.options.checked {
            device.create_shader_module(description)
        } else {
            // SAFETY: the kernels compare every index with the counts they are given; the same kernels run with
            // checks in the tests.
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

    /// A shader with its constants replaced.
    pub(crate) fn text(
        shader: &str,
        constants: &[(&'static str, u32)],
        dialect: Dialect,
    ) -> String {
        let mut text = String::new();
        let mut replaced = 0;
        for line in lapwing_shaders::source(shader, dialect).lines() {
            let constant = constants.iter().find(|(name, _)| {
                line.strip_prefix("const ")
                    .and_then(|l| l.strip_prefix(name))
                    .is_some_and(|l| l.starts_with(':'))
            });
            match constant {
                Some((name, value)) => {
                    text.push_str(&format!("const {name}: u32 = {value}u;\n"));
                    replaced += 1;
                }
                None => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        assert_eq!(
            replaced,
            constants.len(),
            "{shader}: not every constant of {constants:?} is in the shader"
        );
        text
    }
}
