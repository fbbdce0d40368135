// tensor/src/ops/reduce.rs: sums.

const GROUP: u32 = 64u;

struct Params {
    /// of the input, right-aligned
    shape: vec4<u32>,
    /// 1 for an axis that is summed
    summed: vec4<u32>,
    /// elements of the result
    count: u32,
    /// for `sum_rows`: elements of a row, and of the whole input (the last row may be shorter)
    length: u32,
    total: u32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

/// The sum of each row of `length` consecutive elements, in order.
@compute @workgroup_size(GROUP)
fn sum_rows(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let first = i * params.length;
    var sum = 0.0;
    for (var j = first; j < min(first + params.length, params.total); j += 1u) {
        sum += x[j];
    }
    y[i] = sum;
}

/// Sums over the axes marked in `summed`, which keep length one.
@compute @workgroup_size(GROUP)
fn sum_axes(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let kept = select(params.shape, vec4<u32>(1u), params.summed == vec4<u32>(1u));
    let runs = select(vec4<u32>(1u), params.shape, params.summed == vec4<u32>(1u));
    var rest = i;
    let w = rest % kept.w;
    rest = rest / kept.w;
    let z = rest % kept.z;
    rest = rest / kept.z;
    let at = vec4<u32>(rest / kept.y, rest % kept.y, z, w);
    var sum = 0.0;
    for (var a = 0u; a < runs.x; a += 1u) {
        for (var b = 0u; b < runs.y; b += 1u) {
            for (var c = 0u; c < runs.z; c += 1u) {
                for (var d = 0u; d < runs.w; d += 1u) {
                    let p = at + vec4<u32>(a, b, c, d);
                    sum += x[((p.x * params.shape.y + p.y) * params.shape.z + p.z) * params.shape.w + p.w];
                }
            }
        }
    }
    y[i] = sum;
}
