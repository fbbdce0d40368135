//! The WGSL kernels of lapwing as text. An op is one file here and the file of the same stem in `tensor/src/ops/`.
//!
//! Each file is valid WGSL by itself once [`COMMON`] is put behind it (behind, so that line numbers in a compiler's
//! message are those of the file). What varies, such as a tile size, is a `const` that the tensor crate replaces.

/// What every shader may use: put behind its text before compiling.
pub const COMMON: &str = include_str!("common.wgsl");

macro_rules! shaders {
    ($($name:ident)*) => {
        /// Every shader: its name and its text.
        pub const SHADERS: &[(&str, &str)] = &[$((stringify!($name), include_str!(concat!(stringify!($name), ".wgsl")))),*];
    };
}

shaders! {
    adamw
    attention
    attention_lanes
    binary
    embedding
    fill
    log_prob
    matmul_lanes
    matmul_slices
    matmul_tiles
    policy_loss
    reduce
    rms_norm
    rope
    rows
    sample
    swiglu
    unary
}

/// The text of the shader `name`, without [`COMMON`].
///
/// # Panics
/// If there is no such shader: a name is written in code, never read from outside.
pub fn source(name: &str) -> &'static str {
    match SHADERS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => text,
        None => panic!("no shader is called {name}: is {name}.wgsl listed in shaders/lib.rs?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naga::valid::Capabilities;

    #[test]
    fn every_wgsl_file_is_listed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "wgsl") {
                let stem = path.file_stem().unwrap().to_str().unwrap();
                assert!(
                    stem == "common" || SHADERS.iter().any(|(name, _)| *name == stem),
                    "{stem}.wgsl is not listed"
                );
            }
        }
    }

    /// Every adapter has the first two; a kernel with subgroup operations has a stand-in without.
    const CAPABILITIES: Capabilities = Capabilities::IMMEDIATES
        .union(Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .union(Capabilities::SUBGROUP);

    #[test]
    fn every_shader_is_valid() {
        for (name, text) in SHADERS {
            let text = format!("{text}\n{COMMON}");
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
            naga::valid::Validator::new(naga::valid::ValidationFlags::all(), CAPABILITIES)
                .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                .subgroup_operations(naga::valid::SubgroupOperationSet::all())
                .validate(&module)
                .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        }
    }

    /// Every adapter offers eight storage buffers to a kernel and Metal keeps one for itself.
    #[test]
    fn no_shader_binds_more_than_seven_buffers() {
        for (name, text) in SHADERS {
            for slot in 7..16 {
                assert!(
                    !text.contains(&format!("@binding({slot})")),
                    "{name} uses binding {slot}"
                );
            }
        }
    }
}
