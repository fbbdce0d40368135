//! Which adapters there are and what each can do.

use super::GpuError;

/// What an adapter is and can do.
#[derive(Debug, Clone)]
pub struct Caps {
    /// The name that the driver gives.
    pub name: String,
    /// vulkan, metal or dx12.
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
    /// Arithmetic in 16 bits.
    pub f16: bool,
    /// Tile sizes (m, n, k) of its matrix units, as the driver lists them for f16 inputs.
    pub matrix_tiles: Vec<(u32, u32, u32)>,
    /// Something without which no kernel runs, if it is missing.
    pub lacks: Option<String>,
    pub(super) rank: u32,
}

/// What every kernel needs.
const REQUIRED: wgpu::Features = wgpu::Features::IMMEDIATES;

/// What some kernels use where it is there.
const WELCOME: wgpu::Features = wgpu::Features::SUBGROUP;

/// Bytes of parameters that a kernel may have.
pub(super) const MAX_PARAMS: u32 = 128;

pub(super) fn adapters() -> Vec<(wgpu::Adapter, Caps)> {
    let mut description = wgpu::InstanceDescriptor::new_without_display_handle();
    description.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
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
#[cfg(not(target_vendor = "apple"))]
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

/// There is only Metal.
#[cfg(target_vendor = "apple")]
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
    let mut lacks =
        (!features.contains(REQUIRED)).then(|| "immediates (push constants)".to_owned());
    if limits.max_immediate_size < MAX_PARAMS {
        lacks = lacks.or(Some(format!(
            "{MAX_PARAMS} bytes of immediates, it has {}",
            limits.max_immediate_size
        )));
    }
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
#[cfg(not(target_vendor = "apple"))]
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
#[cfg(target_vendor = "apple")]
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
    let description = wgpu::DeviceDescriptor {
        label: Some("lapwing"),
        required_features: REQUIRED | adapter.features() & WELCOME,
        required_limits: adapter.limits(),
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
