// Replaces exchange_subgroup.wgsl where subgroups cannot exchange values or are too small. Uses workgroup memory. The
// kernel defines SLOTS.

var<workgroup> table: array<vec4<f32>, 8u * SLOTS>;
var<workgroup> words: array<u32, 8>;

fn offer(thread: u32, slot: u32, value: vec4<f32>) {
    table[thread * SLOTS + slot] = value;
}

fn offer_word(thread: u32, value: u32) {
    words[thread] = value;
}

fn offered() {
    workgroupBarrier();
}

fn taken(own: vec4<f32>, slot: u32, thread: u32) -> vec4<f32> {
    return table[thread * SLOTS + slot];
}

fn taken_word(own: u32, thread: u32) -> u32 {
    return words[thread];
}

fn all_taken() {
    workgroupBarrier();
}
