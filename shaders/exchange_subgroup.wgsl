// Put behind the kernels whose eight threads hand rows to each other, where an adapter exchanges values within a subgroup
// of at least eight. exchange_group.wgsl does the same elsewhere. A thread offers its value of each slot, all wait, each
// takes the values of the others, and all wait again before the next are offered.

fn offer(thread: u32, slot: u32, value: vec4<f32>) {}

fn offer_word(thread: u32, value: u32) {}

fn offered() {}

/// The value that `thread` offered as this slot, of which `own` is what this thread offered.
fn taken(own: vec4<f32>, slot: u32, thread: u32) -> vec4<f32> {
    return subgroupShuffle(own, thread);
}

fn taken_word(own: u32, thread: u32) -> u32 {
    return subgroupShuffle(own, thread);
}

fn all_taken() {}
