//! Tests with buffers of tens of MiB that no kernel writes: the software driver allocates no memory for them.

use super::*;
use crate::GpuOptions;

const MIB: u64 = 1 << 20;

/// A separate device, since other tests use the shared one at the same time.
fn device() -> Gpu {
    device_with(|caps| caps.memory = None)
}

fn device_with(change: impl FnOnce(&mut crate::Caps)) -> Gpu {
    Gpu::open(GpuOptions::default()).unwrap().with_caps(change)
}

fn buffers(held: &[Binding]) -> Vec<wgpu::Buffer> {
    let buffer = |b: &Binding| b.storage.buffer().clone();
    let mut buffers: Vec<_> = held.iter().map(buffer).collect();
    buffers.sort();
    buffers
}

#[test]
fn a_step_finds_all_buffers_of_the_step_before() {
    let gpu = device();
    let weights = gpu.alloc(16 * MIB);
    // Far more than SPARE and than what stays in use between the steps.
    let step = || -> Vec<_> { (0..12).map(|i| gpu.alloc((60 + 4 * i) * MIB)).collect() };
    let first = step();
    let (made, held) = (buffers(&first), gpu.bytes_held());
    assert_eq!(gpu.bytes_in_use(), held);
    drop(first);
    for _ in 0..3 {
        assert_eq!(gpu.bytes_in_use(), weights.size);
        assert_eq!(gpu.bytes_held(), held);
        assert_eq!(buffers(&step()), made);
    }
    assert_eq!(gpu.peak_bytes(), held);
}

#[test]
fn what_is_held_stays_near_what_was_needed_at_once() {
    let gpu = device();
    let _weights: Vec<_> = (0..16).map(|_| gpu.alloc(128 * MIB)).collect();
    let mut needed = gpu.bytes_in_use();
    // Each batch has other sizes.
    for batch in 0..12 {
        let tensors: Vec<_> = (0..4)
            .map(|i| gpu.alloc((64 + 4 * (batch % 16)) * MIB + i))
            .collect();
        needed = needed.max(gpu.bytes_in_use());
        drop(tensors);
        assert!(gpu.bytes_held() <= needed + needed / 8 + SPARE);
    }
    // Without a bound these would be 4 GiB in addition to the weights.
    assert!(gpu.peak_bytes() <= needed + needed / 8 + SPARE);
    assert!(gpu.bytes_held() > needed, "nothing was kept");
}

#[test]
fn what_was_unused_longest_is_dropped_first() {
    let gpu = device();
    // Each size has its own class, and each buffer is returned before the next is taken: 64 to 112 MiB are in use at once,
    // so about 380 of these 616 MiB stay.
    let sizes = [64, 72, 80, 88, 96, 104, 112].map(|n| n * MIB);
    let used: Vec<_> = sizes
        .iter()
        .map(|size| gpu.alloc(*size).storage.buffer().clone())
        .collect();
    let kept = gpu.bytes_held();
    assert!(kept <= 112 * MIB * 9 / 8 + SPARE);
    let is_kept = |i: usize| *gpu.alloc(sizes[i]).storage.buffer() == used[i];
    assert!(is_kept(6) && is_kept(5) && is_kept(4));
    assert_eq!(gpu.bytes_held(), kept, "nothing was made");
    // Those three were used again, so the fourth is dropped next.
    drop(gpu.alloc(56 * MIB));
    assert!(is_kept(6) && is_kept(5) && is_kept(4) && !is_kept(3));
}

#[test]
fn the_peak_begins_again_from_what_is_held() {
    let gpu = device();
    assert_eq!((gpu.bytes_held(), gpu.peak_bytes()), (0, 0));
    let (a, b) = (gpu.alloc(10 * MIB), gpu.alloc(20 * MIB));
    drop(b);
    // Unused buffers count, since they occupy device memory.
    assert_eq!((gpu.bytes_in_use(), gpu.bytes_held()), (10 * MIB, 30 * MIB));
    drop((a, gpu.alloc(40 * MIB)));
    assert_eq!(gpu.peak_bytes(), 70 * MIB);
    gpu.0.pool.lock().unwrap().drop_free();
    assert_eq!((gpu.bytes_held(), gpu.peak_bytes()), (0, 70 * MIB));
    let _c = gpu.alloc(10 * MIB);
    gpu.reset_peak();
    assert_eq!(gpu.peak_bytes(), 10 * MIB);
    let _d = gpu.alloc(10 * MIB);
    assert_eq!(gpu.peak_bytes(), 20 * MIB);
}

#[test]
fn unused_buffers_go_before_the_memory_ends() {
    let gpu = device_with(|caps| caps.memory = Some(100 * MIB));
    let x = crate::Tensor::full(&gpu, &[1024], 3.0);
    let before = gpu.bytes_held();
    drop(gpu.alloc(64 * MIB));
    assert_eq!(gpu.bytes_held(), before + 64 * MIB);
    let _other = gpu.alloc(56 * MIB);
    assert_eq!(gpu.bytes_held(), gpu.bytes_in_use());
    // Earlier work is finished, and tensors keep their values.
    assert_eq!(x.to_vec().unwrap(), [3.0; 1024]);
    // Allocation beyond the reported memory is tried, since the figure may be too low.
    let _more = gpu.alloc(64 * MIB);
    assert!(gpu.bytes_held() > 100 * MIB);
    gpu.finish().unwrap();
}

#[test]
fn a_buffer_beyond_the_limit_counts_with_the_limit() {
    let gpu = device_with(|caps| caps.max_buffer = MIB);
    let small = gpu.alloc(1000);
    let large = gpu.alloc(4 * MIB);
    assert_eq!(gpu.bytes_in_use(), 1024 + MIB);
    drop(large);
    assert_eq!(gpu.bytes_in_use(), 1024);
    assert_eq!(
        gpu.bytes_held(),
        1024,
        "a replacement for a failed buffer is not kept"
    );
    drop(small);
    assert_eq!(gpu.bytes_in_use(), 0);
    let error = gpu.finish().unwrap_err().to_string();
    assert!(
        error.contains("a buffer of 4194304 bytes, the device allows 1048576"),
        "{error}"
    );
}

#[test]
fn a_texture_holds_what_was_written_to_it_or_copied() {
    let gpu = device();
    // Three rows and ten texels.
    let bytes: Vec<u8> = (0..3 * TEXTURE_ROW + 160)
        .map(|i| (i * 7 % 251) as u8)
        .collect();
    let written = gpu.alloc_texture(bytes.len() as u64);
    // Within a row; to its end; the rest, with whole rows and the start of the last one.
    let mut at = 0;
    for length in [160, TEXTURE_ROW as usize - 160 - 16, 16 + 16, bytes.len()] {
        let end = bytes.len().min(at + length);
        written.write(at as u64, &bytes[at..end]);
        at = end;
    }
    assert!(written.read::<u8>().unwrap() == bytes, "written");
    let copied = gpu.upload(&bytes).in_texture();
    assert!(copied.read::<u8>().unwrap() == bytes, "copied");
    for (i, part) in Binding::together(&[&written, &copied, &written])
        .unwrap()
        .iter()
        .enumerate()
    {
        assert!(part.is_texture() && part.seen_at() == i as u64 * 4 * TEXTURE_ROW);
        assert!(part.read::<u8>().unwrap() == bytes, "part {i}");
    }
}
