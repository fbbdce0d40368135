// tensor/src/ops/rl/sample.rs: for each draw the token with the largest sum of scaled logit and Gumbel noise.

const GROUP: u32 = 64u;
const BLOCK: u32 = 2048u;
/// Not the id of a token.
const NONE: u32 = 0xffffffffu;

struct Params {
    draws: u32,
    /// first token and length of the chunk
    first: u32,
    length: u32,
    /// blocks of the whole vocabulary
    blocks: u32,
    inverse_temperature: f32,
    /// 0 selects the most likely token
    noisy: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// The upper half of a 64-bit product, from products of 16 bits.
fn multiply_high(a: u32, b: u32) -> u32 {
    let low = a & 0xffffu;
    let high = a >> 16u;
    let first = low * (b & 0xffffu);
    let second = high * (b & 0xffffu) + (first >> 16u);
    let third = low * (b >> 16u) + (second & 0xffffu);
    return high * (b >> 16u) + (second >> 16u) + (third >> 16u);
}

/// Philox4x32-10: four random words for each counter and key (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as
/// easy as 1, 2, 3; SC 2011).
fn philox(counter: u32, key: vec2<u32>) -> vec4<u32> {
    var x = vec4<u32>(counter, 0u, 0u, 0u);
    var k = key;
    for (var round = 0u; round < 10u; round += 1u) {
        x = vec4<u32>(
            multiply_high(0xcd9e8d57u, x.z) ^ x.y ^ k.x,
            0xcd9e8d57u * x.z,
            multiply_high(0xd2511f53u, x.x) ^ x.w ^ k.y,
            0xd2511f53u * x.x,
        );
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return x;
}

/// -log(-log(1 - u)) for u = (bits + 1/2) / 2^32. Large noise comes from small u, where floats are finest and the series of
/// -log(1 - u) is exact. Elsewhere 1 - u is computed from the inverted bits, so neither logarithm gets 0.
fn gumbel(bits: u32) -> f32 {
    const UNIT = 1.0 / 4294967296.0;
    let u = (f32(bits) + 0.5) * UNIT;
    let rest = (f32(~bits) + 0.5) * UNIT;
    let near = u * (1.0 + u * (0.5 + u * (1.0 / 3.0)));
    return -log(select(-log(rest), near, bits < 0x01000000u));
}

@group(0) @binding(0) var<storage, read> logits: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read> keys: array<vec2<u32>>;
/// For each draw and block: the best score, its scaled logit and its token.
@group(0) @binding(3) var<storage, read_write> scores: array<f32>;
@group(0) @binding(4) var<storage, read_write> scaled: array<f32>;
@group(0) @binding(5) var<storage, read_write> ids: array<u32>;

struct Best {
    score: f32,
    logit: f32,
    id: u32,
}

/// The better of two, of equals the one with the lower id, so that the result does not depend on the order.
fn better(a: Best, b: Best) -> Best {
    if b.score > a.score || (b.score == a.score && b.id < a.id) {
        return b;
    }
    return a;
}

alias Shared = Best;

fn combine(a: Best, b: Best) -> Best {
    return better(a, b);
}

/// The best token of one block for one draw, in one workgroup.
@compute @workgroup_size(GROUP)
fn draw(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let index = flat_group(id);
    let per_draw = (params.length + BLOCK - 1u) / BLOCK;
    let draw_index = index / per_draw;
    let there = draw_index < params.draws;
    let begin = (index % per_draw) * BLOCK;
    let end = select(0u, min(begin + BLOCK, params.length), there);
    var base = 0u;
    var key = vec2<u32>(0u);
    if there {
        base = rows[draw_index] * params.length;
        key = keys[draw_index];
    }

    var best = Best(LOWEST, LOWEST, NONE);
    // Four tokens at a time, since the generator returns four words. Blocks start at multiples of four.
    for (var i = begin + 4u * local; i < end; i += 4u * GROUP) {
        var noise = vec4<f32>(0.0);
        if params.noisy == 1u {
            let words = philox((params.first + i) / 4u, key);
            noise = vec4<f32>(gumbel(words.x), gumbel(words.y), gumbel(words.z), gumbel(words.w));
        }
        for (var j = 0u; j < min(4u, end - i); j += 1u) {
            let logit = logits[base + i + j] * params.inverse_temperature;
            best = better(best, Best(logit + noise[j], logit, params.first + i + j));
        }
    }
    best = combined(best, local, GROUP);
    if local == 0u && there {
        let out = draw_index * params.blocks + (params.first + begin) / BLOCK;
        scores[out] = best.score;
        scaled[out] = best.logit;
        // If no logit is a number, the log-prob is not either; the id must be valid.
        ids[out] = select(best.id, params.first + begin, best.id == NONE);
    }
}

@group(0) @binding(0) var<storage, read> read_scores: array<f32>;
@group(0) @binding(1) var<storage, read> read_scaled: array<f32>;
@group(0) @binding(2) var<storage, read> read_ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> picked: array<f32>;

/// The best token of all blocks and its scaled logit. One thread per draw.
@compute @workgroup_size(GROUP)
fn choose(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let draw_index = flat_thread(id, local, GROUP);
    if draw_index >= params.draws {
        return;
    }
    var best = Best(LOWEST, LOWEST, NONE);
    for (var i = draw_index * params.blocks; i < (draw_index + 1u) * params.blocks; i += 1u) {
        best = better(best, Best(read_scores[i], read_scaled[i], read_ids[i]));
    }
    tokens[draw_index] = best.id;
    picked[draw_index] = best.logit;
}
