// tensor/src/ops/attention.rs: attention for processors (lavapipe: eight threads in lockstep).
//
// On lavapipe a load costs a nanosecond per element and thread, even if all threads read the same address, so elements are as
// large as possible (loads_64.wgsl). Each of the eight threads loads one of eight rows, the threads exchange the rows
// (exchange_subgroup.wgsl), and each uses a row for several own rows: queries, or keys in `keys_backward`. The walk lists
// single keys.

const THREADS = 8u;
/// Own rows of a thread.
const PER_THREAD: u32 = 1u;
/// Query heads that share a key head.
const SHARING: u32 = 1u;
/// Query heads of a workgroup of `forward`: one, or all that share a key head, so that few queries waste few threads.
const HEADS: u32 = 1u;

/// A row of each of two tensors, and a vector of other values.
const SLOTS: u32 = 2u * PARTS + 1u;

/// Pieces of a row that are loaded at once: two parts each.
const PIECES: u32 = HEAD_SIZE / 8u;

@group(0) @binding(0) var<storage, read> q: array<Eight>;   // (queries, heads, PIECES)
@group(0) @binding(1) var<storage, read> k: array<Eight>;   // (keys, kv_heads, PIECES)
@group(0) @binding(2) var<storage, read> v: array<Eight>;   // as k
@group(0) @binding(4) var<storage, read> dy: array<Eight>;  // as q

/// One thread per PER_THREAD queries and head.
@compute @workgroup_size(THREADS)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    const QUERIES = THREADS / HEADS;
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index * HEADS / params.heads;
    let head = index * HEADS % params.heads + local % HEADS;
    // Surplus threads repeat a query and write nothing.
    let place = min(local / HEADS, QUERIES - 1u);

    var own: array<vec4<f32>, PER_THREAD * PARTS>;
    var sum: array<vec4<f32>, PER_THREAD * PARTS>;
    var highest: array<f32, PER_THREAD>;
    var total: array<f32, PER_THREAD>;
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        let query = (block * PER_THREAD + r) * QUERIES + place;
        let row = min(query, params.count - 1u) * params.heads + head;
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece = eight(q[row * PIECES + i]) * (params.scale * LOG2_E);
            own[r * PARTS + 2u * i] = piece[0];
            own[r * PARTS + 2u * i + 1u] = piece[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            sum[r * PARTS + i] = vec4<f32>();
        }
        highest[r] = LOWEST;
        total[r] = 0.0;
    }
    let end = walk[block + 1u];
    for (var tile = walk[block]; tile < end; tile += 2u * THREADS) {
        let entry = min(tile + 2u * local, end - 2u);
        let at = (walk[entry] * params.kv_heads + head / SHARING) * PIECES;
        let loaded_mask = walk[entry + 1u];
        var loaded_k = array<vec4<f32>, PARTS>();
        var loaded_v = array<vec4<f32>, PARTS>();
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece_k = eight(k[at + i]);
            let piece_v = eight(v[at + i]);
            loaded_k[2u * i] = piece_k[0];
            loaded_k[2u * i + 1u] = piece_k[1];
            loaded_v[2u * i] = piece_v[0];
            loaded_v[2u * i + 1u] = piece_v[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            offer(local, i, loaded_k[i]);
            offer(local, PARTS + i, loaded_v[i]);
        }
        offer_word(local, loaded_mask);
        offered();
        for (var n = 0u; n < min(THREADS, (end - tile) / 2u); n += 1u) {
            let mask = taken_word(loaded_mask, n) >> place;
            var products = array<vec4<f32>, PER_THREAD>();
            for (var i = 0u; i < PARTS; i += 1u) {
                let key = taken(loaded_k[i], i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    products[r] += own[r * PARTS + i] * key;
                }
            }
            var shrinks = array<f32, PER_THREAD>();
            var weights = array<f32, PER_THREAD>();
            for (var r = 0u; r < PER_THREAD; r += 1u) {
                let mine = ((mask >> (r * QUERIES)) & 1u) == 1u;
                let met = meet(highest[r], dot_of(products[r]), mine);
                highest[r] = met.highest;
                total[r] = total[r] * met.shrink + met.weight;
                shrinks[r] = met.shrink;
                weights[r] = met.weight;
            }
            for (var i = 0u; i < PARTS; i += 1u) {
                let value = taken(loaded_v[i], PARTS + i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    sum[r * PARTS + i] = sum[r * PARTS + i] * shrinks[r] + weights[r] * value;
                }
            }
        }
        all_taken();
    }
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        let query = (block * PER_THREAD + r) * QUERIES + place;
        let row = query * params.heads + head;
        if local < QUERIES * HEADS && query < params.count {
            for (var i = 0u; i < PARTS; i += 1u) {
                y[row * PARTS + i] = sum[r * PARTS + i] / total[r];
            }
            log_sums[row] = highest[r] + log2(total[r]);
        }
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

