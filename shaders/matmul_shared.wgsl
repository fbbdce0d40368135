// tensor/src/ops/matmul.rs: appended to matmul_lanes.wgsl, matmul_rows.wgsl and matmul_tiles.wgsl.

/// 0: left (m, k), right (n, k) transposed. 1: left (m, k), right (k, n). 2: left (k, m) transposed, right (k, n).
const LAYOUT: u32 = 0u;
/// The format of `right`. 0: f32. 1: f16. 2: bf16. 3: 4 bits. 4: 8 bits. 5: 8 bits with shorter groups.
const FORMAT: u32 = 0u;
/// 1 if all rows of left and right start at a multiple of four numbers.
const WIDE: u32 = 1u;
/// 1 if all rows of y start at a multiple of four numbers.
const Y_WIDE: u32 = 0u;
/// 1: the launch has two parts of equal size and computes y = silu(first) * second. A tile then has two columns of the first
/// part, two of the second, and so on.
const GATED: u32 = 0u;

/// y = alpha left right + low up + bias + residual, summed over k in ascending order. The buffers of absent terms are not
/// read. A launch computes up to three products of `left` with different matrices; with more than one, in layout 0, without
/// slices and residual.
struct Params {
    /// y is (m, n). The low-rank term has the layout of the main term and sums over `rank`, which is 0 if there is none.
    m: u32, n: u32, k: u32, rank: u32,
    /// Distance of two stored rows, in numbers; of a quantised matrix in 16 bytes, as its offset.
    left_step: u32, right_step: u32, up_step: u32, y_step: u32,
    /// Offset of the first number.
    left_at: u32, right_at: u32, up_at: u32, y_at: u32,
    /// Length of a slice of k, and distance of the results of two slices.
    slice: u32, y_slice: u32,
    alpha: f32,
    /// Offset of the bias.
    bias_at: u32,
    /// 1 if there is a bias, a residual.
    has_bias: u32, has_residual: u32,
    /// Columns and offsets of the second and third part; no columns if there is none.
    n_1: u32, right_at_1: u32, up_at_1: u32, bias_at_1: u32,
    n_2: u32, right_at_2: u32, up_at_2: u32, bias_at_2: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// The sizes and offsets of the part that a workgroup computes.
struct Part { n: u32, y_step: u32, y_at: u32, right_at: u32, up_at: u32, bias_at: u32, low_at: u32 }
var<private> part: Part;

/// Numbers of a part of y, or of the low-rank term, with `columns` columns. Each part is a tensor of its own, which
/// starts at a multiple of 64.
fn part_size(columns: u32) -> u32 {
    return (params.m * columns + 63u) / 64u * 64u;
}

/// Sets `part` for a workgroup and returns its number among those of the part. A workgroup has `height` rows and `width`
/// columns.
fn choose_part(group: u32, height: u32, width: u32) -> u32 {
    part = Part(params.n, params.y_step, params.y_at, params.right_at, params.up_at, params.bias_at, 0u);
    var rest = group;
    if params.n_1 > 0u && GATED == 0u {
        let down = (params.m + height - 1u) / height;
        let first = (params.n + width - 1u) / width * down;
        if rest >= first {
            rest -= first;
            let at = part_size(params.n);
            part = Part(params.n_1, params.n_1, at, params.right_at_1, params.up_at_1, params.bias_at_1, part_size(params.rank));
            let second = (params.n_1 + width - 1u) / width * down;
            if params.n_2 > 0u && rest >= second {
                rest -= second;
                part = Part(
                    params.n_2, params.n_2, at + part_size(params.n_1),
                    params.right_at_2, params.up_at_2, params.bias_at_2, 2u * part_size(params.rank),
                );
            }
        }
    }
    return rest;
}

/// The slice of k of a workgroup. Loops with barriers depend on it, so it must not depend on `part`: browsers take a private
/// variable for one that differs between threads.
fn slice_of(group: u32, height: u32, width: u32) -> u32 {
    let tiles = (params.n + width - 1u) / width * ((params.m + height - 1u) / height);
    return select(group / tiles, 0u, params.n_1 > 0u);
}

/// Tiles of `width` columns beside each other.
fn tiles_across(width: u32) -> u32 {
    let columns = width / (1u + GATED);
    return (part.n + columns - 1u) / columns;
}

@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read> low: array<Four>;
@group(0) @binding(4) var<storage, read> up: array<Four>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> residual: array<vec4<f32>>;

/// The indices of the numbers `at` .. `at` + 4 of a row that starts at `start` and has `end` numbers; beyond the end that of
/// the last number.
fn places(start: u32, at: u32, end: u32) -> vec4<u32> {
    return start + min(vec4(at, at + 1u, at + 2u, at + 3u), vec4(end - 1u));
}

/// Four numbers in 16 bits each.
fn from_halves(pairs: vec2<u32>) -> vec4<f32> {
    if FORMAT == 1u {
        return vec4(unpack2x16float(pairs.x), unpack2x16float(pairs.y));
    }
    return bitcast<vec4<f32>>(vec4(pairs.x << 16u, pairs.x & 0xffff0000u, pairs.y << 16u, pairs.y & 0xffff0000u));
}

/// The starts of four consecutive rows of a matrix from `row` on. If GATED, `row` is a column of the tile, and two are of the
/// matrix at `beside`.
fn starts_of(row: u32, at: u32, beside: u32, step: u32) -> vec4<u32> {
    if GATED == 1u {
        let i = min(vec2(row / 2u, row / 2u + 1u), vec2(part.n - 1u)) * step;
        return vec4(at + i, beside + i);
    }
    return at + min(vec4(row, row + 1u, row + 2u, row + 3u), vec4(part.n - 1u)) * step;
}

/// For layout 0: the starts of the rows of `right` that belong to four columns of the tile, of which the first is a multiple of
/// four.
fn right_starts(column: u32) -> vec4<u32> {
    if INTERLEAVED > 1u {
        // Rows beyond the last one are zeros.
        let start = row_start(column / (1u + GATED), params.right_step);
        let first = vec2(start, start + STRIPE);
        return vec4(part.right_at + first, select(part.right_at + 2u * STRIPE, params.right_at_1, GATED == 1u) + first);
    }
    return starts_of(column, part.right_at, params.right_at_1, params.right_step);
}

/// Four numbers of a row of `up` that starts at `start`, in layout 0. If GATED, the sum over the rank runs twice: for the
/// columns of the first part, then for those of the second.
fn up_four(start: u32, is_of_second: bool, k: u32) -> vec4<f32> {
    if GATED == 1u {
        return four(up[(start + k % params.rank) / 4u]) * f32(is_of_second == (k >= params.rank));
    }
    return four(up[(start + k) / 4u]);
}

/// For layout 0: the starts of the rows of `up` that belong to four columns of the tile.
fn up_starts(column: u32) -> vec4<u32> {
    return starts_of(column, part.up_at, params.up_at_1, params.up_step);
}

/// The end of the sum over the rank, and the place of `low` for it.
fn end_of_low() -> u32 {
    return params.rank * (1u + GATED);
}

fn low_place(row: u32, k: u32) -> u32 {
    if GATED == 1u && k >= params.rank {
        return (part_size(params.rank) + row * params.rank + k - params.rank) / 4u;
    }
    return (part.low_at + row * params.rank + k) / 4u;
}

/// Writes the two columns of a row of y that four columns of the tile are for, if GATED.
fn store_gated(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    let two = sum.xy * (1.0 / (1.0 + exp(-sum.xy))) * sum.zw;
    for (var j = 0u; j < 2u; j++) {
        if row < params.m && column + j < part.n {
            y[start + row * part.y_step + column + j] = two[j];
        }
    }
}

/// Adds the residual and writes four columns of a row of y, which starts at `start`. It writes single numbers: a store to
/// a component of a vector may write the whole vector (as on Metal), and other threads write the other components.
fn store(start: u32, row: u32, column: u32, sum: vec4<f32>) {
    if GATED == 1u {
        store_gated(start, row, column / 2u, sum);
        return;
    }
    if row >= params.m || column >= part.n {
        return;
    }
    let i = start + row * part.y_step + column;
    if Y_WIDE == 1u {
        var whole = sum;
        if params.has_residual == 1u {
            whole += residual[i / 4u];
        }
        y[i] = whole.x;
        y[i + 1u] = whole.y;
        y[i + 2u] = whole.z;
        y[i + 3u] = whole.w;
        return;
    }
    for (var j = 0u; j < min(4u, part.n - column); j++) {
        var one = sum[j];
        if params.has_residual == 1u {
            one += residual[(i + j) / 4u][(i + j) % 4u];
        }
        y[i + j] = one;
    }
}

/// Four numbers of the bias.
fn bias_four(column: u32) -> vec4<f32> {
    if params.has_bias == 0u {
        return vec4<f32>();
    }
    let i = places(part.bias_at, column, part.n);
    return vec4(bias[i.x], bias[i.y], bias[i.z], bias[i.w]);
}

fn low_block(row: u32, k: u32) -> mat4x4<f32> {
    let last = params.m - 1u;
    return mat4x4(
        four(low[low_place(min(row, last), k)]), four(low[low_place(min(row + 1u, last), k)]),
        four(low[low_place(min(row + 2u, last), k)]), four(low[low_place(min(row + 3u, last), k)]),
    );
}

fn up_block(column: u32, k: u32) -> mat4x4<f32> {
    if LAYOUT == 0u {
        let i = up_starts(column);
        return transpose(mat4x4(
            up_four(i.x, false, k), up_four(i.y, false, k), up_four(i.z, true, k), up_four(i.w, true, k),
        ));
    }
    let i = (params.up_at + vec4(k, k + 1u, k + 2u, k + 3u) * params.up_step + column) / 4u;
    return mat4x4(four(up[i.x]), four(up[i.y]), four(up[i.z]), four(up[i.w]));
}
