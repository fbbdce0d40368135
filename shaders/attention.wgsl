// tensor/src/ops/attention.rs: scaled dot-product attention over the keys that each query sees, and its gradients, for GPUs.
//
// A workgroup computes ROWS own rows (queries, or keys in `keys_backward`) and reads the other rows in tiles of TILE. For
// each tile it computes two matrix products, with the operands staged in workgroup memory:
// 1. The scores of all pairs of own and other rows.
// 2. The sums of the other rows, weighted by a function of the scores.
// A sum adds the other rows one by one in their order, and rows that a query does not see have the weight 0. So the bits of
// a row depend neither on the bounds of tiles nor on the other rows of its workgroup. `fma` keeps them equal in all variants.
//
// The parameters and most bindings are in attention_shared.wgsl. A "part" is four numbers of a row.

/// Own rows: 32, or 8 in `forward` with few queries.
const ROWS: u32 = 32u;
const THREADS: u32 = 128u;
const TILE = 64u;

/// In the first product a thread has four own rows, `local % GROUPS + (0 to 3) * GROUPS`, and EACH other rows. In the second
/// it has the same own rows, and the parts `local / GROUPS + i * ACROSS`.
const GROUPS = ROWS / 4u;
const ACROSS = THREADS / GROUPS;
const EACH = TILE / ACROSS;
const COLUMNS = (PARTS + ACROSS - 1u) / ACROSS;

/// Parts of a row that are staged at a time for the first product: a divisor of PARTS.
const MOST = THREADS / 32u;
const CHUNK = select(select(select(1u, 2u, PARTS % 2u == 0u), 4u, PARTS % 4u == 0u), MOST, PARTS % MOST == 0u);
/// One more spreads the rows over the banks of workgroup memory.
const PITCH = CHUNK + 1u;
/// Other rows that are staged at a time for the second product, so that a thread stages about two parts.
const STEP = THREADS / select(select(32u, 16u, PARTS <= 32u), 8u, PARTS <= 16u);
const HALF_STEP = STEP / 2u;

/// For the first product the chunks of all rows, for the second the weights of some other rows, then these rows.
const STAGED = max(ALL_ROWS * PITCH, STEP * (GROUPS + PARTS));
var<workgroup> tile: array<vec4<f32>, STAGED>;
/// The numbers of the own rows, then of the rows of the tile.
const ALL_ROWS = ROWS + TILE;
var<workgroup> rows: array<u32, ALL_ROWS>;
/// For each row of the tile: of a key the mask of the queries that see it, of a query its number.
var<workgroup> marks: array<u32, TILE>;

/// For each other row of a thread, a number for each of its own rows.
alias Pairs = array<vec4<f32>, EACH>;

/// For each own row of a thread the sum of the weighted parts.
alias Sums = array<mat4x4<f32>, COLUMNS>;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;   // (queries, heads, PARTS)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;   // (keys, kv_heads, PARTS)
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;   // as k
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;  // as q
@group(0) @binding(0) var<storage, read> partial: array<vec4<f32>>;  // like `gradients`, ROWS keys for each item
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read_write> summed: array<vec4<f32>>;

/// The own rows of a thread, as places in `rows`.
fn own_slots(local: u32) -> vec4<u32> {
    return local % GROUPS + vec4(0u, 1u, 2u, 3u) * GROUPS;
}

/// Lists the own rows of `forward` and `queries_backward`, and returns the first head.
fn list_queries(local: u32, index: u32) -> u32 {
    let groups = params.heads / params.together;
    let first_head = index % groups * params.together;
    if local < ROWS {
        // Surplus rows repeat the last query. They see no key and are not written.
        let query = min(index / groups * params.block + local / params.together, params.count - 1u);
        rows[local] = query * params.heads + first_head + local % params.together;
    }
    return first_head;
}

/// Whether an own row is a query and no surplus.
fn is_query(index: u32, slot: u32) -> bool {
    let place = slot / params.together;
    return place < params.block && index / (params.heads / params.together) * params.block + place < params.count;
}

/// Lists the keys of a tile. Surplus rows repeat a key, as one that no query sees.
fn list_keys(local: u32, tile_at: u32, first_head: u32) {
    workgroupBarrier();
    if local < TILE {
        var key = walk[walk[tile_at]];
        var mask = 0u;
        var before = 0u;
        for (var item = walk[tile_at]; item < walk[tile_at + 1u]; item += 3u) {
            let length = walk[item + 1u] - walk[item];
            if local >= before && local - before < length {
                key = walk[item] + local - before;
                mask = walk[item + 2u];
            }
            before += length;
        }
        rows[ROWS + local] = key * params.kv_heads + first_head * params.kv_heads / params.heads;
        marks[local] = mask;
    }
    workgroupBarrier();
}

