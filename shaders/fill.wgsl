// tensor/src/gpu/mod.rs: sets every word of a buffer to the same bits.

const GROUP: u32 = 64u;

struct Params { count: u32, bits: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> y: array<u32>;

@compute @workgroup_size(GROUP)
fn fill(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // Four words per thread.
    let first = 4u * flat_thread(id, local, GROUP);
    for (var i = first; i < min(first + 4u, params.count); i += 1u) {
        y[i] = params.bits;
    }
}
