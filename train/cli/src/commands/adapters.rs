//! `lapwing adapters`: what was found, what will be used, what it can do.

use std::io::Write;

use anyhow::Result;
use indicatif::BinaryBytes;
use lapwing_tensor::{Caps, Gpu, GpuError};

use crate::out;

/// Lists the adapters; `asked` is the one that was asked for by number.
pub fn list(asked: Option<usize>) -> Result<()> {
    let found = Gpu::list();
    if found.is_empty() {
        return Err(Gpu::none_found().into());
    }
    if let Some(index) = asked.filter(|&index| index >= found.len()) {
        return Err(GpuError::NoSuchDevice {
            index,
            found: found.iter().map(|caps| caps.name.clone()).collect(),
        }
        .into());
    }
    let used = asked.or_else(|| Gpu::choice(found.iter()));
    let mut out = out::shown();
    for (index, caps) in found.iter().enumerate() {
        write!(out, "{}", describe(index, caps, used == Some(index)))?;
    }
    match used {
        Some(_) => writeln!(
            out,
            "Choose another with --adapter-index N, or with LAPWING_ADAPTER_INDEX."
        )?,
        None => writeln!(
            out,
            "None of these can run lapwing: install or update a driver."
        )?,
    }
    Ok(())
}

fn describe(index: usize, caps: &Caps, used: bool) -> String {
    let mut text = format!(
        "{index}: {}{}\n",
        caps.name,
        if used { "   <- will be used" } else { "" }
    );
    let mut line = |name: &str, value: String| text += &format!("   {name:10} {value}\n");
    line("kind", format!("{}, {}", caps.kind, caps.backend));
    line("driver", caps.driver.clone());
    line("memory", caps.memory.map_or("not known".to_owned(), size));
    line(
        "buffers",
        format!(
            "up to {}, of which a kernel sees {}",
            size(caps.max_buffer),
            size(caps.max_binding)
        ),
    );
    let memory = size(u64::from(caps.max_workgroup_memory));
    line(
        "groups",
        format!(
            "up to {} threads sharing {memory}{}",
            caps.max_workgroup_threads,
            subgroups(caps.subgroup)
        ),
    );
    line(
        "16 bits",
        if caps.f16 {
            "arithmetic and storage"
        } else {
            "storage only"
        }
        .to_owned(),
    );
    line("matrices", tiles(&caps.matrix_tiles));
    if let Some(lacks) = &caps.lacks {
        line("unusable", format!("it lacks {lacks}"));
    }
    if caps.is_software {
        line(
            "software",
            "there is no GPU behind it: the processor does the work, which is slow but the same"
                .to_owned(),
        );
    }
    text
}

fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

fn subgroups((least, most): (u32, u32)) -> String {
    match (least, most) {
        (0, _) | (_, 0) => String::new(),
        (least, most) if least == most => format!(", {most} of them in step"),
        (least, most) => format!(", {least} to {most} of them in step"),
    }
}

fn tiles(tiles: &[(u32, u32, u32)]) -> String {
    if tiles.is_empty() {
        return "no matrix units".to_owned();
    }
    let tiles: Vec<String> = tiles
        .iter()
        .map(|(m, n, k)| format!("{m}x{n}x{k}"))
        .collect();
    format!("units for f16 tiles of {}", tiles.join(", "))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn adapters_read_so() {
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
        (caps.subgroup, caps.f16) = ((32, 32), true);
        caps.matrix_tiles = vec![(16, 16, 16)];
        caps.lacks = None;
        assert_snapshot!(describe(0, &caps, true), @"
        0: Example 9000   <- will be used
           kind       discrete, vulkan
           driver     example 1.2
           memory     24.00 GiB
           buffers    up to 4.00 GiB, of which a kernel sees 2.00 GiB
           groups     up to 1024 threads sharing 48.00 KiB, 32 of them in step
           16 bits    arithmetic and storage
           matrices   units for f16 tiles of 16x16x16
        ");
        caps.memory = None;
        caps.kind = "software";
        caps.is_software = true;
        (caps.subgroup, caps.f16) = ((0, 0), false);
        caps.matrix_tiles = Vec::new();
        caps.lacks = Some("immediates".to_owned());
        assert_snapshot!(describe(1, &caps, false), @"
        1: Example 9000
           kind       software, vulkan
           driver     example 1.2
           memory     not known
           buffers    up to 4.00 GiB, of which a kernel sees 2.00 GiB
           groups     up to 1024 threads sharing 48.00 KiB
           16 bits    storage only
           matrices   no matrix units
           unusable   it lacks immediates
           software   there is no GPU behind it: the processor does the work, which is slow but the same
        ");
    }
}