/// dq: one thread per PER_THREAD queries, one workgroup per 8 * PER_THREAD queries and head.
@compute @workgroup_size(THREADS)
fn queries_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / params.heads;
    let head = index % params.heads;

    var own: array<vec4<f32>, PER_THREAD * PARTS>;
    var own_dy: array<vec4<f32>, PER_THREAD * PARTS>;
    var sum: array<vec4<f32>, PER_THREAD * PARTS>;
    var sums: array<vec2<f32>, PER_THREAD>;
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        let query = (block * PER_THREAD + r) * THREADS + local;
        let row = min(query, params.count - 1u) * params.heads + head;
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece = eight(q[row * PIECES + i]) * (params.scale * LOG2_E);
            let piece_dy = eight(dy[row * PIECES + i]);
            own[r * PARTS + 2u * i] = piece[0];
            own[r * PARTS + 2u * i + 1u] = piece[1];
            own_dy[r * PARTS + 2u * i] = piece_dy[0];
            own_dy[r * PARTS + 2u * i + 1u] = piece_dy[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            sum[r * PARTS + i] = vec4<f32>();
        }
        sums[r] = kept_row_sums[row];
    }
    let end = walk[block + 1u];
    for (var tile = walk[block]; tile < end; tile += 2u * THREADS) {
        let place = min(tile + 2u * local, end - 2u);
        let at = (walk[place] * params.kv_heads + head / SHARING) * PIECES;
        let loaded_mask = walk[place + 1u];
        var loaded_k = array<vec4<f32>, PARTS>();
        var loaded_v = array<vec4<f32>, PARTS>();
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece_k = eight(k[at + i]);
            let piece_v = eight(v[at + i]);
            loaded_k[2u * i] = piece_k[0];
            loaded_k[2u * i + 1u] = piece_k[1];
            loaded_v[2u * i] = piece_v[0];
            loaded_v[2u * i + 1u] = piece_v[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            offer(local, i, loaded_k[i]);
            offer(local, PARTS + i, loaded_v[i]);
        }
        offer_word(local, loaded_mask);
        offered();
        for (var n = 0u; n < min(THREADS, (end - tile) / 2u); n += 1u) {
            let mask = taken_word(loaded_mask, n) >> local;
            var scores = array<vec4<f32>, PER_THREAD>();
            var slopes = array<vec4<f32>, PER_THREAD>();
            for (var i = 0u; i < PARTS; i += 1u) {
                let key = taken(loaded_k[i], i, n);
                let value = taken(loaded_v[i], PARTS + i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    scores[r] += own[r * PARTS + i] * key;
                    slopes[r] += own_dy[r * PARTS + i] * value;
                }
            }
            var weights = array<f32, PER_THREAD>();
            for (var r = 0u; r < PER_THREAD; r += 1u) {
                let mine = ((mask >> (r * THREADS)) & 1u) == 1u;
                weights[r] = weigh(dot_of(scores[r]), dot_of(slopes[r]), sums[r], mine).y;
            }
            for (var i = 0u; i < PARTS; i += 1u) {
                let key = taken(loaded_k[i], i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    sum[r * PARTS + i] += weights[r] * key;
                }
            }
        }
        all_taken();
    }
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        let query = (block * PER_THREAD + r) * THREADS + local;
        let row = query * params.heads + head;
        if query < params.count {
            for (var i = 0u; i < PARTS; i += 1u) {
                dq[row * PARTS + i] = sum[r * PARTS + i] * params.scale;
            }
        }
    }
}

