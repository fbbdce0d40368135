//! Which adapters there are and what each can do.

use lapwing_shaders::Dialect;

use super::GpuError;

/// What an adapter is and can do.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The name that the driver gives.
    pub name: String,
    /// vulkan, metal, dx12 or gl.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// discrete, integrated, virtual, software or other.
    pub kind: &'static str,
    /// A processor does the work; there is no GPU behind it.
    pub is_software: bool,
    /// Bytes that a kernel can see of one buffer.
    pub max_binding: u64,
    /// Bytes of the largest buffer.
    pub max_buffer: u64,
    /// Bytes of memory that the adapter has; of a software adapter, what the machine had to spare when this was asked.
    /// None when not known (Metal, Direct3D 12).
    pub memory: Option<u64>,
    /// Bytes of memory that the threads of a group share.
    pub max_workgroup_memory: u32,
    /// Threads in a group.
    pub max_workgroup_threads: u32,
    /// Smallest and largest number of threads that run in step; 0 when not known or when they cannot exchange values.
    pub subgroup: (u32, u32),
    /// Whether parameters reach a kernel with the command that launches it (push constants); elsewhere they come in a buffer.
    pub immediates: bool,
    /// Arithmetic in 16 bits.
    pub f16: bool,
    /// Tile sizes (m, n, k) of its matrix units, as the driver lists them for f16 inputs.
    pub matrix_tiles: Vec<(u32, u32, u32)>,
    /// Something without which no kernel runs, if it is missing.
    pub lacks: Option<String>,
    pub(super) rank: u32,
}

/// Bytes of parameters that a kernel may have: what WebGPU promises where it has immediates at all.
pub(super) const MAX_PARAMS: u32 = 64;

/// What every kernel needs, which is no more than WebGPU promises; each with its name, what there is and what is needed.
fn needs(limits: &wgpu::Limits) -> [(&'static str, u32, u32); 5] {
    [
        (
            "storage buffers for a kernel",
            limits.max_storage_buffers_per_shader_stage,
            7,
        ),
        (
            "threads in a group",
            limits.max_compute_invocations_per_workgroup,
            256,
        ),
        ("threads in a row", limits.max_compute_workgroup_size_x, 256),
        (
            "bytes of memory that a group shares",
            limits.max_compute_workgroup_storage_size,
            16 << 10,
        ),
        (
            "groups in a row",
            limits.max_compute_workgroups_per_dimension,
            super::kernel::MAX_GROUPS as u32,
        ),
    ]
}

/// OpenGL is asked only where there is nothing else: it is for old cards, and lists every other one a second time.
pub(super) fn adapters() -> Vec<(wgpu::Adapter, Caps)> {
    use wgpu::Backends;
    let found = adapters_of(Backends::VULKAN | Backends::METAL | Backends::DX12);
    match found.is_empty() {
        true => adapters_of(Backends::GL | Backends::BROWSER_WEBGPU),
        false => found,
    }
}

fn adapters_of(backends: wgpu::Backends) -> Vec<(wgpu::Adapter, Caps)> {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = backends;
    // Validation of indirect dispatches, which we do not use, would cut buffers to 4 GiB.
    description.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(description);
    let found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    found
        .into_iter()
        .map(|adapter| {
            let caps = describe(&adapter);
            (adapter, caps)
        })
        .collect()
}

/// What Vulkan says of itself where no adapter was found: nothing, if it is not installed.
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
pub(super) fn why_none() -> Option<String> {
    use std::error::Error;
    use wgpu::hal::{Api, Instance};
    let description = wgpu::hal::InstanceDescriptor {
        name: "lapwing",
        flags: wgpu::InstanceFlags::empty(),
        memory_budget_thresholds: Default::default(),
        backend_options: Default::default(),
        telemetry: None,
        display: None,
    };
    // SAFETY: the instance is dropped at once, nothing is made from it.
    let begun = unsafe { <wgpu::hal::api::Vulkan as Api>::Instance::init(&description) };
    let Err(error) = begun else {
        let text = "Vulkan is installed, but none of its drivers could be loaded";
        return Some(text.to_owned());
    };
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        reason = deeper.to_string();
        cause = deeper.source();
    }
    // The loader's library is not there: what is to be done is known.
    let missing = reason.contains("No such file") || reason.contains("LoadLibrary");
    (!missing).then(|| format!("Vulkan did not begin ({reason})"))
}

