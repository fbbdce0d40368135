// tensor/src/ops/rope.rs: rotation of pairs of channels by an angle proportional to the position. One thread per two pairs.

const GROUP: u32 = 64u;

/// `count`, `key_count`: pairs of queries and keys; `half`: pairs of a head, an even number; `sign`: 1 forward, -1 backward;
/// `k_at`, `v_at`: places of k and v.
struct Params {
    count: u32, heads: u32, half: u32, sign: f32,
    key_count: u32, kv_heads: u32, k_at: u32, v_at: u32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<vec2<f32>>;          // (T, heads, 2, half)
@group(0) @binding(1) var<storage, read> positions: array<u32>;        // (T)
@group(0) @binding(2) var<storage, read> rotations: array<vec4<f32>>;  // (positions, half, 2): cosine, sine
@group(0) @binding(3) var<storage, read_write> y: array<vec2<f32>>;    // as x

/// The place of the pairs `i` and `i` + 1 in a tensor of so many heads, and their token.
struct Place { token: u32, first: u32 }

fn place_of(i: u32, heads: u32) -> Place {
    let head = i / params.half;
    return Place(head / heads, (head * 2u * params.half + i % params.half) / 2u);
}

/// The rotated pairs: the first numbers of both, then the second.
fn rotated(a: vec2<f32>, b: vec2<f32>, token: u32, i: u32) -> vec4<f32> {
    let turn = rotations[(positions[token] * params.half + i % params.half) / 2u];
    let cosine = turn.xz;
    let sine = params.sign * turn.yw;
    return vec4(a * cosine - b * sine, b * cosine + a * sine);
}

@compute @workgroup_size(GROUP)
fn rotate(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = 2u * flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let place = place_of(i, params.heads);
    let second = place.first + params.half / 2u;
    let pairs = rotated(x[place.first], x[second], place.token, i);
    y[place.first] = pairs.xy;
    y[second] = pairs.zw;
}

// Queries and keys of one buffer.

@group(0) @binding(0) var<storage, read_write> qkv: array<vec2<f32>>;  // as x; keys at k_at, values at v_at
@group(0) @binding(3) var<storage, read> rows: array<u32>;             // (T), distinct
@group(0) @binding(4) var<storage, read_write> keys: array<vec2<f32>>;     // (rows, kv_heads, 2, half)
@group(0) @binding(5) var<storage, read_write> values: array<vec2<f32>>;   // as keys
@group(0) @binding(6) var<storage, read_write> queries: array<vec2<f32>>;  // (T, heads, 2, half)

/// Two rotated pairs of q or k, their place in the tensor, and the start of the tensor in `qkv`.
struct Pairs { is_key: bool, place: Place, at: u32, rotated: vec4<f32> }

/// The pairs of q, then those of k.
fn rotated_pairs(i: u32) -> Pairs {
    let is_key = i >= params.count;
    let own = select(i, i - params.count, is_key);
    let place = place_of(own, select(params.heads, params.kv_heads, is_key));
    let at = select(0u, params.k_at / 2u, is_key);
    let first = at + place.first;
    return Pairs(is_key, place, at, rotated(qkv[first], qkv[first + params.half / 2u], place.token, own));
}

/// They are rotated where they are.
@compute @workgroup_size(GROUP)
fn rotate_both(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = 2u * flat_thread(id, local, GROUP);
    if i < params.count + params.key_count {
        let pairs = rotated_pairs(i);
        let first = pairs.at + pairs.place.first;
        qkv[first] = pairs.rotated.xy;
        qkv[first + params.half / 2u] = pairs.rotated.zw;
    }
}

/// Rotated keys, and values, go to the cache, and rotated queries to a tensor of their own.
@compute @workgroup_size(GROUP)
fn rotate_and_store(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = 2u * flat_thread(id, local, GROUP);
    if i >= params.count + params.key_count {
        return;
    }
    let pairs = rotated_pairs(i);
    let first = pairs.place.first;
    let apart = params.half / 2u;
    if !pairs.is_key {
        queries[first] = pairs.rotated.xy;
        queries[first + apart] = pairs.rotated.zw;
        return;
    }
    let width = params.half * params.kv_heads;
    let to = rows[pairs.place.token] * width + first % width;
    keys[to] = pairs.rotated.xy;
    keys[to + apart] = pairs.rotated.zw;
    let from_value = params.v_at / 2u + first;
    values[to] = qkv[from_value];
    values[to + apart] = qkv[from_value + apart];
}
