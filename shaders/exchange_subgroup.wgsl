// Appended to kernels whose eight threads exchange rows, on devices with subgroups of at least eight threads. On others
// exchange_group.wgsl replaces it. A thread offers a value for each slot, all wait, each takes values of the others, and
// all wait again before the next offer.

fn offer(thread: u32, slot: u32, value: vec4<f32>) {}

fn offer_word(thread: u32, value: u32) {}

fn offered() {}

/// The value that `thread` offered for this slot. `own` is the value that this thread offered.
fn taken(own: vec4<f32>, slot: u32, thread: u32) -> vec4<f32> {
    return subgroupShuffle(own, thread);
}

fn taken_word(own: u32, thread: u32) -> u32 {
    return subgroupShuffle(own, thread);
}

fn all_taken() {}
