// tensor/src/ops/attention.rs: appended to attention.wgsl and attention_lanes.wgsl. Exponentials are powers of two.

const HEAD_SIZE: u32 = 16u;
const PARTS: u32 = HEAD_SIZE / 4u;
const LOG2_E: f32 = 1.4426950408889634;

/// `count`: queries, in a tree also keys; `values_at`: the offset of dv in `gradients`, in units of four numbers; `block` and
/// `together`: queries and query heads of a workgroup; `parts`: PARTS, for loops that must not be unrolled.
struct Params {
    count: u32,
    heads: u32,
    kv_heads: u32,
    groups: u32,
    scale: f32,
    values_at: u32,
    block: u32,
    together: u32,
    parts: u32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(3) var<storage, read> walk: array<u32>;        // QueryWalk or KeyWalk of visibility.rs
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;  // as q
/// log2 of the sum of 2^score, for the gradients.
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>;  // (queries, heads)

/// The log sum and dy · y.
@group(0) @binding(5) var<storage, read> kept_row_sums: array<vec2<f32>>;  // (queries, heads)
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> gradients: array<vec4<f32>>;  // dk, then dv

@group(0) @binding(0) var<storage, read> kept_y: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> kept_log_sums: array<f32>;
@group(0) @binding(2) var<storage, read> upstream: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> row_sums: array<vec2<f32>>;  // (queries, heads)