/// dk and dv: one thread per PER_THREAD keys and key head, over the queries of an item and all heads that share the key head.
@compute @workgroup_size(THREADS)
fn keys_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let item = params.count + index / params.kv_heads * 3u;
    let kv_head = index % params.kv_heads;
    let first_key = walk[item] + local;

    var own_k: array<vec4<f32>, PER_THREAD * PARTS>;
    var own_v: array<vec4<f32>, PER_THREAD * PARTS>;
    var dk: array<vec4<f32>, PER_THREAD * PARTS>;
    var dv: array<vec4<f32>, PER_THREAD * PARTS>;
    var until: array<u32, PER_THREAD>;
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        let key = min(first_key + r * THREADS, params.count - 1u);
        let row = (key * params.kv_heads + kv_head) * PIECES;
        until[r] = walk[key];
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece_k = eight(k[row + i]) * (params.scale * LOG2_E);
            let piece_v = eight(v[row + i]);
            own_k[r * PARTS + 2u * i] = piece_k[0];
            own_k[r * PARTS + 2u * i + 1u] = piece_k[1];
            own_v[r * PARTS + 2u * i] = piece_v[0];
            own_v[r * PARTS + 2u * i + 1u] = piece_v[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            dk[r * PARTS + i] = vec4<f32>();
            dv[r * PARTS + i] = vec4<f32>();
        }
    }
    // The rows of q of the heads that share this key head, query by query.
    let first = walk[item + 1u];
    let count = (walk[item + 2u] - first) * SHARING;
    for (var tile = 0u; tile < count; tile += THREADS) {
        let place = min(tile + local, count - 1u);
        let row = (first + place / SHARING) * params.heads + kv_head * SHARING + place % SHARING;
        let loaded_sums = vec4<f32>(kept_row_sums[row], 0.0, 0.0);
        var loaded_q = array<vec4<f32>, PARTS>();
        var loaded_dy = array<vec4<f32>, PARTS>();
        for (var i = 0u; i < PIECES; i += 1u) {
            let piece_q = eight(q[row * PIECES + i]);
            let piece_dy = eight(dy[row * PIECES + i]);
            loaded_q[2u * i] = piece_q[0];
            loaded_q[2u * i + 1u] = piece_q[1];
            loaded_dy[2u * i] = piece_dy[0];
            loaded_dy[2u * i + 1u] = piece_dy[1];
        }
        for (var i = 0u; i < PARTS; i += 1u) {
            offer(local, i, loaded_q[i]);
            offer(local, PARTS + i, loaded_dy[i]);
        }
        offer(local, 2u * PARTS, loaded_sums);
        offered();
        for (var n = 0u; n < min(THREADS, count - tile); n += 1u) {
            let query = first + (tile + n) / SHARING;
            let sums = taken(loaded_sums, 2u * PARTS, n).xy;
            var scores = array<vec4<f32>, PER_THREAD>();
            var slopes = array<vec4<f32>, PER_THREAD>();
            for (var i = 0u; i < PARTS; i += 1u) {
                let other_q = taken(loaded_q[i], i, n);
                let other_dy = taken(loaded_dy[i], PARTS + i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    scores[r] += own_k[r * PARTS + i] * other_q;
                    slopes[r] += own_v[r * PARTS + i] * other_dy;
                }
            }
            var weights = array<vec2<f32>, PER_THREAD>();
            for (var r = 0u; r < PER_THREAD; r += 1u) {
                let mine = first_key + r * THREADS <= query && query < until[r];
                weights[r] = weigh(dot_of(scores[r]), dot_of(slopes[r]), sums, mine);
            }
            for (var i = 0u; i < PARTS; i += 1u) {
                let other_q = taken(loaded_q[i], i, n);
                let other_dy = taken(loaded_dy[i], PARTS + i, n);
                for (var r = 0u; r < PER_THREAD; r += 1u) {
                    dk[r * PARTS + i] += weights[r].y * other_q;
                    dv[r * PARTS + i] += weights[r].x * other_dy;
                }
            }
        }
        all_taken();
    }
    // With one item for each block of keys, this is the key.
    let first_slot = index / params.kv_heads * PER_THREAD * THREADS + local;
    for (var r = 0u; r < PER_THREAD; r += 1u) {
        if first_key + r * THREADS < params.count {
            let to = ((first_slot + r * THREADS) * params.kv_heads + kv_head) * PARTS;
            for (var i = 0u; i < PARTS; i += 1u) {
                gradients[to + i] = dk[r * PARTS + i] * params.scale;
                gradients[params.values_at + to + i] = dv[r * PARTS + i];
            }
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
