// tensor/src/ops/attention.rs: scaled dot-product attention over the keys that each query sees, and its gradients.
//
// All threads of a group read the same key (or, in `keys_backward`, the same query) at the same time: one load serves
// them all, on a GPU from the cache and on a processor as one scalar. Exponentials are powers of two.

const HEAD_SIZE: u32 = 16u;
/// Query heads that share a key head.
const SHARING: u32 = 1u;
/// Queries, or keys, of a block.
const BLOCK: u32 = 8u;

const PARTS: u32 = HEAD_SIZE / 4u;
const LANES: u32 = BLOCK * SHARING;
const LOG2_E: f32 = 1.4426950408889634;

/// `count`: queries, which in a tree are the keys too; `values_at`: where dv begins in `gradients`, in parts.
struct Params { count: u32, heads: u32, kv_heads: u32, groups: u32, scale: f32, values_at: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;     // (queries, heads, PARTS)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;     // (keys, kv_heads, PARTS)
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;     // (keys, kv_heads, PARTS)
@group(0) @binding(3) var<storage, read> walk: array<u32>;        // QueryWalk or KeyWalk of visibility.rs
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;  // as q
/// log2 of the sum of 2^score, for the gradients.
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>;  // (queries, heads)

@group(0) @binding(0) var<storage, read> kept_y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kept_log_sums: array<f32>;
@group(0) @binding(2) var<storage, read> upstream: array<vec4<f32>>;
/// The log sum, and dy · y.
@group(0) @binding(3) var<storage, read_write> row_sums: array<vec2<f32>>;  // (queries, heads)

@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> kept_row_sums: array<vec2<f32>>;
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> gradients: array<vec4<f32>>;  // dk, then dv

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;  // as gradients, BLOCK keys an item
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> summed: array<vec4<f32>>;

/// The threads of a group: `local % BLOCK` is the query, `local / BLOCK` which of the heads that share a key head.
@compute @workgroup_size(LANES)
fn forward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = flat_group(group, groups);
    if index >= params.groups {
        return;
    }
    let block = index / params.kv_heads;
    let kv_head = index % params.kv_heads;
    // Threads beyond the last query do it again and write nothing.
    let query = block * BLOCK + local % BLOCK;
    let row = min(query, params.count - 1u) * params.heads + kv_head * SHARING + local / BLOCK;

    var own: array<vec4<f32>, PARTS>;
    var sum: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own[i] = q[row * PARTS + i] * (params.scale * LOG2_E);
        sum[i] = vec4<f32>();
    }
    var highest = LOWEST;
    var total = 0.0;
    for (var item = walk[block]; item < walk[block + 1u]; item += 3u) {
        let mine = ((walk[item + 2u] >> (local % BLOCK)) & 1u) == 1u;
        for (var key = walk[item]; key < walk[item + 1u]; key += 1u) {
            let at = (key * params.kv_heads + kv_head) * PARTS;
            var products = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                products += own[i] * k[at + i];
            }
            let score = select(LOWEST, products.x + products.y + products.z + products.w, mine);
            // One exponential: either the new key shrinks the sum or the sum so far shrinks the new key.
            let rise = score - highest;
            let small = exp2(-abs(rise));
            let shrink = select(1.0, small, rise > 0.0);
            let weight = select(select(small, 1.0, rise > 0.0), 0.0, !mine);
            highest = max(highest, score);
            total = total * shrink + weight;
            for (var i = 0u; i < PARTS; i += 1u) {
                sum[i] = sum[i] * shrink + weight * v[at + i];
            }
        }
    }
    if query < params.count {
        for (var i = 0u; i < PARTS; i += 1u) {
            y[row * PARTS + i] = sum[i] / total;
        }
        log_sums[row] = highest + log2(total);
    }
}

/// What both gradient walks need of each row, put side by side. One thread a row.
@compute @workgroup_size(64)
fn sum_rows(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = flat_thread(group, groups, local, 64u);
    if row >= params.count * params.heads {
        return;
    }
    var products = vec4<f32>();
    for (var i = 0u; i < PARTS; i += 1u) {
        products += kept_y[row * PARTS + i] * upstream[row * PARTS + i];
    }
    row_sums[row] = vec2<f32>(kept_log_sums[row], products.x + products.y + products.z + products.w);
}

