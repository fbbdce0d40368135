// tensor/src/ops/attention.rs: attention for processors (lavapipe: eight threads in lockstep).
//
// On lavapipe a load costs a nanosecond per number and thread, even if all threads read the same address. So each of the
// eight threads loads one of eight rows, and the threads exchange the rows (exchange_subgroup.wgsl). BLOCK is 8, and the
// walk lists single keys.

/// Query heads that share a key head.
const SHARING: u32 = 1u;
/// Queries, or keys, of a block.
const BLOCK: u32 = 8u;

/// A row of each of two tensors, and a vector of other values.
const SLOTS: u32 = 2u * PARTS + 1u;

/// Query heads of a workgroup of `forward`: one, or all that share a key head, so that few queries waste few threads.
const HEADS: u32 = 1u;

/// One thread per query and head.
@compute @workgroup_size(BLOCK)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    const QUERIES = BLOCK / HEADS;
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index * HEADS / params.heads;
    let head = index * HEADS % params.heads + local % HEADS;
    // Surplus threads repeat a query and write nothing.
    let place = min(local / HEADS, QUERIES - 1u);
    let query = block * QUERIES + place;
    let is_surplus = local >= QUERIES * HEADS || query >= params.count;
    let row = min(query, params.count - 1u) * params.heads + head;

    var own: array<vec4<f32>, PARTS>;
    var sum: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own[i] = q[row * PARTS + i] * (params.scale * LOG2_E);
        sum[i] = vec4<f32>();
    }
    var highest = LOWEST;
    var total = 0.0;
    let end = walk[block + 1u];
    for (var tile = walk[block]; tile < end; tile += 2u * BLOCK) {
        let entry = min(tile + 2u * local, end - 2u);
        let at = (walk[entry] * params.kv_heads + head / SHARING) * PARTS;
        let loaded_mask = walk[entry + 1u];
        var loaded_k: array<vec4<f32>, PARTS>;
        var loaded_v: array<vec4<f32>, PARTS>;
        for (var i = 0u; i < PARTS; i += 1u) {
            loaded_k[i] = k[at + i];
            loaded_v[i] = v[at + i];
            offer(local, i, loaded_k[i]);
            offer(local, PARTS + i, loaded_v[i]);
        }
        offer_word(local, loaded_mask);
        offered();
        for (var n = 0u; n < min(BLOCK, (end - tile) / 2u); n += 1u) {
            let mine = ((taken_word(loaded_mask, n) >> place) & 1u) == 1u;
            var products = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                products += own[i] * taken(loaded_k[i], i, n);
            }
            let met = meet(highest, dot_of(products), mine);
            highest = met.highest;
            total = total * met.shrink + met.weight;
            for (var i = 0u; i < PARTS; i += 1u) {
                sum[i] = sum[i] * met.shrink + met.weight * taken(loaded_v[i], PARTS + i, n);
            }
        }
        all_taken();
    }
    if !is_surplus {
        for (var i = 0u; i < PARTS; i += 1u) {
            y[row * PARTS + i] = sum[i] / total;
        }
        log_sums[row] = highest + log2(total);
    }
}

/// Puts the log sum and dy · y of each row side by side for both gradients. One thread per row.
@compute @workgroup_size(64)
fn sum_rows(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = flat_thread(id, local, 64u);
    if row >= params.count * params.heads {
        return;
    }
    var products = vec4<f32>();
    for (var i = 0u; i < PARTS; i += 1u) {
        products += kept_y[row * PARTS + i] * upstream[row * PARTS + i];
    }
    row_sums[row] = vec2<f32>(kept_log_sums[row], dot_of(products));
}

/// dq: one thread per query, one workgroup per eight queries and head.
@compute @workgroup_size(BLOCK)
fn queries_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / params.heads;
    let head = index % params.heads;
    let query = block * BLOCK + local;
    let row = min(query, params.count - 1u) * params.heads + head;

    var own: array<vec4<f32>, PARTS>;
    var own_dy: array<vec4<f32>, PARTS>;
    var sum: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own[i] = q[row * PARTS + i] * (params.scale * LOG2_E);
        own_dy[i] = dy[row * PARTS + i];
        sum[i] = vec4<f32>();
    }
    let sums = kept_row_sums[row];
    let end = walk[block + 1u];
    for (var tile = walk[block]; tile < end; tile += 2u * BLOCK) {
        let place = min(tile + 2u * local, end - 2u);
        let at = (walk[place] * params.kv_heads + head / SHARING) * PARTS;
        let loaded_mask = walk[place + 1u];
        var loaded_k: array<vec4<f32>, PARTS>;
        var loaded_v: array<vec4<f32>, PARTS>;
        for (var i = 0u; i < PARTS; i += 1u) {
            loaded_k[i] = k[at + i];
            loaded_v[i] = v[at + i];
            offer(local, i, loaded_k[i]);
            offer(local, PARTS + i, loaded_v[i]);
        }
        offer_word(local, loaded_mask);
        offered();
        for (var n = 0u; n < min(BLOCK, (end - tile) / 2u); n += 1u) {
            let mine = ((taken_word(loaded_mask, n) >> local) & 1u) == 1u;
            var key: array<vec4<f32>, PARTS>;
            var scores = vec4<f32>();
            var slopes = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                key[i] = taken(loaded_k[i], i, n);
                scores += own[i] * key[i];
                slopes += own_dy[i] * taken(loaded_v[i], PARTS + i, n);
            }
            let weight = weigh(dot_of(scores), dot_of(slopes), sums, mine).y;
            for (var i = 0u; i < PARTS; i += 1u) {
                sum[i] += weight * key[i];
            }
        }
        all_taken();
    }
    if query < params.count {
        for (var i = 0u; i < PARTS; i += 1u) {
            dq[row * PARTS + i] = sum[i] * params.scale;
        }
    }
}