/// Which own rows see the `i`-th other row of a thread. `places`: the places of their queries in the block.
fn seeing(local: u32, i: u32, places: vec4<u32>) -> vec4<bool> {
    return ((vec4(marks[local / GROUPS * EACH + i]) >> places) & vec4(1u)) == vec4(1u);
}

/// Adds the products of the parts that the threads have staged.
fn multiply(before: Pairs, local: u32) -> Pairs {
    workgroupBarrier();
    var sum = before;
    let own = local % GROUPS * PITCH;
    let other = (ROWS + local / GROUPS * EACH) * PITCH;
    let next = GROUPS * PITCH;
    for (var part = 0u; part < CHUNK; part += 1u) {
        let at = own + part;
        let a = transpose(mat4x4(tile[at], tile[at + next], tile[at + 2u * next], tile[at + 3u * next]));
        for (var i = 0u; i < EACH; i += 1u) {
            let b = tile[other + i * PITCH + part];
            sum[i] = fma(a[0], vec4(b.x), sum[i]);
            sum[i] = fma(a[1], vec4(b.y), sum[i]);
            sum[i] = fma(a[2], vec4(b.z), sum[i]);
            sum[i] = fma(a[3], vec4(b.w), sum[i]);
        }
    }
    workgroupBarrier();
    return sum;
}

/// Whether there is an `i`-th of `count` parts to stage. A constant if the threads divide them evenly.
fn is_staged(i: u32, count: u32) -> bool {
    return count % THREADS == 0u || i < count;
}

/// Whether the `i`-th part to stage is of an own row; the first `n` parts are staged. A constant if no thread differs.
fn is_own(n: u32, i: u32) -> bool {
    return select(i, n, ROWS * CHUNK % THREADS == 0u) < ROWS * CHUNK;
}

/// q · k of a tile. `by_key`: the own rows are keys.
fn scores_of(local: u32, by_key: bool) -> Pairs {
    var sum = Pairs();
    for (var first = 0u; first < params.parts; first += CHUNK) {
        for (var n = 0u; n < ALL_ROWS * CHUNK; n += THREADS) {
            let i = n + local;
            if is_staged(i, ALL_ROWS * CHUNK) {
                let at = rows[i / CHUNK] * PARTS + first + i % CHUNK;
                if is_own(n, i) == by_key {
                    tile[i / CHUNK * PITCH + i % CHUNK] = k[at];
                } else {
                    tile[i / CHUNK * PITCH + i % CHUNK] = q[at];
                }
            }
        }
        sum = multiply(sum, local);
    }
    return sum;
}

/// dy · v of a tile.
fn slopes_of(local: u32, by_key: bool) -> Pairs {
    var sum = Pairs();
    for (var first = 0u; first < params.parts; first += CHUNK) {
        for (var n = 0u; n < ALL_ROWS * CHUNK; n += THREADS) {
            let i = n + local;
            if is_staged(i, ALL_ROWS * CHUNK) {
                let at = rows[i / CHUNK] * PARTS + first + i % CHUNK;
                if is_own(n, i) == by_key {
                    tile[i / CHUNK * PITCH + i % CHUNK] = v[at];
                } else {
                    tile[i / CHUNK * PITCH + i % CHUNK] = dy[at];
                }
            }
        }
        sum = multiply(sum, local);
    }
    return sum;
}

/// Stages the weights of the thread's other rows, if they are among the `count` from `first`.
fn stage_weights(local: u32, weights: Pairs, first: u32, count: u32, to: u32) {
    // Wraps around for earlier rows.
    let nth = local / GROUPS * EACH - first;
    if nth < count {
        for (var i = 0u; i < EACH; i += 1u) {
            tile[to + (nth + i) * GROUPS + local % GROUPS] = weights[i];
        }
    }
}

/// Adds a part of another row to the sums of four own rows.
fn add_weighted(sum: mat4x4<f32>, part: vec4<f32>, weights: vec4<f32>) -> mat4x4<f32> {
    return mat4x4(
        fma(part, vec4(weights.x), sum[0]),
        fma(part, vec4(weights.y), sum[1]),
        fma(part, vec4(weights.z), sum[2]),
        fma(part, vec4(weights.w), sum[3]),
    );
}