/// There is only Metal, or only the browser.
#[cfg(any(target_vendor = "apple", target_family = "wasm"))]
pub(super) fn why_none() -> Option<String> {
    None
}

fn describe(adapter: &wgpu::Adapter) -> Caps {
    let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
    let (kind, rank) = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => ("discrete", 0),
        wgpu::DeviceType::IntegratedGpu => ("integrated", 1),
        wgpu::DeviceType::VirtualGpu => ("virtual", 2),
        wgpu::DeviceType::Other => ("other", 3),
        wgpu::DeviceType::Cpu => ("software", 4),
    };
    let short = needs(&limits)
        .into_iter()
        .find(|(_, has, needed)| has < needed)
        .map(|(what, has, needed)| format!("{what}: it has {has} of {needed}"));
    let computes = wgpu::DownlevelFlags::COMPUTE_SHADERS;
    let lacks = match adapter
        .get_downlevel_capabilities()
        .flags
        .contains(computes)
    {
        true => short,
        false => Some("compute shaders".to_owned()),
    };
    let half = wgpu::CooperativeScalarType::F16;
    let is_software = info.device_type == wgpu::DeviceType::Cpu;
    Caps {
        backend: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info)
            .trim()
            .to_owned(),
        is_software,
        max_binding: limits.max_storage_buffer_binding_size,
        max_buffer: limits.max_buffer_size,
        // Mesa's software drivers have a heap of 2 GiB, or of all the host's memory, depending on their age: neither is
        // what there is.
        memory: match is_software {
            true => available_on_host().or_else(|| device_heap(adapter)),
            false => device_heap(adapter),
        },
        max_workgroup_memory: limits.max_compute_workgroup_storage_size,
        max_workgroup_threads: limits.max_compute_invocations_per_workgroup,
        subgroup: match features.contains(wgpu::Features::SUBGROUP) {
            true => (info.subgroup_min_size, info.subgroup_max_size),
            false => (0, 0),
        },
        immediates: features.contains(wgpu::Features::IMMEDIATES)
            && limits.max_immediate_size >= MAX_PARAMS,
        f16: features.contains(wgpu::Features::SHADER_F16),
        matrix_tiles: adapter
            .cooperative_matrix_properties()
            .iter()
            .filter(|tile| tile.ab_type == half)
            .map(|tile| (tile.m_size, tile.n_size, tile.k_size))
            .collect(),
        name: info.name,
        kind,
        lacks,
        rank,
    }
}

/// Bytes of the largest heap that the device calls its own. wgpu does not tell, Vulkan does.
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
fn device_heap(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the adapter is only asked, neither destroyed nor kept. The guard keeps it and its instance alive until
    // the answer is there, and the physical device is one of that very instance, which is all that Vulkan demands.
    let memory = unsafe {
        let vulkan = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = vulkan.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(vulkan.raw_physical_device())
    };
    let heaps = memory.memory_heaps_as_slice().iter();
    heaps
        .filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0)
        .map(|heap| heap.size)
        .max()
}

/// wgpu has no Vulkan here.
#[cfg(any(target_vendor = "apple", target_family = "wasm"))]
fn device_heap(_: &wgpu::Adapter) -> Option<u64> {
    None
}

