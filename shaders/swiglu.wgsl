// tensor/src/ops/swiglu.rs: silu(gate) * up. A thread has four elements (`count` fours), of which some may be padding.

const GROUP: u32 = 64u;

struct Params { count: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> dgate: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> dup: array<vec4<f32>>;

fn sigmoid(v: vec4<f32>) -> vec4<f32> {
    return 1.0 / (1.0 + exp(-v));
}

@compute @workgroup_size(GROUP)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

@compute @workgroup_size(GROUP)
fn backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        let g = gate[i];
        let s = sigmoid(g);
        dgate[i] = dy[i] * up[i] * s * (1.0 + g * (1.0 - s));
        dup[i] = dy[i] * g * s;
    }
}
