// Appended to shaders whose threads reduce values. Such a shader defines the type of the values and their combination,
// `alias Shared = ...;` and `fn combine(a: Shared, b: Shared) -> Shared`, and has GROUP threads in a workgroup.

var<workgroup> shared_values: array<Shared, GROUP>;

/// Combines the values of `lanes` neighbouring threads and returns the result to each of them. `lanes` is a power of two
/// up to GROUP and the same for all threads, and every thread of the workgroup must call this. The order is fixed: one
/// half is added to the other. Between two calls there must be a barrier.
fn combined(own: Shared, local: u32, lanes: u32) -> Shared {
    if lanes == 1u {
        return own;
    }
    shared_values[local] = own;
    for (var half = lanes / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local % lanes < half {
            shared_values[local] = combine(shared_values[local], shared_values[local + half]);
        }
    }
    workgroupBarrier();
    return shared_values[local - local % lanes];
}
