//! The WGSL kernels of lapwing as text. An op of `tensor/src/ops/` has a file with the same stem here, or several variants
//! whose names start with it.
//!
//! Each file is plain WGSL that needs the shared files after the plus in the list below, and `common.wgsl`. They are
//! appended, so that line numbers in compiler messages are those of the file. Values that vary, such as a tile size, are
//! `const` lines that the tensor crate replaces.

macro_rules! shaders {
    ($($name:ident $(+ $shared:ident)*)*) => {
        /// The name of each shader, and its text with the shared ones.
        const SHADERS: &[(&str, &[&str])] = &[$((
            stringify!($name),
            &[
                include_str!(concat!(stringify!($name), ".wgsl")),
                $(include_str!(concat!(stringify!($shared), ".wgsl")),)*
                include_str!("common.wgsl"),
            ],
        )),*];

        #[cfg(test)]
        const LISTED: &[&str] = &["common", "exchange_group", $(stringify!($name), $(stringify!($shared),)*)*];
    };
}

shaders! {
    adamw + reduce_group
    adamw_add
    attention + attention_shared
    attention_lanes + attention_shared + exchange_subgroup
    binary
    embedding + weight_quantised
    fill
    log_prob + reduce_group
    matmul_lanes + matmul_shared + weight_quantised + exchange_subgroup
    matmul_slices
    matmul_tiles + matmul_shared + weight_quantised
    muon
    norm + reduce_group
    policy_loss + reduce_group
    probe
    reduce
    rope
    rows
    sample + reduce_group
    swiglu
    unary
}

/// The device features that the text of shaders depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect {
    /// Whether parameters are passed in the launch command. Otherwise they are in a uniform buffer, `@binding(7)`.
    pub immediates: bool,
    /// Whether threads exchange values within a subgroup. Otherwise they use workgroup memory.
    pub subgroups: bool,
}

const IMMEDIATES: &str = "var<immediate> params: Params;";
const UNIFORM: &str = "@group(0) @binding(7) var<uniform> params: Params;";
const BY_SUBGROUP: &str = include_str!("exchange_subgroup.wgsl");
const BY_GROUP: &str = include_str!("exchange_group.wgsl");

/// Returns the text of the shader `name` with the shared files.
///
/// # Panics
/// If there is no such shader.
pub fn source(name: &str, dialect: Dialect) -> String {
    let Some((_, texts)) = SHADERS.iter().find(|(known, _)| *known == name) else {
        panic!("no shader is called {name}: is {name}.wgsl listed in shaders/lib.rs?");
    };
    let exchanged = |text: &&'static str| match dialect.subgroups || *text != BY_SUBGROUP {
        true => *text,
        false => BY_GROUP,
    };
    let text = texts.iter().map(exchanged).collect::<Vec<_>>().join("\n");
    match dialect.immediates {
        true => text,
        false => text.replace(IMMEDIATES, UNIFORM),
    }
}

/// Returns the name of each shader.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHADERS.iter().map(|(name, _)| *name)
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

    /// The features that the validator accepts in a dialect.
    fn capabilities(dialect: Dialect) -> Capabilities {
        let mut needed = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        needed.set(Capabilities::IMMEDIATES, dialect.immediates);
        needed.set(Capabilities::SUBGROUP, dialect.subgroups);
        needed
    }

    /// Each shader in each dialect, with a name for messages.
    fn all() -> impl Iterator<Item = (String, Dialect, String)> {
        let dialect = |kind| Dialect {
            immediates: kind & 1 == 0,
            subgroups: kind & 2 == 0,
        };
        let each = move |name| (0..4).map(move |kind| (name, dialect(kind)));
        names().flat_map(each).map(|(name, dialect)| {
            let text = source(name, dialect);
            (format!("{name} {dialect:?}"), dialect, text)
        })
    }

    fn parsed(name: &str, text: &str) -> naga::Module {
        naga::front::wgsl::parse_str(text)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(text)))
    }

    #[test]
    fn every_shader_is_valid_in_every_dialect() {
        for (name, dialect, text) in all() {
            let subgroups = match dialect.subgroups {
                true => naga::valid::SubgroupOperationSet::all(),
                false => naga::valid::SubgroupOperationSet::empty(),
            };
            let flags = naga::valid::ValidationFlags::all();
            naga::valid::Validator::new(flags, capabilities(dialect))
                .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                .subgroup_operations(subgroups)
                .validate(&parsed(&name, &text))
                .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(&text)));
        }
    }

    #[test]
    fn the_text_uses_the_features_of_its_dialect() {
        for (name, dialect, text) in all() {
            let (immediate, uniform) = (text.contains("<immediate>"), text.contains("<uniform>"));
            assert_eq!(
                (immediate, uniform),
                (dialect.immediates, !dialect.immediates),
                "{name}"
            );
        }
        let texts = |subgroups| {
            let dialect = Dialect {
                immediates: true,
                subgroups,
            };
            let other = |name: &&str| source(name, dialect).contains("subgroupShuffle");
            names().filter(other).collect::<Vec<_>>()
        };
        assert_eq!(texts(true), ["attention_lanes", "matmul_lanes"]);
    }

    /// Every device supports eight storage buffers in a kernel, and Metal needs one of them.
    #[test]
    fn no_shader_binds_more_than_seven_buffers() {
        for (name, dialect, text) in all() {
            let most = if dialect.immediates { 7 } else { 8 };
            for slot in most..16 {
                assert!(
                    !text.contains(&format!("@binding({slot})")),
                    "{name} uses binding {slot}"
                );
            }
        }
    }
}
