// tensor/src/ops/adamw.rs: addition of gradients to the arena.

const GROUP: u32 = 64u;

struct Params {
    /// The offset in the arena and the length of each added tensor. Not arrays, since HLSL aligns their elements to 16
    /// bytes.
    offset_0: u32,
    offset_1: u32,
    offset_2: u32,
    offset_3: u32,
    offset_4: u32,
    offset_5: u32,
    length_0: u32,
    length_1: u32,
    length_2: u32,
    length_3: u32,
    length_4: u32,
    length_5: u32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> gradients: array<f32>;

@group(0) @binding(1) var<storage, read> added_0: array<f32>;
@group(0) @binding(2) var<storage, read> added_1: array<f32>;
@group(0) @binding(3) var<storage, read> added_2: array<f32>;
@group(0) @binding(4) var<storage, read> added_3: array<f32>;
@group(0) @binding(5) var<storage, read> added_4: array<f32>;
@group(0) @binding(6) var<storage, read> added_5: array<f32>;

/// gradients[offset_k + i] += added_k[i] for six tensors (unused ones have length 0). A training step has dozens of small
/// tensors, for which a dispatch costs more than the sum.
@compute @workgroup_size(GROUP)
fn add(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    var i = flat_thread(id, local, GROUP);
    if i < params.length_0 {
        gradients[params.offset_0 + i] += added_0[i];
        return;
    }
    i -= params.length_0;
    if i < params.length_1 {
        gradients[params.offset_1 + i] += added_1[i];
        return;
    }
    i -= params.length_1;
    if i < params.length_2 {
        gradients[params.offset_2 + i] += added_2[i];
        return;
    }
    i -= params.length_2;
    if i < params.length_3 {
        gradients[params.offset_3 + i] += added_3[i];
        return;
    }
    i -= params.length_3;
    if i < params.length_4 {
        gradients[params.offset_4 + i] += added_4[i];
        return;
    }
    i -= params.length_4;
    if i < params.length_5 {
        gradients[params.offset_5 + i] += added_5[i];
    }
}