/// dq, with the threads and the walk of `forward`.
@compute @workgroup_size(LANES)
fn queries_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = flat_group(group, groups);
    if index >= params.groups {
        return;
    }
    let block = index / params.kv_heads;
    let kv_head = index % params.kv_heads;
    let query = block * BLOCK + local % BLOCK;
    let row = min(query, params.count - 1u) * params.heads + kv_head * SHARING + local / BLOCK;

    var own: array<vec4<f32>, PARTS>;
    var own_dy: array<vec4<f32>, PARTS>;
    var sum: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own[i] = q[row * PARTS + i] * (params.scale * LOG2_E);
        own_dy[i] = dy[row * PARTS + i];
        sum[i] = vec4<f32>();
    }
    let sums = kept_row_sums[row];
    for (var item = walk[block]; item < walk[block + 1u]; item += 3u) {
        let mine = ((walk[item + 2u] >> (local % BLOCK)) & 1u) == 1u;
        for (var key = walk[item]; key < walk[item + 1u]; key += 1u) {
            let at = (key * params.kv_heads + kv_head) * PARTS;
            var scores = vec4<f32>();
            var slopes = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                scores += own[i] * k[at + i];
                slopes += own_dy[i] * v[at + i];
            }
            let probability = exp2(scores.x + scores.y + scores.z + scores.w - sums.x);
            let slope = probability * (slopes.x + slopes.y + slopes.z + slopes.w - sums.y);
            // A key that is not seen may have a score above the log sum, and an infinite exponential.
            let weight = select(0.0, slope, mine);
            for (var i = 0u; i < PARTS; i += 1u) {
                sum[i] += weight * k[at + i];
            }
        }
    }
    if query < params.count {
        for (var i = 0u; i < PARTS; i += 1u) {
            dq[row * PARTS + i] = sum[i] * params.scale;
        }
    }
}

/// dk and dv: one thread a key and key head, over the queries of one item and all heads that share the key head.
@compute @workgroup_size(BLOCK)
fn keys_backward(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let index = flat_group(group, groups);
    if index >= params.groups {
        return;
    }
    let item = params.count + index / params.kv_heads * 3u;
    let kv_head = index % params.kv_heads;
    let key = walk[item] + local;
    let known_key = min(key, params.count - 1u);
    let until = walk[known_key];

    let own_row = (known_key * params.kv_heads + kv_head) * PARTS;
    var own_k: array<vec4<f32>, PARTS>;
    var own_v: array<vec4<f32>, PARTS>;
    var dk: array<vec4<f32>, PARTS>;
    var dv: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own_k[i] = k[own_row + i] * (params.scale * LOG2_E);
        own_v[i] = v[own_row + i];
        dk[i] = vec4<f32>();
        dv[i] = vec4<f32>();
    }
    for (var query = walk[item + 1u]; query < walk[item + 2u]; query += 1u) {
        let mine = key <= query && query < until;
        for (var head = kv_head * SHARING; head < (kv_head + 1u) * SHARING; head += 1u) {
            let row = query * params.heads + head;
            let at = row * PARTS;
            var scores = vec4<f32>();
            var slopes = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                scores += own_k[i] * q[at + i];
                slopes += own_v[i] * dy[at + i];
            }
            let sums = kept_row_sums[row];
            let exponential = exp2(scores.x + scores.y + scores.z + scores.w - sums.x);
            let probability = select(0.0, exponential, mine);
            let slope = probability * (slopes.x + slopes.y + slopes.z + slopes.w - sums.y);
            for (var i = 0u; i < PARTS; i += 1u) {
                dk[i] += slope * q[at + i];
                dv[i] += probability * dy[at + i];
            }
        }
    }
    // With one item a block of keys, this is the key itself.
    let slot = index / params.kv_heads * BLOCK + local;
    if key < params.count {
        let to = (slot * params.kv_heads + kv_head) * PARTS;
        for (var i = 0u; i < PARTS; i += 1u) {
            gradients[to + i] = dk[i] * params.scale;
            gradients[params.values_at + to + i] = dv[i];
        }
    }
}

/// Adds the parts of blocks of keys that were cut, in their order. One thread four numbers. `groups` is where dv
/// begins in `summed`.
@compute @workgroup_size(64)
fn sum_items(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let width = params.kv_heads * PARTS;
    let i = flat_thread(group, groups, local, 64u);
    if i >= params.count * width {
        return;
    }
    let key = i / width;
    let block = key / BLOCK;
    var dk = vec4<f32>();
    var dv = vec4<f32>();
    for (var item = starts[block]; item < starts[block + 1u]; item += 1u) {
        let at = (item * BLOCK + key % BLOCK) * width + i % width;
        dk += partial[at];
        dv += partial[params.values_at + at];
    }
    summed[i] = dk;
    summed[params.groups + i] = dv;
}
