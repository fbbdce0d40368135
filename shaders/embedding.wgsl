// tensor/src/ops/embedding.rs: rows of a table by id. The gradient is in rows.wgsl.

const GROUP: u32 = 64u;
/// The format of the table, as in matmul_shared.wgsl.
const FORMAT: u32 = 0u;

struct Params {
    /// Elements of the result, and of one of its rows.
    count: u32, cols: u32,
    /// Distance of two stored rows of the table, in elements; in 16 bytes if it is quantised, as `at`.
    step: u32,
    /// The rows of the table in this buffer or texture, and the place of the first one.
    first: u32, rows: u32, at: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// (T). The table, `right` (rows, step), is in weight_words.wgsl.
@group(0) @binding(0) var<storage, read> ids: array<u32>;
/// (T, cols)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn number(row: u32, column: u32) -> f32 {
    let start = params.at + row_start(row, params.step);
    if FORMAT >= 3u {
        return quantised_four(start, column / 4u * 4u)[column % 4u];
    }
    let i = start + column / 4u * 4u * INTERLEAVED + column % 4u;
    if FORMAT == 0u {
        return bitcast<f32>(word_at(i));
    }
    let pair = word_at(i / 2u);
    if FORMAT == 1u {
        return unpack2x16float(pair)[i % 2u];
    }
    return bitcast<f32>(select(pair & 0xffff0000u, pair << 16u, i % 2u == 0u));
}

@compute @workgroup_size(GROUP)
fn gather(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let row = ids[i / params.cols] - params.first;
    // Wraps around for rows before those of this buffer.
    if row < params.rows {
        y[i] = number(row, i % params.cols);
    }
}
