// Appended to every shader.

/// Stands for minus infinity, which WGSL has no literal for.
const LOWEST: f32 = -1e30;

/// Workgroups in the first dimension of a folded launch: as many as a device allows at least. (Not `num_workgroups`: naga gets
/// it wrong for Direct3D outside of the entry point.)
const ROW_OF_GROUPS: u32 = 65535u;

/// The index of the workgroup. Launches of more than 65,535 workgroups are folded into two dimensions, and long launches
/// are split: `first_group`, the last parameter of each shader, is the first workgroup of the part.
fn flat_group(id: vec3<u32>) -> u32 {
    return params.first_group + id.y * ROW_OF_GROUPS + id.x;
}

/// The index of the thread. The fold adds surplus workgroups, so it must be compared with the true count.
fn flat_thread(id: vec3<u32>, local: u32, per_group: u32) -> u32 {
    return flat_group(id) * per_group + local;
}
