// tensor/src/ops/rows.rs: gathers and writes rows of a matrix. embedding.rs uses the gradient too.

const GROUP: u32 = 64u;

/// `count`: rows to copy; in gather_backward, elements of the result.
/// `step`: distance of two numbered rows.
struct Params { count: u32, cols: u32, step: u32, first_group: u32 }
var<immediate> params: Params;

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> rows: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

// gather_backward: the gathered rows that come from row r are places[starts[r]..starts[r + 1]].
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> places: array<u32>;
@group(0) @binding(3) var<storage, read_write> x_slope: array<f32>;

/// One row for each group.
@compute @workgroup_size(GROUP)
fn gather(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_group(id);
    if i < params.count {
        let first = rows[i] * params.step;
        for (var c = local; c < params.cols; c += GROUP) {
            y[i * params.cols + c] = x[first + c];
        }
    }
}

@compute @workgroup_size(GROUP)
fn scatter(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_group(id);
    if i < params.count {
        let first = rows[i] * params.step;
        for (var c = local; c < params.cols; c += GROUP) {
            y[first + c] = x[i * params.cols + c];
        }
    }
}

/// `x` is the gradient of the gathered rows.
@compute @workgroup_size(GROUP)
fn gather_backward(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let i = flat_thread(id, local, GROUP);
    if i >= params.count {
        return;
    }
    let row = i / params.cols;
    let col = i % params.cols;
    var sum = 0.0;
    for (var p = starts[row]; p < starts[row + 1u]; p += 1u) {
        sum += x[places[p] * params.cols + col];
    }
    x_slope[i] = sum;
}
