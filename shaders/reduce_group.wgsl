// Put behind the shaders whose threads combine a value each. Such a shader says what the value is and how two become
// one, `alias Shared = ...;` and `fn combine(a: Shared, b: Shared) -> Shared`, and has GROUP threads in a workgroup.

var<workgroup> shared_values: array<Shared, GROUP>;

/// The values of `lanes` neighbouring threads as one, known to all of them. `lanes` is a power of two up to GROUP and
/// the same everywhere, and every thread of the workgroup must come here. One half is folded onto the other, so the
/// order is fixed. The values are still being read afterwards: a barrier must stand between two calls.
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
