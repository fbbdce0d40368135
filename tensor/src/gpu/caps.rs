//! The devices found, and their properties and limits.

use lapwing_shaders::Dialect;

use super::GpuError;
use super::wait::block_on;

/// The properties and limits of a device.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Caps {
    /// The name reported by the driver.
    pub name: String,
    /// vulkan, metal, dx12 or gl.
    pub backend: String,
    /// The driver and its version.
    pub driver: String,
    /// discrete, integrated, virtual, software or other.
    pub kind: &'static str,
    /// Whether it is a software driver on a processor.
    #[serde(skip)]
    pub is_software: bool,
    /// Largest binding of a buffer, in bytes.
    pub max_binding: u64,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// Bytes of device memory; of a software driver, the available memory of the machine. `None` if unknown (Metal,
    /// Direct3D 12).
    pub memory: Option<u64>,
    /// Bytes of workgroup memory.
    pub max_workgroup_memory: u32,
    /// Largest number of threads in a workgroup.
    pub max_workgroup_threads: u32,
    /// Smallest and largest size of a subgroup; 0 if unknown or if its threads cannot exchange values.
    pub subgroup: (u32, u32),
    /// Whether parameters are passed in the launch command (push constants). Otherwise they come in a buffer.
    pub immediates: bool,
    /// Whether shaders can compute in f16.
    pub f16: bool,
    /// Whether shaders have integers of 64 bits.
    pub int64: bool,
    /// Tile sizes (m, n, k) of the matrix units for f16 inputs.
    pub matrix_tiles: Vec<(u32, u32, u32)>,
    /// A missing feature that every kernel needs.
    #[serde(skip)]
    pub lacks: Option<String>,
    #[serde(skip)]
    pub(super) rank: u32,
}

/// Workgroups along one dimension that every device allows.
pub(super) const MAX_GROUPS: usize = 65_535;
/// Largest parameters of a kernel in bytes: what Vulkan guarantees for immediates. Devices with less get them in a buffer.
pub(super) const MAX_PARAMS: u32 = 128;

/// The limits that every kernel needs, at most those that WebGPU guarantees: name, limit of the device, needed limit.
fn needs(limits: &wgpu::Limits) -> [(&'static str, u32, u32); 5] {
    let wgpu::Limits {
        max_storage_buffers_per_shader_stage: buffers,
        max_compute_invocations_per_workgroup: threads,
        max_compute_workgroup_size_x: width,
        max_compute_workgroup_storage_size: memory,
        max_compute_workgroups_per_dimension: groups,
        ..
    } = *limits;
    [
        ("storage buffers per kernel", buffers, 7),
        ("threads per workgroup", threads, 256),
        ("threads per workgroup dimension", width, 256),
        ("bytes of workgroup memory", memory, 16 << 10),
        ("workgroups per dimension", groups, MAX_GROUPS as u32),
    ]
}

/// Returns the limit of this process that is too low for a driver, and how to raise it. Beyond such a limit Mesa and LLVM
/// crash.
#[cfg(unix)]
pub(super) fn too_low_limit() -> Option<String> {
    use rustix::process::{Resource, getrlimit};
    use std::sync::Mutex;
    use std::thread::{Builder, available_parallelism, scope};
    // A software driver starts one or two threads for each core, up to 32, and a few more.
    let threads = (2 * available_parallelism().map_or(1, usize::from)).min(32) + 6;
    // A thread reserves 8 MiB for its stack and 64 MiB for its allocations.
    let wanted = 512 + 72 * threads as u64;
    let limit = getrlimit(Resource::As).current.map(|bytes| bytes >> 20);
    if let Some(limit) = limit.filter(|limit| *limit < wanted) {
        return Some(format!(
            "it needs up to {wanted} MiB of address space, and the limit is {limit} MiB; raise it with `ulimit -v`"
        ));
    }
    let lock = Mutex::new(());
    let started = scope(|scope| {
        let _held = lock.lock();
        let wait = || drop(lock.lock());
        (0..threads).try_for_each(|_| Builder::new().spawn_scoped(scope, wait).map(drop))
    });
    let cure = "allow more with `ulimit -u` or the container's limit of processes";
    started
        .err()
        .map(|error| format!("it needs up to {threads} threads: {error}; {cure}"))
}

#[cfg(not(unix))]
pub(super) fn too_low_limit() -> Option<String> {
    None
}

/// Uses OpenGL only if no other API finds a device, since it lists each device a second time.
pub(super) fn adapters() -> Vec<(Caps, wgpu::Adapter)> {
    use wgpu::Backends;
    if too_low_limit().is_some() {
        return Vec::new();
    }
    let found = adapters_of(Backends::VULKAN | Backends::METAL | Backends::DX12);
    match found.is_empty() {
        true => adapters_of(Backends::GL | Backends::BROWSER_WEBGPU),
        false => found,
    }
}

fn adapters_of(backends: wgpu::Backends) -> Vec<(Caps, wgpu::Adapter)> {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = backends;
    // The default flags validate indirect dispatches, which we do not use, and that limits buffers to 4 GiB.
    description.flags = wgpu::InstanceFlags::empty();
    let instance = wgpu::Instance::new(description);
    let found = block_on(instance.enumerate_adapters(wgpu::Backends::all()));
    found
        .into_iter()
        .map(|adapter| (describe(&adapter), adapter))
        .collect()
}

/// Returns why Vulkan found no device; `None` if it is not installed.
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
    // SAFETY: the instance is dropped at once, and nothing is created from it.
    let instance = unsafe { <wgpu::hal::api::Vulkan as Api>::Instance::init(&description) };
    let Err(error) = instance else {
        let text = "Vulkan is installed, but none of its drivers could be loaded";
        return Some(text.to_owned());
    };
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        reason = deeper.to_string();
        cause = deeper.source();
    }
    // The library of the loader is missing, so the general advice applies.
    let missing = reason.contains("No such file") || reason.contains("LoadLibrary");
    (!missing).then(|| format!("Vulkan did not start ({reason})"))
}

