// tensor/src/ops/attention.rs: appended to attention.wgsl and attention_lanes.wgsl. Exponentials are powers of two.

const HEAD_SIZE: u32 = 16u;
/// Query heads that share a key head.
const SHARING: u32 = 1u;
/// Queries, or keys, of a block.
const BLOCK: u32 = 8u;

const PARTS: u32 = HEAD_SIZE / 4u;
const LOG2_E: f32 = 1.4426950408889634;

/// `count`: queries, in a tree also keys; `values_at`: the offset of dv in `gradients`, in units of four numbers.
struct Params { count: u32, heads: u32, kv_heads: u32, groups: u32, scale: f32, values_at: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;     // (queries, heads, PARTS)
@group(0) @binding(1) var<storage, read> k: array<vec4<f32>>;     // (keys, kv_heads, PARTS)
@group(0) @binding(2) var<storage, read> v: array<vec4<f32>>;     // (keys, kv_heads, PARTS)
@group(0) @binding(3) var<storage, read> walk: array<u32>;        // QueryWalk or KeyWalk of visibility.rs
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;  // as q
/// log2 of the sum of 2^score, for the gradients.
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>;  // (queries, heads)

@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;
/// The log sum and dy · y.
@group(0) @binding(5) var<storage, read> kept_row_sums: array<vec2<f32>>;  // (queries, heads)
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> gradients: array<vec4<f32>>;  // dk, then dv

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
