// tensor/src/ops/probe.rs: chains of multiplications and additions, and a copy, to measure the speed of a device.

const GROUP: u32 = 64u;

struct Params { count: u32, rounds: u32, factor: f32, more: f32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read_write> y: array<f32>;

@group(0) @binding(0) var<storage, read> input: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<f32>>;

/// Sixteen independent chains, each with four steps x = x factor + more in a round.
@compute @workgroup_size(GROUP)
fn chains(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let start = f32(i % 16u);
    let factor = vec4<f32>(params.factor);
    let more = vec4<f32>(params.more);
    var a = vec4<f32>(start, start + 1.0, start + 2.0, start + 3.0);
    var b = a + 4.0;
    var c = a + 8.0;
    var d = a + 12.0;
    for (var round = 0u; round < params.rounds; round += 1u) {
        for (var step = 0u; step < 4u; step += 1u) {
            a = a * factor + more;
            b = b * factor + more;
            c = c * factor + more;
            d = d * factor + more;
        }
    }
    let sum = a + b + c + d;
    y[i] = sum.x + sum.y + sum.z + sum.w;
}

/// Four numbers in each thread.
@compute @workgroup_size(GROUP)
fn copy(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count {
        output[i] = input[i];
    }
}
