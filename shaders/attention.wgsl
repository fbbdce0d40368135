// tensor/src/ops/attention.rs: scaled dot-product attention over the keys that each query sees, and its gradients.
//
// All threads of a workgroup read the same key (in `keys_backward` the same query) at the same time, so they share one
// load. The constants, the parameters, the bindings and the softmax are in attention_shared.wgsl.

const LANES: u32 = BLOCK * SHARING;

@group(0) @binding(0) var<storage, read> kept_y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kept_log_sums: array<f32>;
@group(0) @binding(2) var<storage, read> upstream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> row_sums: array<vec2<f32>>;  // (queries, heads)

@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;  // like `gradients`, BLOCK keys for each item
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> summed: array<vec4<f32>>;

/// A thread computes the query `local % BLOCK` of the block and the head `local / BLOCK` of those that share a key head.
@compute @workgroup_size(LANES)
fn forward(id: Invocation) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / params.kv_heads;
    let kv_head = index % params.kv_heads;
    // Surplus threads repeat the last query and write nothing.
    let query = block * BLOCK + id.local % BLOCK;
    let row = min(query, params.count - 1u) * params.heads + kv_head * SHARING + id.local / BLOCK;

    var own: array<vec4<f32>, PARTS>;
    var sum: array<vec4<f32>, PARTS>;
    for (var i = 0u; i < PARTS; i += 1u) {
        own[i] = q[row * PARTS + i] * (params.scale * LOG2_E);
        sum[i] = vec4<f32>();
    }
    var highest = LOWEST;
    var total = 0.0;
    for (var item = walk[block]; item < walk[block + 1u]; item += 3u) {
        let mine = ((walk[item + 2u] >> (id.local % BLOCK)) & 1u) == 1u;
        for (var key = walk[item]; key < walk[item + 1u]; key += 1u) {
            let at = (key * params.kv_heads + kv_head) * PARTS;
            var products = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                products += own[i] * k[at + i];
            }
            let met = meet(highest, dot_of(products), mine);
            highest = met.highest;
            total = total * met.shrink + met.weight;
            for (var i = 0u; i < PARTS; i += 1u) {
                sum[i] = sum[i] * met.shrink + met.weight * v[at + i];
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

/// Puts the log sum and dy · y of each row side by side for both gradients. One thread per row.
@compute @workgroup_size(64)
fn sum_rows(id: Invocation) {
    let row = flat_thread(id, 64u);
    if row >= params.count * params.heads {
        return;
    }
    var products = vec4<f32>();
    for (var i = 0u; i < PARTS; i += 1u) {
        products += kept_y[row * PARTS + i] * upstream[row * PARTS + i];
    }
    row_sums[row] = vec2<f32>(kept_log_sums[row], dot_of(products));
}

/// dq, with the threads and the walk of `forward`.
@compute @workgroup_size(LANES)
fn queries_backward(id: Invocation) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / params.kv_heads;
    let kv_head = index % params.kv_heads;
    let query = block * BLOCK + id.local % BLOCK;
    let row = min(query, params.count - 1u) * params.heads + kv_head * SHARING + id.local / BLOCK;

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
        let mine = ((walk[item + 2u] >> (id.local % BLOCK)) & 1u) == 1u;
        for (var key = walk[item]; key < walk[item + 1u]; key += 1u) {
            let at = (key * params.kv_heads + kv_head) * PARTS;
            var scores = vec4<f32>();
            var slopes = vec4<f32>();
            for (var i = 0u; i < PARTS; i += 1u) {
                scores += own[i] * k[at + i];
                slopes += own_dy[i] * v[at + i];
            }
            let weight = weigh(dot_of(scores), dot_of(slopes), sums, mine).y;
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

/// dk and dv: one thread per key and key head, over the queries of an item and all heads that share the key head.
@compute @workgroup_size(BLOCK)
fn keys_backward(id: Invocation) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let item = params.count + index / params.kv_heads * 3u;
    let kv_head = index % params.kv_heads;
    let key = walk[item] + id.local;
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
            let weights = weigh(dot_of(scores), dot_of(slopes), sums, mine);
            for (var i = 0u; i < PARTS; i += 1u) {
                dk[i] += weights.y * q[at + i];
                dv[i] += weights.x * dy[at + i];
            }
        }
    }
    // With one item for each block of keys, this is the key.
    let slot = index / params.kv_heads * BLOCK + id.local;
    if key < params.count {
        let to = (slot * params.kv_heads + kv_head) * PARTS;
        for (var i = 0u; i < PARTS; i += 1u) {
            gradients[to + i] = dk[i] * params.scale;
            gradients[params.values_at + to + i] = dv[i];
        }
    }
}

/// Sums the items of each block of keys in order. One thread per four numbers. `groups` is the offset of dv in `summed`.
@compute @workgroup_size(64)
fn sum_items(id: Invocation) {
    let width = params.kv_heads * PARTS;
    let i = flat_thread(id, 64u);
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
