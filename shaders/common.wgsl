// Appended to every shader.

/// Stands for minus infinity, which WGSL has no literal for.
const LOWEST: f32 = -1e30;

/// Workgroups in the first dimension of a folded launch: as many as a device allows at least. (Not `num_workgroups`: naga gets
/// it wrong in a struct for Direct3D.)
const ROW_OF_GROUPS: u32 = 65535u;

struct Invocation {
    @builtin(workgroup_id) group: vec3<u32>,
    /// The index of the thread in its workgroup.
    @builtin(local_invocation_index) local: u32,
}

/// The index of the workgroup. Launches of more than 65,535 workgroups are folded into two dimensions, and long launches
/// are split: `first_group`, the last parameter of each shader, is the first workgroup of the part.
fn flat_group(id: Invocation) -> u32 {
    return params.first_group + id.group.y * ROW_OF_GROUPS + id.group.x;
}

/// The index of the thread. The fold adds surplus workgroups, so it must be compared with the true count.
fn flat_thread(id: Invocation, per_group: u32) -> u32 {
    return flat_group(id) * per_group + id.local;
}