/// Bytes of the host's memory that new work can have without swapping. Linux alone says so.
fn available_on_host() -> Option<u64> {
    mem_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The line `MemAvailable:   12345 kB`, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Threads of the groups that hand rows to each other, which must be in one subgroup to do so without workgroup memory.
const EXCHANGING: u32 = 8;

impl Caps {
    /// The dialect that its shaders are in.
    pub(super) fn dialect(&self) -> Dialect {
        Dialect {
            immediates: self.immediates,
            subgroups: self.subgroup.0 >= EXCHANGING,
        }
    }

    /// What a page in a browser may count on, whatever the adapter has beyond it: the default limits of WebGPU, without
    /// what is optional there. A buffer is as long as the adapter allows: WebGPU's 256 MiB would only refuse large models.
    pub(super) fn lower_to_webgpu(&mut self) {
        let limits = wgpu::Limits::default();
        self.max_binding = self.max_binding.min(limits.max_storage_buffer_binding_size);
        self.max_workgroup_memory = limits.max_compute_workgroup_storage_size;
        self.max_workgroup_threads = limits.max_compute_invocations_per_workgroup;
        self.subgroup = (0, 0);
        self.immediates = false;
        self.f16 = false;
        self.matrix_tiles.clear();
    }
}

pub(super) fn open(
    adapter: &wgpu::Adapter,
    caps: &Caps,
) -> Result<(wgpu::Device, wgpu::Queue), GpuError> {
    if let Some(lacks) = &caps.lacks {
        return Err(GpuError::Unfit {
            name: caps.name.clone(),
            lacks: lacks.clone(),
        });
    }
    // No more than the kernels for these capabilities use, so that the device itself refuses what they do not have.
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::IMMEDIATES, caps.immediates);
    features.set(wgpu::Features::SUBGROUP, caps.dialect().subgroups);
    let limits = wgpu::Limits {
        max_immediate_size: if caps.immediates { MAX_PARAMS } else { 0 },
        max_storage_buffer_binding_size: caps.max_binding,
        max_buffer_size: caps.max_buffer,
        max_compute_workgroup_storage_size: caps.max_workgroup_memory,
        max_compute_invocations_per_workgroup: caps.max_workgroup_threads,
        ..adapter.limits()
    };
    let description = wgpu::DeviceDescriptor {
        label: Some("lapwing"),
        required_features: features,
        required_limits: limits,
        // We pool buffers ourselves.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    pollster::block_on(adapter.request_device(&description)).map_err(|e| GpuError::Refused {
        name: caps.name.clone(),
        reason: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_has_to_spare_is_read_from_linux() {
        let text = "MemTotal:       24681000 kB\nMemFree:        18273000 kB\nMemAvailable:   23113000 kB\nBuffers: 1 kB\n";
        assert_eq!(mem_available(text), Some(23_113_000 * 1024));
        assert_eq!(mem_available("MemTotal: 24681000 kB\n"), None);
        assert_eq!(mem_available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn what_an_adapter_can_is_used_and_nothing_else() {
        let mut caps = crate::testing::gpu().caps().clone();
        // Narrow subgroups, and those that may be narrow, do not hold the eight threads that exchange.
        for (subgroup, immediates, subgroups) in [
            ((8, 8), true, true),
            ((32, 64), true, true),
            ((4, 4), true, false),
            ((4, 32), false, false),
            ((0, 0), false, false),
        ] {
            (caps.subgroup, caps.immediates) = (subgroup, immediates);
            let wanted = Dialect {
                immediates,
                subgroups,
            };
            assert_eq!(caps.dialect(), wanted, "{subgroup:?}");
            caps.lower_to_webgpu();
            let least = Dialect {
                immediates: false,
                subgroups: false,
            };
            assert_eq!(caps.dialect(), least);
            assert!(caps.max_binding <= 128 << 20 && caps.max_workgroup_threads == 256);
        }
    }

    #[test]
    fn an_adapter_that_has_less_than_webgpu_promises_is_told_what() {
        let short =
            |limits: &wgpu::Limits| needs(limits).iter().any(|(_, has, needed)| has < needed);
        assert!(!short(&wgpu::Limits::default()));
        let few = wgpu::Limits {
            max_storage_buffers_per_shader_stage: 4,
            ..wgpu::Limits::default()
        };
        assert!(short(&few) && short(&wgpu::Limits::downlevel_webgl2_defaults()));
    }

    #[test]
    fn the_memory_of_an_adapter_is_known() {
        for caps in crate::Gpu::list() {
            let Some(bytes) = caps.memory else {
                assert!(caps.backend != "vulkan", "{caps:?}");
                continue;
            };
            // No adapter that computes has less, and none has more: a misread field would.
            assert!((64 << 20..1 << 48).contains(&bytes), "{caps:?}");
        }
    }
}
