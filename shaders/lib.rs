//! The WGSL kernels of lapwing as text. An op is one file here, or its variants and what they share, and the file of the
//! same stem in `tensor/src/ops/`.
//!
//! Each file is plain WGSL, valid once what it shares with others is put behind it (behind, so that line numbers in a
//! compiler's message are those of the file): `common.wgsl` always, and what the list below names after a plus. What
//! varies, such as a tile size, is a `const` that the tensor crate replaces.

macro_rules! shaders {
    ($($name:ident $(+ $shared:ident)*)*) => {
        /// The name of each shader, and its own text with those that go behind it.
        const SHADERS: &[(&str, &[&str])] = &[$((
            stringify!($name),
            &[
                include_str!(concat!(stringify!($name), ".wgsl")),
                $(include_str!(concat!(stringify!($shared), ".wgsl")),)*
                include_str!("common.wgsl"),
            ],
        )),*];

        #[cfg(test)]
        const LISTED: &[&str] = &["common", $(stringify!($name), $(stringify!($shared),)*)*];
    };
}

shaders! {
    adamw + reduce_group
    attention + attention_shared
    attention_lanes + attention_shared
    binary
    embedding
    fill
    layer_norm + reduce_group
    log_prob + reduce_group
    matmul_lanes + matmul_shared
    matmul_slices
    matmul_tiles + matmul_shared
    policy_loss + reduce_group
    probe
    reduce
    rms_norm + reduce_group
    rope
    rows
    sample + reduce_group
    swiglu
    unary
}

/// The text of the shader `name`, with what it shares with others behind it.
///
/// # Panics
/// If there is no such shader: a name is written in code, never read from outside.
pub fn source(name: &str) -> String {
    match SHADERS.iter().find(|(known, _)| *known == name) {
        Some((_, texts)) => texts.join("\n"),
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
                assert!(LISTED.contains(&stem), "{stem}.wgsl is not listed");
            }
        }
    }

    /// Every adapter has the first two; a kernel with subgroup operations has a stand-in without.
    const CAPABILITIES: Capabilities = Capabilities::IMMEDIATES
        .union(Capabilities::SHADER_FLOAT16_IN_FLOAT32)
        .union(Capabilities::SUBGROUP);

    #[test]
    fn every_shader_is_valid() {
        for (name, _) in SHADERS {
            let text = source(name);
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
        for (name, _) in SHADERS {
            let text = source(name);
            for slot in 7..16 {
                assert!(
                    !text.contains(&format!("@binding({slot})")),
                    "{name} uses binding {slot}"
                );
            }
        }
    }
}
