// tensor/src/ops/rope.rs: rotation of pairs of channels by an angle proportional to the position.

const GROUP: u32 = 64u;

/// `count`, `key_count`: pairs of queries and keys; `half`: pairs of a head; `sign`: 1 forward, -1 backward.
struct Params {
    count: u32, heads: u32, half: u32, sign: f32,
    key_count: u32, kv_heads: u32, k_at: u32, v_at: u32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;           // (T, heads, 2, half)
@group(0) @binding(1) var<storage, read> positions: array<u32>;   // (T)
@group(0) @binding(2) var<storage, read> rotations: array<vec2<f32>>;  // (positions, half): cosine, sine
@group(0) @binding(3) var<storage, read_write> y: array<f32>;     // as x

/// One thread per pair.
@compute @workgroup_size(GROUP)
fn rotate(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
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

// Queries and keys of one buffer.

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;  // (T, heads, 2, half), keys at k_at, values at v_at
@group(0) @binding(3) var<storage, read> rows: array<u32>;  // (T), distinct
@group(0) @binding(4) var<storage, read_write> keys: array<f32>;    // (rows, kv_heads, 2, half)
@group(0) @binding(5) var<storage, read_write> values: array<f32>;  // as keys
@group(0) @binding(6) var<storage, read_write> queries: array<f32>;  // (T, heads, 2, half)

/// A rotated pair of q or k: its place in the tensor, the start of the tensor in `qkv`, and the values.
struct Pair { is_key: bool, token: u32, place: u32, at: u32, rotated: vec2<f32> }

/// The pairs of q, then those of k.
fn rotated_pair(i: u32) -> Pair {
    let is_key = i >= params.count;
    let head = select(i, i - params.count, is_key) / params.half;
    let token = head / select(params.heads, params.kv_heads, is_key);
    let place = head * 2u * params.half + i % params.half;
    let at = select(0u, params.k_at, is_key);
    let turn = rotations[positions[token] * params.half + i % params.half];
    let a = qkv[at + place];
    let b = qkv[at + place + params.half];
    return Pair(is_key, token, place, at, vec2(a * turn.x - b * turn.y, b * turn.x + a * turn.y));
}

/// They are rotated where they are.
@compute @workgroup_size(GROUP)
fn rotate_both(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i < params.count + params.key_count {
        let pair = rotated_pair(i);
        qkv[pair.at + pair.place] = pair.rotated.x;
        qkv[pair.at + pair.place + params.half] = pair.rotated.y;
    }
}

/// Rotated keys, and values, go to the cache, and rotated queries to a tensor of their own.
@compute @workgroup_size(GROUP)
fn rotate_and_store(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count + params.key_count {
        return;
    }
    let pair = rotated_pair(i);
    if !pair.is_key {
        queries[pair.place] = pair.rotated.x;
        queries[pair.place + params.half] = pair.rotated.y;
        return;
    }
    let width = 2u * params.half * params.kv_heads;
    let to = rows[pair.token] * width + pair.place % width;
    keys[to] = pair.rotated.x;
    keys[to + params.half] = pair.rotated.y;
    values[to] = qkv[params.v_at + pair.place];
    values[to + params.half] = qkv[params.v_at + pair.place + params.half];
}
