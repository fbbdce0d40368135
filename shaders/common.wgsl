// Put behind every shader.

/// Stands for minus infinity, which WGSL cannot write.
const LOWEST: f32 = -1e30;

/// The index of this workgroup: launches of more than 65,535 groups are folded into two dimensions, and long ones come in
/// parts. Each shader's parameters end with the first group of the part at hand.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return params.first_group + group.y * groups.x + group.x;
}

/// The index of this thread. The fold launches surplus groups: compare it with the true count.
fn flat_thread(group: vec3<u32>, groups: vec3<u32>, local: u32, per_group: u32) -> u32 {
    return flat_group(group, groups) * per_group + local;
}
