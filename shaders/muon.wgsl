// tensor/src/ops/adamw/muon.rs: momentum, its nearest orthogonal matrix, and the update, for all matrices of an arena at once.
//
// The side of a matrix is its shorter axis. Square matrices of a side are symmetric, lie one after the other, and are padded
// with zeros to whole vec4s. One thread computes 4 x 4 elements.

const GROUP: u32 = 64u;

struct Params {
    /// matrices, or elements of a range of the arena
    count: u32,
    max_norm: f32,
    momentum: f32,
    one_minus_momentum: f32,
    /// factors of the terms of `product`
    identity: f32,
    linear: f32,
    square: f32,
    rate: f32,
    /// 1 - rate * weight decay
    decay: f32,
    first_group: u32,
}
var<immediate> params: Params;

struct Matrix {
    /// its first element in the arena
    offset: u32,
    rows: u32,
    columns: u32,
    /// the first vec4 of its square matrix
    square: u32,
    /// its first workgroup in launches over square matrices, and over whole ones
    first_of_squares: u32,
    first_of_all: u32,
}

/// Whether a norm is infinite or not a number. Tests the exponent, since a compiler may assume that x == x.
fn is_lost(norm: f32) -> bool {
    return (bitcast<u32>(norm) & 0x7f800000u) == 0x7f800000u;
}

@group(0) @binding(0) var<storage, read_write> gradients: array<f32>;
@group(0) @binding(1) var<storage, read_write> moment: array<f32>;
@group(0) @binding(2) var<storage, read_write> new_directions: array<f32>;
@group(0) @binding(3) var<storage, read> clipped_norm: array<f32>;

/// Adds the clipped gradients to their moving mean, clears them, and writes the mean after one more step (Nesterov).
@compute @workgroup_size(GROUP)
fn direct(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let raw = gradients[i];
    gradients[i] = 0.0;
    let norm = clipped_norm[0];
    if is_lost(norm) {
        new_directions[i] = 0.0;
        return;
    }
    let g = params.one_minus_momentum * raw * min(1.0, params.max_norm / (norm + 1e-6));
    let m = params.momentum * moment[i] + g;
    moment[i] = m;
    new_directions[i] = params.momentum * m + g;
}

@group(0) @binding(0) var<storage, read> matrices: array<Matrix>;
@group(0) @binding(1) var<storage, read> directions: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<f32>>;

fn side(m: Matrix) -> u32 {
    return min(m.rows, m.columns);
}

/// The number of vec4s in a row of its square matrix.
fn quads(m: Matrix) -> u32 {
    return (side(m) + 3u) / 4u;
}

/// The place of an element in the arena, by its numbers along the side and along the other axis.
fn place(m: Matrix, across: u32, along: u32) -> u32 {
    if m.rows <= m.columns {
        return m.offset + across * m.columns + along;
    }
    return m.offset + along * m.columns + across;
}

/// The matrix of a workgroup: the last of up to 65,536 that starts at it or before.
fn matrix_of(group: u32, of_all: bool) -> u32 {
    var found = 0u;
    for (var step = 32768u; step > 0u; step /= 2u) {
        let next = found + step;
        if next < params.count {
            let m = matrices[next];
            if select(m.first_of_squares, m.first_of_all, of_all) <= group {
                found = next;
            }
        }
    }
    return found;
}

/// The block of a thread in the square matrix of `m`: its rows and columns, in fours. Rows from `quads(m)` on are surplus.
fn block(m: Matrix, group: u32, local: u32) -> vec2<u32> {
    let number = (group - m.first_of_squares) * GROUP + local;
    return vec2(number / quads(m), number % quads(m));
}

/// An element; 0 outside of the matrix.
fn direction(m: Matrix, across: u32, along: u32) -> f32 {
    if across >= side(m) || along >= max(m.rows, m.columns) {
        return 0.0;
    }
    return directions[place(m, across, along)];
}

/// Four elements across, at one place along.
fn across4(m: Matrix, across: u32, along: u32) -> vec4<f32> {
    return vec4(
        direction(m, across, along),
        direction(m, across + 1u, along),
        direction(m, across + 2u, along),
        direction(m, across + 3u, along),
    );
}

/// Four elements along, at one place across.
fn along4(m: Matrix, across: u32, along: u32) -> vec4<f32> {
    return vec4(
        direction(m, across, along),
        direction(m, across, along + 1u),
        direction(m, across, along + 2u),
        direction(m, across, along + 3u),
    );
}

