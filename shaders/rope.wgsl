// tensor/src/ops/rope.rs: rotation of pairs of channels by an angle proportional to the position.

const GROUP: u32 = 64u;

/// `half`: pairs of a head; `sign`: 1 forward, -1 backward.
struct Params { count: u32, heads: u32, half: u32, sign: f32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;           // (T, heads, 2, half)
@group(0) @binding(1) var<storage, read> positions: array<u32>;   // (T)
@group(0) @binding(2) var<storage, read> rotations: array<vec2<f32>>;  // (positions, half): cosine, sine
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // as x

/// One thread per pair.
@compute @workgroup_size(GROUP)
fn rotate(id: Invocation) {
    let i = flat_thread(id, GROUP);
    if i >= params.count {
        return;
    }
    let head = i / params.half;
    let pair = i % params.half;
    let position = positions[head / params.heads];
    let turn = rotations[position * params.half + pair];
    let sine = params.sign * turn.y;
    let first = head * 2u * params.half + pair;
    let a = x[first];
    let b = x[first + params.half];
    y[first] = a * turn.x - b * sine;
    y[first + params.half] = b * turn.x + a * sine;
}
