// tensor/src/ops/matmul.rs: sums the results of the slices of k in order.

const GROUP: u32 = 64u;

struct Params {
    /// y is (m, n), with rows y_step numbers apart, the first at y_at.
    m: u32, n: u32, y_step: u32, y_at: u32,
    slices: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// (slices, m, n)
@group(0) @binding(0) var<storage, read> parts: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(GROUP)
fn add(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    let count = params.m * params.n;
    if i >= count {
        return;
    }
    var sum = 0.0;
    for (var slice = 0u; slice < params.slices; slice++) {
        sum += parts[slice * count + i];
    }
    y[params.y_at + i / params.n * params.y_step + i % params.n] = sum;
}
