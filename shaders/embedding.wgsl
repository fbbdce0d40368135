// tensor/src/ops/embedding.rs: rows of a table. Its gradient is that of gathered rows: rows.wgsl.

const GROUP: u32 = 64u;
/// How the table is stored. 0: f32. 1: f16. 2: bf16.
const FORMAT: u32 = 0u;

struct Params {
    /// Numbers of the result, and in one of its rows.
    count: u32, cols: u32,
    /// Numbers from one stored row of the table to the next.
    step: u32,
    /// Which rows of the table are in this buffer.
    first: u32, rows: u32,
    first_group: u32,
}
var<immediate> params: Params;

/// (rows, step), two numbers to a word where they have 16 bits
@group(0) @binding(0) var<storage, read> table: array<u32>;
/// (T)
@group(0) @binding(1) var<storage, read> ids: array<u32>;
/// (T, cols)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

fn number(i: u32) -> f32 {
    if FORMAT == 0u {
        return bitcast<f32>(table[i]);
    }
    let pair = table[i / 2u];
    if FORMAT == 1u {
        return unpack2x16float(pair)[i % 2u];
    }
    return bitcast<f32>(select(pair & 0xffff0000u, pair << 16u, i % 2u == 0u));
}

@compute @workgroup_size(GROUP)
fn gather(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let i = flat_thread(group, groups, local, GROUP);
    if i >= params.count {
        return;
    }
    let row = ids[i / params.cols] - params.first;
    // wraps around for the rows before this buffer's
    if row < params.rows {
        y[i] = number(row * params.step + i % params.cols);
    }
}
