// tensor/src/ops/rl/log_prob.rs: log-probs of given tokens from chunks of logits, and their gradient.
//
// One workgroup processes a block of BLOCK tokens of one row. A chunk has a few whole blocks, and no sum depends on their
// number.

const GROUP: u32 = 64u;
const BLOCK: u32 = 2048u;

struct Params {
    rows: u32,
    /// first token and length of the chunk
    first: u32,
    length: u32,
    /// blocks of the whole vocabulary
    blocks: u32,
    inverse_temperature: f32,
    /// 1 if there are targets; sampling has none yet
    pick: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// The pairs of a row are pairs[starts[row]..starts[row + 1]], ascending.
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> pairs: array<u32>;
@group(0) @binding(3) var<storage, read> targets: array<u32>;

/// The work of a workgroup.
struct Part {
    row: u32,
    /// index in the whole vocabulary
    block: u32,
    /// columns of the chunk
    begin: u32,
    end: u32,
}

fn part_of(index: u32) -> Part {
    let per_row = (params.length + BLOCK - 1u) / BLOCK;
    let begin = (index % per_row) * BLOCK;
    return Part(index / per_row, (params.first + begin) / BLOCK, begin, min(begin + BLOCK, params.length));
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
/// For each row and block: the largest scaled logit m, the sum of e^(z - m), the sum of e^(z - m) (z - m).
@group(0) @binding(4) var<storage, read_write> statistics: array<vec4<f32>>;
/// For each pair the scaled logit of its target.
@group(0) @binding(5) var<storage, read_write> picked: array<f32>;

/// The threads of a workgroup reduce their largest number first, then two sums.
alias Shared = vec3<f32>;

fn combine(a: vec3<f32>, b: vec3<f32>) -> vec3<f32> {
    return vec3<f32>(max(a.x, b.x), a.yz + b.yz);
}

@compute @workgroup_size(GROUP)
fn summarise(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let part = part_of(flat_group(id));
    let there = part.row < params.rows;
    // A surplus workgroup has an empty range, since all threads must reach the barriers.
    let base = select(0u, part.row * params.length, there);
    let end = select(0u, part.end, there);

    var largest = LOWEST;
    for (var i = part.begin + local; i < end; i += GROUP) {
        largest = max(largest, logits[base + i] * params.inverse_temperature);
    }
    largest = combined(vec3<f32>(largest, 0.0, 0.0), local, GROUP).x;
    workgroupBarrier();

    var sum = vec2<f32>(0.0);
    for (var i = part.begin + local; i < end; i += GROUP) {
        let below = logits[base + i] * params.inverse_temperature - largest;
        let e = exp(below);
        sum += vec2<f32>(e, e * below);
    }
    sum = combined(vec3<f32>(0.0, sum), local, GROUP).yz;
    if !there {
        return;
    }
    if local == 0u {
        statistics[part.row * params.blocks + part.block] = vec4<f32>(largest, sum, 0.0);
    }
    if params.pick == 0u {
        return;
    }
    for (var i = starts[part.row] + local; i < starts[part.row + 1u]; i += GROUP) {
        let column = targets[pairs[i]] - params.first;
        if column >= part.begin && column < part.end {
            picked[pairs[i]] = logits[base + column] * params.inverse_temperature;
        }
    }
}

@group(0) @binding(0) var<storage, read> read_statistics: array<vec4<f32>>;
/// Input: the scaled logit of the target; output: its log-prob.
@group(0) @binding(3) var<storage, read_write> log_probs: array<f32>;
@group(0) @binding(4) var<storage, read_write> entropy: array<f32>;
/// For each row: the largest scaled logit m and the sum of e^(z - m).
@group(0) @binding(5) var<storage, read_write> normaliser: array<vec2<f32>>;

/// Combines the blocks of a row in order, and writes the results of its pairs. One thread per row.
@compute @workgroup_size(GROUP)
fn finish(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let row = flat_thread(id, local, GROUP);
    if row >= params.rows {
        return;
    }
    let base = row * params.blocks;
    var largest = LOWEST;
    for (var block = 0u; block < params.blocks; block += 1u) {
        largest = max(largest, read_statistics[base + block].x);
    }
    var sum = 0.0;
    var weighted = 0.0;
    for (var block = 0u; block < params.blocks; block += 1u) {
        let part = read_statistics[base + block];
        let below = part.x - largest;
        let scale = exp(below);
        sum += scale * part.y;
        weighted += scale * (part.z + below * part.y);
    }
    normaliser[row] = vec2<f32>(largest, sum);
    let log_sum = log(sum);
    for (var i = starts[row]; i < starts[row + 1u]; i += 1u) {
        let pair = pairs[i];
        log_probs[pair] = (log_probs[pair] - largest) - log_sum;
        entropy[pair] = log_sum - weighted / sum;
    }
}

/// Input: logits; output: their gradient.
@group(0) @binding(0) var<storage, read_write> chunk: array<f32>;
@group(0) @binding(4) var<storage, read> read_normaliser: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read> upstream: array<f32>;

/// d logit[v] = (sum of g over the pairs that target v - p[v] * sum of g over the pairs of the row) / temperature
@compute @workgroup_size(GROUP)
fn backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let part = part_of(flat_group(id));
    if part.row >= params.rows {
        return;
    }
    let base = part.row * params.length;
    let from_pair = starts[part.row];
    let to_pair = starts[part.row + 1u];
    var total = 0.0;
    for (var i = from_pair; i < to_pair; i += 1u) {
        total += upstream[pairs[i]];
    }
    let largest = read_normaliser[part.row].x;
    let scale = -total / read_normaliser[part.row].y * params.inverse_temperature;
    for (var i = part.begin + local; i < part.end; i += GROUP) {
        chunk[base + i] = scale * exp(chunk[base + i] * params.inverse_temperature - largest);
    }
    // Each thread adds only to columns that it wrote, pairs in order, so no two threads write to one column.
    for (var i = from_pair; i < to_pair; i += 1u) {
        let column = targets[pairs[i]] - params.first;
        if column >= part.begin && column < part.end && (column - part.begin) % GROUP == local {
            chunk[base + column] += upstream[pairs[i]] * params.inverse_temperature;
        }
    }
}
