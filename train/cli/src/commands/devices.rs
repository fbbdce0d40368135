//! `lapwing devices`: the devices, the default one, and what each can do.

use std::io::Write;

use anyhow::Result;
use indicatif::BinaryBytes;
use lapwing_tensor::{Caps, Gpu, GpuError};
use serde_json::{Value, json};

use crate::args::DeviceArgs;
use crate::{DRIVER_THREADS, out};

pub fn list(selected: DeviceArgs, is_json: bool) -> Result<()> {
    let found = Gpu::list();
    if found.is_empty() {
        return Err(Gpu::none_found().into());
    }
    if let Some(index) = selected.index.filter(|&index| index >= found.len()) {
        let found = found.into_iter().map(|caps| caps.name).collect();
        return Err(GpuError::NoSuchDevice { index, found }.into());
    }
    let used = selected.index.or_else(|| Gpu::choice(found.iter()));
    if is_json {
        let devices = found.iter().enumerate();
        let devices = devices.map(|(index, caps)| {
            let used = used == Some(index);
            json!({ "index": index, "used": used, "lacks": caps.lacks, "device": caps })
        });
        writeln!(out::raw(), "{}", Value::from_iter(devices))?;
        return Ok(());
    }
    let mut out = out::shown();
    for (index, caps) in found.iter().enumerate() {
        write!(out, "{}", describe(index, caps, used == Some(index)))?;
    }
    let hint = match used {
        Some(_) => "Select another one with --device N or LAPWING_DEVICE=N.",
        None => "None of these can run lapwing: install or update a driver.",
    };
    writeln!(out, "{hint}")?;
    Ok(())
}

fn describe(index: usize, caps: &Caps, is_used: bool) -> String {
    let mark = if is_used { "   <- will be used" } else { "" };
    let mut text = format!("{index}: {}{mark}\n", caps.name);
    let mut line = |name: &str, value: String| text += &format!("   {name:10} {value}\n");
    line("kind", format!("{}, {}", caps.kind, caps.backend));
    line("driver", caps.driver.clone());
    line("memory", caps.memory.map_or("unknown".to_owned(), size));
    let (buffer, seen) = (size(caps.max_buffer), size(caps.max_binding));
    line(
        "buffers",
        format!("up to {buffer}, of which a kernel sees {seen}"),
    );
    let memory = size(u64::from(caps.max_workgroup_memory));
    let (threads, subgroup) = (caps.max_workgroup_threads, subgroup(caps.subgroup));
    let workgroups = format!("up to {threads} threads with {memory} of shared memory{subgroup}");
    line("workgroups", workgroups);
    let bits = match caps.f16 {
        true => "arithmetic and storage",
        false => "storage only",
    };
    line("16 bits", bits.to_owned());
    let integers = match caps.int64 {
        true => "integers",
        false => "no integers",
    };
    line("64 bits", integers.to_owned());
    line("matrices", tiles(&caps.matrix_tiles));
    if let Some(lacks) = &caps.lacks {
        line("unusable", format!("it lacks {lacks}"));
    }
    if caps.is_software {
        let note = "runs on the processor: slow, with the same results";
        line("software", note.to_owned());
    }
    if let Ok(threads) = std::env::var(DRIVER_THREADS)
        && caps.driver.starts_with("llvmpipe")
    {
        line("threads", format!("{threads} ({DRIVER_THREADS})"));
    }
    text
}

fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

fn subgroup((least, most): (u32, u32)) -> String {
    match (least, most) {
        (0, _) | (_, 0) => String::new(),
        (least, most) if least == most => format!(", subgroups of {most}"),
        (least, most) => format!(", subgroups of {least} to {most}"),
    }
}

fn tiles(tiles: &[(u32, u32, u32)]) -> String {
    if tiles.is_empty() {
        return "no matrix units".to_owned();
    }
    let tiles = tiles.iter().map(|(m, n, k)| format!("{m}x{n}x{k}"));
    let tiles: Vec<String> = tiles.collect();
    format!("units for f16 tiles of {}", tiles.join(", "))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn devices_are_described() {
        let Some(mut caps) = Gpu::list().into_iter().next() else {
            panic!("{}", GpuError::NoDevice);
        };
        caps.name = "Example 9000".to_owned();
        caps.backend = "vulkan".to_owned();
        caps.driver = "example 1.2".to_owned();
        caps.kind = "discrete";
        caps.is_software = false;
        caps.memory = Some(24 << 30);
        (caps.max_buffer, caps.max_binding) = (4 << 30, 2 << 30);
        (caps.max_workgroup_memory, caps.max_workgroup_threads) = (48 << 10, 1024);
        (caps.subgroup, caps.f16, caps.int64) = ((32, 32), true, true);
        caps.matrix_tiles = vec![(16, 16, 16)];
        caps.lacks = None;
        assert_snapshot!(describe(0, &caps, true), @"
        0: Example 9000   <- will be used
           kind       discrete, vulkan
           driver     example 1.2
           memory     24.00 GiB
           buffers    up to 4.00 GiB, of which a kernel sees 2.00 GiB
           workgroups up to 1024 threads with 48.00 KiB of shared memory, subgroups of 32
           16 bits    arithmetic and storage
           64 bits    integers
           matrices   units for f16 tiles of 16x16x16
        ");
        caps.memory = None;
        caps.kind = "software";
        caps.is_software = true;
        (caps.subgroup, caps.f16, caps.int64) = ((0, 0), false, false);
        caps.matrix_tiles = Vec::new();
        caps.lacks = Some("immediates".to_owned());
        assert_snapshot!(describe(1, &caps, false), @"
        1: Example 9000
           kind       software, vulkan
           driver     example 1.2
           memory     unknown
           buffers    up to 4.00 GiB, of which a kernel sees 2.00 GiB
           workgroups up to 1024 threads with 48.00 KiB of shared memory
           16 bits    storage only
           64 bits    no integers
           matrices   no matrix units
           unusable   it lacks immediates
           software   runs on the processor: slow, with the same results
        ");
    }
}