/// Here the only API is Metal or that of the browser.
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
        .map(|(what, has, needed)| format!("{what}: it has {has}, needed are {needed}"));
    let flags = adapter.get_downlevel_capabilities().flags;
    let lacks = match flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS) {
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
        // Mesa's software drivers report 2 GiB or all memory of the host, depending on their version. Neither is the
        // available memory.
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
        int64: features.contains(wgpu::Features::SHADER_INT64),
        matrix_tiles: adapter
            .cooperative_matrix_properties()
            .iter()
            .filter(|tile| tile.ab_type == half)
            .map(|tile| (tile.m_size, tile.n_size, tile.k_size))
            .collect(),
        name: match info.name.is_empty() {
            true => "unnamed".to_owned(),
            false => info.name,
        },
        kind,
        lacks,
        rank,
    }
}

/// Bytes of the largest device-local heap. Vulkan reports it, wgpu does not.
#[cfg(not(any(target_vendor = "apple", target_family = "wasm")))]
fn device_heap(adapter: &wgpu::Adapter) -> Option<u64> {
    /// `VK_MEMORY_HEAP_DEVICE_LOCAL_BIT`
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: this only queries the adapter. The guard keeps the adapter and its instance alive during the call, and the
    // physical device belongs to that instance.
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

/// Bytes of host memory that are available without swapping. Only Linux reports it.
fn available_on_host() -> Option<u64> {
    mem_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Reads the line `MemAvailable:   12345 kB`, in bytes.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Threads of the groups that exchange rows. They need a subgroup of that size to do so without workgroup memory.
const EXCHANGING: u32 = 8;

impl Caps {
    /// Returns the dialect of its shaders.
    pub(super) fn dialect(&self) -> Dialect {
        Dialect {
            immediates: self.immediates,
            extended: self.subgroup.0 >= EXCHANGING && self.int64,
        }
    }

    /// Lowers the limits to the defaults of WebGPU, without optional features. The buffer size stays: 256 MiB, the default
    /// of WebGPU, would only refuse large models.
    pub(super) fn lower_to_webgpu(&mut self) {
        let limits = wgpu::Limits::default();
        self.max_binding = self.max_binding.min(limits.max_storage_buffer_binding_size);
        self.max_workgroup_memory = limits.max_compute_workgroup_storage_size;
        self.max_workgroup_threads = limits.max_compute_invocations_per_workgroup;
        self.subgroup = (0, 0);
        self.immediates = false;
        self.f16 = false;
        self.int64 = false;
        self.matrix_tiles.clear();
    }
}

pub(super) fn open(
    adapter: &wgpu::Adapter,
    caps: &Caps,
) -> Result<(wgpu::Device, wgpu::Queue), GpuError> {
    if let Some(lacks) = &caps.lacks {
        return Err(GpuError::Unusable(format!(
            "{} lacks {lacks}, which every kernel needs; choose another device, or update its driver",
            caps.name
        )));
    }
    // The device gets only the features that the kernels for these capabilities use, so that it refuses all others.
    let mut features = wgpu::Features::empty();
    features.set(wgpu::Features::IMMEDIATES, caps.immediates);
    let extended = wgpu::Features::SUBGROUP | wgpu::Features::SHADER_INT64;
    features.set(extended, caps.dialect().extended);
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
        // Buffers are pooled in pool.rs.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    };
    block_on(adapter.request_device(&description))
        .map_err(|e| GpuError::Unusable(format!("{} could not be opened: {e}", caps.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_linux() {
        let text = "MemTotal:       24681000 kB\nMemFree:        18273000 kB\nMemAvailable:   23113000 kB\nBuffers: 1 kB\n";
        assert_eq!(mem_available(text), Some(23_113_000 * 1024));
        assert_eq!(mem_available("MemTotal: 24681000 kB\n"), None);
        assert_eq!(mem_available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn the_dialect_uses_only_features_of_the_device() {
        let mut caps = crate::testing::gpu().caps().clone();
        // Subgroups that have, or may have, fewer than eight threads cannot exchange values.
        for (subgroup, int64, immediates, extended) in [
            ((8, 8), true, true, true),
            ((8, 8), false, true, false),
            ((32, 64), true, true, true),
            ((4, 4), true, true, false),
            ((4, 32), true, false, false),
            ((0, 0), false, false, false),
        ] {
            (caps.subgroup, caps.int64, caps.immediates) = (subgroup, int64, immediates);
            let wanted = Dialect {
                immediates,
                extended,
            };
            assert_eq!(caps.dialect(), wanted, "{subgroup:?} {int64}");
            caps.lower_to_webgpu();
            let least = Dialect {
                immediates: false,
                extended: false,
            };
            assert_eq!(caps.dialect(), least);
            assert!(caps.max_binding <= 128 << 20 && caps.max_workgroup_threads == 256);
        }
    }

    #[test]
    fn a_limit_below_that_of_webgpu_is_reported() {
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
    fn the_memory_of_a_device_is_known() {
        for caps in crate::Gpu::list() {
            let Some(bytes) = caps.memory else {
                assert!(caps.backend != "vulkan", "{caps:?}");
                continue;
            };
            // A misread field would be outside of these bounds.
            assert!((64 << 20..1 << 48).contains(&bytes), "{caps:?}");
        }
    }
}