/// Adds the keys or the values of a tile with these weights, and the weights to `total`.
fn add_tile(sum: ptr<function, Sums>, total: ptr<function, vec4<f32>>, local: u32, weights: Pairs, of_keys: bool) {
    for (var first = 0u; first < TILE; first += STEP) {
        stage_weights(local, weights, first, STEP, 0u);
        for (var n = 0u; n < STEP * PARTS; n += THREADS) {
            let i = n + local;
            if is_staged(i, STEP * PARTS) {
                let at = rows[ROWS + first + i / PARTS] * PARTS + i % PARTS;
                if of_keys {
                    tile[STEP * GROUPS + i] = k[at];
                } else {
                    tile[STEP * GROUPS + i] = v[at];
                }
            }
        }
        workgroupBarrier();
        for (var n = 0u; n < STEP; n += 1u) {
            let weight = tile[n * GROUPS + local % GROUPS];
            *total += weight;
            for (var i = 0u; i < COLUMNS; i += 1u) {
                // A surplus thread repeats the last part and does not write it.
                let part = min(local / GROUPS + i * ACROSS, PARTS - 1u);
                (*sum)[i] = add_weighted((*sum)[i], tile[STEP * GROUPS + n * PARTS + part], weight);
            }
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(THREADS)
fn forward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / (params.heads / params.together);
    let first_head = list_queries(local, index);
    let places = own_slots(local) / params.together;
    let scale = params.scale * LOG2_E;

    // A maximum is the same in any order. Known first, it leaves no sum to be scaled again.
    var highest = vec4(LOWEST);
    for (var at = walk[block]; at < walk[block + 1u]; at += 1u) {
        list_keys(local, at, first_head);
        let scores = scores_of(local, false);
        for (var i = 0u; i < EACH; i += 1u) {
            highest = max(highest, select(vec4(LOWEST), scores[i] * scale, seeing(local, i, places)));
        }
    }
    tile[local] = highest;
    workgroupBarrier();
    for (var i = local % GROUPS; i < THREADS; i += GROUPS) {
        highest = max(highest, tile[i]);
    }

    var sum = Sums();
    var total = vec4<f32>();
    for (var at = walk[block]; at < walk[block + 1u]; at += 1u) {
        list_keys(local, at, first_head);
        var weights = scores_of(local, false);
        for (var i = 0u; i < EACH; i += 1u) {
            let weight = exp2(fma(weights[i], vec4(scale), -highest));
            weights[i] = select(vec4<f32>(), weight, seeing(local, i, places));
        }
        add_tile(&sum, &total, local, weights, false);
    }
    for (var j = 0u; j < 4u; j += 1u) {
        let slot = own_slots(local)[j];
        let row = rows[slot];
        for (var i = 0u; i < COLUMNS; i += 1u) {
            let part = local / GROUPS + i * ACROSS;
            if part < PARTS && is_query(index, slot) {
                y[row * PARTS + part] = sum[i][j] / total[j];
            }
        }
        if local < GROUPS && is_query(index, slot) {
            log_sums[row] = highest[j] + log2(total[j]);
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
    // As `multiply` sums: of a token that sees only itself the slope minus this is exactly 0.
    var sum = 0.0;
    for (var i = 0u; i < PARTS; i += 1u) {
        let a = upstream[row * PARTS + i];
        let b = kept_y[row * PARTS + i];
        sum = fma(a.x, b.x, sum);
        sum = fma(a.y, b.y, sum);
        sum = fma(a.z, b.z, sum);
        sum = fma(a.w, b.w, sum);
    }
    row_sums[row] = vec2<f32>(kept_log_sums[row], sum);
}

/// dq, with the rows and the walk of `forward`.
@compute @workgroup_size(THREADS)
fn queries_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let block = index / (params.heads / params.together);
    let first_head = list_queries(local, index);
    let places = own_slots(local) / params.together;
    let scale = params.scale * LOG2_E;
    workgroupBarrier();
    let slots = own_slots(local);
    // The log sums of the own rows, and dy · y.
    let own = transpose(mat4x2(
        kept_row_sums[rows[slots.x]],
        kept_row_sums[rows[slots.y]],
        kept_row_sums[rows[slots.z]],
        kept_row_sums[rows[slots.w]],
    ));

    var sum = Sums();
    var total = vec4<f32>();
    for (var at = walk[block]; at < walk[block + 1u]; at += 1u) {
        list_keys(local, at, first_head);
        var weights = scores_of(local, false);
        let slopes = slopes_of(local, false);
        for (var i = 0u; i < EACH; i += 1u) {
            let weight = exp2(fma(weights[i], vec4(scale), -own[0]));
            weights[i] = select(vec4<f32>(), weight * (slopes[i] - own[1]), seeing(local, i, places));
        }
        add_tile(&sum, &total, local, weights, true);
    }
    for (var j = 0u; j < 4u; j += 1u) {
        for (var i = 0u; i < COLUMNS; i += 1u) {
            let part = local / GROUPS + i * ACROSS;
            if part < PARTS && is_query(index, slots[j]) {
                dq[rows[slots[j]] * PARTS + part] = sum[i][j] * params.scale;
            }
        }
    }
}

/// dk and dv, over the queries of an item and all heads that share the key head.
@compute @workgroup_size(THREADS)
fn keys_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    // The parts of dk, then those of dv.
    const COLUMNS_OF_BOTH = (2u * PARTS + ACROSS - 1u) / ACROSS;
    let index = flat_group(id);
    if index >= params.groups {
        return;
    }
    let item = params.count + index / params.kv_heads * 3u;
    let kv_head = index % params.kv_heads;
    let sharing = params.heads / params.kv_heads;
    let slots = own_slots(local);
    let keys = walk[item] + slots;
    if local < ROWS {
        rows[local] = min(walk[item] + local, params.count - 1u) * params.kv_heads + kv_head;
    }

    // Where the thread finds the weights and the parts of each of its columns.
    var weight_at: array<u32, COLUMNS_OF_BOTH>;
    var part_at: array<u32, COLUMNS_OF_BOTH>;
    var sum: array<mat4x4<f32>, COLUMNS_OF_BOTH>;
    for (var i = 0u; i < COLUMNS_OF_BOTH; i += 1u) {
        let column = min(local / GROUPS + i * ACROSS, 2u * PARTS - 1u);
        weight_at[i] = column / PARTS * HALF_STEP * GROUPS + local % GROUPS;
        part_at[i] = STEP * GROUPS + column / PARTS * HALF_STEP * PARTS + column % PARTS;
        sum[i] = mat4x4<f32>();
    }
    let end = walk[item + 2u] * sharing;
    for (var place = walk[item + 1u] * sharing; place < end; place += TILE) {
        workgroupBarrier();
        if local < TILE {
            let row = min(place + local, end - 1u);
            rows[ROWS + local] = row / sharing * params.heads + kv_head * sharing + row % sharing;
            marks[local] = select(params.count, row / sharing, place + local < end);
        }
        workgroupBarrier();
        var weights = scores_of(local, true);
        var slopes = slopes_of(local, true);
        // Loaded again for each tile: registers are scarce.
        let known = min(keys, vec4(params.count - 1u));
        let until = vec4(walk[known.x], walk[known.y], walk[known.z], walk[known.w]);
        let other = local / GROUPS * EACH;
        for (var i = 0u; i < EACH; i += 1u) {
            let query = vec4(marks[other + i]);
            let sees = (keys <= query) & (query < until);
            let sums = kept_row_sums[rows[ROWS + other + i]];
            weights[i] = select(vec4<f32>(), exp2(fma(weights[i], vec4(params.scale * LOG2_E), vec4(-sums.x))), sees);
            slopes[i] = weights[i] * (slopes[i] - sums.y);
        }
        for (var first = 0u; first < TILE; first += HALF_STEP) {
            stage_weights(local, slopes, first, HALF_STEP, 0u);
            stage_weights(local, weights, first, HALF_STEP, HALF_STEP * GROUPS);
            for (var n = 0u; n < HALF_STEP * PARTS; n += THREADS) {
                let i = n + local;
                if is_staged(i, HALF_STEP * PARTS) {
                    let at = rows[ROWS + first + i / PARTS] * PARTS + i % PARTS;
                    tile[STEP * GROUPS + i] = q[at];
                    tile[STEP * GROUPS + HALF_STEP * PARTS + i] = dy[at];
                }
            }
            workgroupBarrier();
            for (var n = 0u; n < HALF_STEP; n += 1u) {
                for (var i = 0u; i < COLUMNS_OF_BOTH; i += 1u) {
                    sum[i] = add_weighted(sum[i], tile[part_at[i] + n * PARTS], tile[weight_at[i] + n * GROUPS]);
                }
            }
            workgroupBarrier();
        }
    }
    // With one item for each block of keys, this is the key.
    let first_slot = index / params.kv_heads * ROWS;
    for (var j = 0u; j < 4u; j += 1u) {
        if keys[j] < params.count {
            let to = ((first_slot + slots[j]) * params.kv_heads + kv_head) * PARTS;
            for (var i = 0u; i < COLUMNS_OF_BOTH; i += 1u) {
                let column = local / GROUPS + i * ACROSS;
                if column < PARTS {
                    gradients[to + column] = sum[i][j] * params.scale;
                } else if column < 2u * PARTS {
                    gradients[params.values_at + to + column - PARTS] = sum[i][j];
                }
            }
        }
    }
}

/// Sums the items of each block of keys in order. One thread per four numbers. `groups` is the offset of dv in `summed`.
@compute @workgroup_size(64)
fn sum_items(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let width = params.kv_heads * PARTS;
    let i = flat_thread(id, local, 64u);
    if i >= params.count * width {
        return;
    }
    let key = i / width;
    let block = key / ROWS;
    var dk = vec4<f32>();
    var dv = vec4<f32>();
    for (var item = starts[block]; item < starts[block + 1u]; item += 1u) {
        let at = (item * ROWS + key % ROWS) * width + i % width;
        dk += partial[at];
        dv += partial[params.values_at + at];
    }
    summed[i] = dk;
    summed[params.groups + i] = dv;
}
