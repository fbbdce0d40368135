// tensor/src/ops/matmul.rs: appended to matmul_lanes.wgsl and matmul_tiles.wgsl.

/// 0: left (m, k), right (n, k) transposed. 1: left (m, k), right (k, n). 2: left (k, m) transposed, right (k, n).
const LAYOUT: u32 = 0u;
/// The format of `right`. 0: f32. 1: f16. 2: bf16.
const FORMAT: u32 = 0u;
/// 1 if all rows start at a multiple of four numbers: those of left and right, and those of y (only used by
/// matmul_lanes.wgsl).
const WIDE: u32 = 1u;
const Y_WIDE: u32 = 1u;
/// 1 if there is a low-rank term, a bias, a residual.
const HAS_LOW: u32 = 0u;
const HAS_BIAS: u32 = 0u;
const HAS_RESIDUAL: u32 = 0u;

/// y = alpha left right + low up + bias + residual, summed over k in ascending order. The buffers of absent terms are not
/// read.
struct Params {
    /// y is (m, n). The low-rank term has the layout of the main term and sums over `rank`.
    m: u32, n: u32, k: u32, rank: u32,
    /// Distance of two stored rows, in numbers.
    left_step: u32, right_step: u32, up_step: u32, y_step: u32,
    /// Offset of the first number.
    left_at: u32, right_at: u32, up_at: u32, y_at: u32,
    /// Length of a slice of k, and distance of the results of two slices.
    slice: u32, y_slice: u32,
    alpha: f32,
    first_group: u32,
}
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> right: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> low: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> residual: array<vec4<f32>>;

/// The indices of the numbers `at` .. `at` + 4 of a row that starts at `start` and has `end` numbers; beyond the end that of
/// the last number.
fn places(start: u32, at: u32, end: u32) -> vec4<u32> {
    return start + min(vec4(at, at + 1u, at + 2u, at + 3u), vec4(end - 1u));
}

/// Four numbers of a row of `left`, from `at`; 0 beyond the end.
fn left_four(row: u32, at: u32, end: u32) -> vec4<f32> {
    let start = params.left_at + row * params.left_step;
    if WIDE == 1u {
        return left[(start + at) / 4u];
    }
    let i = places(start, at, end);
    let four = vec4(left[i.x / 4u][i.x % 4u], left[i.y / 4u][i.y % 4u], left[i.z / 4u][i.z % 4u], left[i.w / 4u][i.w % 4u]);
    return select(vec4<f32>(), four, vec4(at, at + 1u, at + 2u, at + 3u) < vec4(end));
}

/// Four numbers in 16 bits each.
fn from_halves(pairs: vec2<u32>) -> vec4<f32> {
    if FORMAT == 1u {
        return vec4(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
    }
    return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
}

/// Four numbers of a row of `right`, from `at`; beyond the end any finite number, since `left` is 0 there or the result is
/// not written.
fn right_four(row: u32, at: u32, end: u32) -> vec4<f32> {
    let start = params.right_at + row * params.right_step;
    let first = start + at;
    if FORMAT != 0u {
        let half = first / 4u % 2u * 2u;
        let pairs = vec2(right[first / 8u][half], right[first / 8u][half + 1u]);
        return from_halves(pairs);
    }
    if WIDE == 1u {
        return bitcast<vec4<f32>>(right[first / 4u]);
    }
    let i = places(start, at, end);
    let four = vec4(right[i.x / 4u][i.x % 4u], right[i.y / 4u][i.y % 4u], right[i.z / 4u][i.z % 4u], right[i.w / 4u][i.w % 4u]);
    return bitcast<vec4<f32>>(four);
}

/// Four numbers of the bias.
fn bias_four(column: u32) -> vec4<f32> {
    if HAS_BIAS == 0u {
        return vec4<f32>();
    }
    let i = places(params.y_at, column, params.n);
    return vec4(bias[i.x], bias[i.y], bias[i.z], bias[i.w]);
}