/// dk and dv: one thread per key and key head, over the queries of an item and all heads that share the key head.
@compute @workgroup_size(BLOCK)
fn keys_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
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
    // The rows of q of the heads that share this key head, query by query.
    let first = walk[item + 1u];
    let count = (walk[item + 2u] - first) * SHARING;
    for (var tile = 0u; tile < count; tile += BLOCK) {
        let place = min(tile + local, count - 1u);
        let row = (first + place / SHARING) * params.heads + kv_head * SHARING + place % SHARING;
        let loaded_sums = vec4<f32>(kept_row_sums[row], 0.0, 0.0);
        var loaded_q: array<vec4<f32>, PARTS>;
        var loaded_dy: array<vec4<f32>, PARTS>;
        for (var i = 0u; i < PARTS; i += 1u) {
            loaded_q[i] = q[row * PARTS + i];
            loaded_dy[i] = dy[row * PARTS + i];
            offer(local, i, loaded_q[i]);
            offer(local, PARTS + i, loaded_dy[i]);
        }
        offer(local, 2u * PARTS, loaded_sums);
        offered();
        for (var n = 0u; n < min(BLOCK, count - tile); n += 1u) {
            let query = first + (tile + n) / SHARING;
            let mine = key <= query && query < until;
            var other_q: array<vec4<f32>, PARTS>;
            var other_dy: array<vec4<f32>, PARTS>;
            var scores = vec4<f32>();
            var slopes = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                other_q[i] = taken(loaded_q[i], i, n);
                other_dy[i] = taken(loaded_dy[i], PARTS + i, n);
                scores += own_k[i] * other_q[i];
                slopes += own_v[i] * other_dy[i];
            }
            let sums = taken(loaded_sums, 2u * PARTS, n).xy;
            let weights = weigh(dot_of(scores), dot_of(slopes), sums, mine);
            for (var i = 0u; i < PARTS; i += 1u) {
                dk[i] += weights.y * other_q[i];
                dv[i] += weights.x * other_dy[i];
            }
        }
        all_taken();
    }
    // With one item for each block of keys, this is the key.
    let slot = index / params.kv_heads * BLOCK + local;
    if key < params.count {
        let to = (slot * params.kv_heads + kv_head) * PARTS;
        for (var i = 0u; i < PARTS; i += 1u) {
            gradients[to + i] = dk[i] * params.scale;
            gradients[params.values_at + to + i] = dv[i];
        }
    }
}

/// The dot product of two rows, from the products of their components.
fn dot_of(parts: vec4<f32>) -> f32 {
    return parts.x + parts.y + parts.z + parts.w;
}

/// A step of the running softmax: the new maximum of the scores, the factor for the sums so far, and the weight of the
/// key.
struct Met {
    highest: f32,
    shrink: f32,
    weight: f32,
}

/// `mine`: whether the query sees the key. A key that it does not see changes no bit.
fn meet(highest: f32, product: f32, mine: bool) -> Met {
    let score = select(LOWEST, product, mine);
    // One exponential is enough: it is the factor either of the sums or of the new key.
    let rise = score - highest;
    let small = exp2(-abs(rise));
    let shrink = select(1.0, small, rise > 0.0);
    let weight = select(select(small, 1.0, rise > 0.0), 0.0, !mine);
    return Met(max(highest, score), shrink, weight);
}

/// The probability p of a key for a query, and p (dy · v - dy · y), the gradient of the score. `score` and `slope` are
/// q · k and dy · v; `sums` is the entry of the query in `row_sums`.
fn weigh(score: f32, slope: f32, sums: vec2<f32>, mine: bool) -> vec2<f32> {
    // The exponential of a key that is not seen may be infinite.
    let probability = select(0.0, exp2(score - sums.x), mine);
    return vec2<f32>(probability, probability * (slope - sums.y));
}