/// The products of the lines across with each other.
@compute @workgroup_size(GROUP)
fn gram(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = flat_group(id);
    let m = matrices[matrix_of(group, false)];
    let at = block(m, group, local);
    if at.x >= quads(m) {
        return;
    }
    var sum: array<vec4<f32>, 4>;
    for (var along = 0u; along < max(m.rows, m.columns); along++) {
        let rows = across4(m, 4u * at.x, along);
        let columns = across4(m, 4u * at.y, along);
        for (var i = 0u; i < 4u; i++) {
            sum[i] += rows[i] * columns;
        }
    }
    for (var i = 0u; i < 4u; i++) {
        result[m.square + (4u * at.x + i) * quads(m) + at.y] = sum[i];
    }
}

@group(0) @binding(1) var<storage, read> left: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> scales: array<f32>;

/// Divides each square matrix by its trace, the square of the norm of the matrix; also writes one over that norm.
@compute @workgroup_size(GROUP)
fn normalise(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = flat_group(id);
    let number = matrix_of(group, false);
    let m = matrices[number];
    let at = block(m, group, local);
    if at.x >= quads(m) {
        return;
    }
    var trace = 0.0;
    for (var i = 0u; i < side(m); i++) {
        trace += left[m.square + i * quads(m) + i / 4u][i % 4u];
    }
    let scale = 1.0 / (sqrt(trace) + 1e-7);
    if at.x == 0u && at.y == 0u {
        scales[number] = scale;
    }
    for (var i = 0u; i < 4u; i++) {
        let here = m.square + (4u * at.x + i) * quads(m) + at.y;
        result[here] = scale * scale * left[here];
    }
}

@group(0) @binding(3) var<storage, read> right: array<vec4<f32>>;

/// identity * I + linear * right + square * left right, for square matrices that commute.
@compute @workgroup_size(GROUP)
fn product(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = flat_group(id);
    let m = matrices[matrix_of(group, false)];
    let at = block(m, group, local);
    if at.x >= quads(m) {
        return;
    }
    var sum: array<vec4<f32>, 4>;
    for (var k = 0u; k < side(m); k++) {
        // Four rows of one column: left is symmetric.
        let rows = left[m.square + k * quads(m) + at.x];
        let columns = right[m.square + k * quads(m) + at.y];
        for (var i = 0u; i < 4u; i++) {
            sum[i] += rows[i] * columns;
        }
    }
    for (var i = 0u; i < 4u; i++) {
        let here = m.square + (4u * at.x + i) * quads(m) + at.y;
        let identity = select(0.0, params.identity, at.x == at.y);
        let diagonal = identity * vec4(f32(i == 0u), f32(i == 1u), f32(i == 2u), f32(i == 3u));
        result[here] = params.square * sum[i] + params.linear * right[here] + diagonal;
    }
}

@group(0) @binding(2) var<storage, read_write> values: array<f32>;
@group(0) @binding(3) var<storage, read> polynomial: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> read_scales: array<f32>;
@group(0) @binding(5) var<storage, read> read_norm: array<f32>;

/// Moves the values against the polynomial times the directions.
@compute @workgroup_size(GROUP)
fn update(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let group = flat_group(id);
    let number = matrix_of(group, true);
    let m = matrices[number];
    let length = max(m.rows, m.columns);
    let blocks = (length + 3u) / 4u;
    let thread = (group - m.first_of_all) * GROUP + local;
    let across = thread / blocks;
    let along = 4u * (thread % blocks);
    if across >= quads(m) || is_lost(read_norm[0]) {
        return;
    }
    var sum: array<vec4<f32>, 4>;
    for (var k = 0u; k < side(m); k++) {
        let factors = polynomial[m.square + k * quads(m) + across];
        let four = along4(m, k, along);
        for (var i = 0u; i < 4u; i++) {
            sum[i] += factors[i] * four;
        }
    }
    let rate = params.rate * read_scales[number] * sqrt(max(1.0, f32(m.rows) / f32(m.columns)));
    for (var i = 0u; i < 4u; i++) {
        for (var j = 0u; j < 4u; j++) {
            if 4u * across + i < side(m) && along + j < length {
                let here = place(m, 4u * across + i, along + j);
                values[here] = params.decay * values[here] - rate * sum[i][j];
            }
        }
    }
}
