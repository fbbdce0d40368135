// tensor/src/ops/binary.rs: two tensors element by element, with broadcasting over up to four axes.

const GROUP: u32 = 64u;
/// The numbering is that of `BinaryFunction` in binary.rs.
const FUNCTION: u32 = 0u;

/// The shape of the result, right-aligned, and the step of each input along each axis (0 if it is broadcast).
struct Params { shape: vec4<u32>, a_steps: vec4<u32>, b_steps: vec4<u32>, count: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> left: array<f32>;
@group(0) @binding(1) var<storage, read> right: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn apply(a: f32, b: f32) -> f32 {
    switch FUNCTION {
        case 0u: { return a + b; }
        case 1u: { return a - b; }
        case 2u: { return a * b; }
        case 3u: { return a / b; }
        case 4u: { return min(a, b); }
        case 5u: { return max(a, b); }
        // MinSlope: half to each input where they are equal
        default: { return select(select(0.0, 0.5, a == b), 1.0, a < b); }
    }
}

@compute @workgroup_size(GROUP)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    var rest = i;
    let w = rest % params.shape.w;
    rest = rest / params.shape.w;
    let z = rest % params.shape.z;
    rest = rest / params.shape.z;
    let at = vec4<u32>(rest / params.shape.y, rest % params.shape.y, z, w);
    let a = at * params.a_steps;
    let b = at * params.b_steps;
    y[i] = apply(left[a.x + a.y + a.z + a.w], right[b.x + b.y + b.z + b.w]);
}

/// The same without broadcasting.
@compute @workgroup_size(GROUP)
fn forward_flat(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        y[i] = apply(left[i], right[i]);
    }
}
