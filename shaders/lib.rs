//! The WGSL kernels of lapwing as text. An op of `tensor/src/ops/` has a file with the same stem here, or several variants
//! whose names start with it.
//!
//! Each file is plain WGSL that needs the shared files after the plus in the list below, and `common.wgsl`. They are
//! appended, so that line numbers in compiler messages are those of the file. Values that vary, such as a tile size, are
//! `const` lines that the tensor crate replaces. A shader whose matrix may also be a texture is listed twice, the second
//! time as `NAME_texture = NAME`.

macro_rules! file {
    ($name:ident) => {
        include_str!(concat!(stringify!($name), ".wgsl"))
    };
    ($variant:ident $name:ident) => {
        file!($name)
    };
}

macro_rules! shaders {
    ($($name:ident $(= $file:ident)? $(+ $shared:ident)*)*) => {
        /// The name of each shader, and its text with the shared ones.
        const SHADERS: &[(&str, &[&str])] = &[$((
            stringify!($name),
            &[file!($name $($file)?), $(file!($shared),)* file!(common)],
        )),*];

        #[cfg(test)]
        const LISTED: &[&str] = &["common", "exchange_group", "loads", $(stringify!($name), $(stringify!($shared),)*)*];
    };
}

shaders! {
    adamw + reduce_group
    adamw_add
    attention + attention_shared
    attention_lanes + attention_shared + loads_64 + exchange_subgroup
    binary
    embedding + weight_words + weight_rows
    embedding_texture = embedding + weight_texture + weight_rows
    fill
    log_prob + reduce_group
    matmul_lanes + matmul_shared + matmul_blocks + matmul_left_64 + weight_words_128 + weight_rows + loads_64 + exchange_subgroup
    matmul_lanes_texture = matmul_lanes + matmul_shared + matmul_blocks + matmul_left_texture + weight_texture + weight_rows + loads_64 + exchange_subgroup
    matmul_rows + matmul_shared + matmul_left_64 + weight_words_256 + weight_rows + loads_64 + exchange_subgroup
    matmul_rows_texture = matmul_rows + matmul_shared + matmul_left_64 + weight_texture + weight_rows + loads_64 + exchange_subgroup
    matmul_slices
    matmul_tiles + matmul_shared + matmul_blocks + matmul_left + weight_words + weight_rows + loads
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
    /// Whether kernels for processors use subgroups of eight threads and integers of 64 bits, which WebGPU does not have
    /// everywhere. Otherwise their threads exchange values in workgroup memory, and load 32 bits at once.
    pub extended: bool,
}

const IMMEDIATES: &str = "var<immediate> params: Params;";
const UNIFORM: &str = "@group(0) @binding(7) var<uniform> params: Params;";
/// The shared files that need an extended dialect, and those that replace them otherwise.
const REPLACED: [(&str, &str); 5] = [
    (file!(exchange_subgroup), file!(exchange_group)),
    (file!(loads_64), file!(loads)),
    (file!(matmul_left_64), file!(matmul_left)),
    (file!(weight_words_128), file!(weight_words)),
    (file!(weight_words_256), file!(weight_words)),
];

/// Returns the text of the shader `name` with the shared files.
///
/// # Panics
/// If there is no such shader.
pub fn source(name: &str, dialect: Dialect) -> String {
    let Some((_, texts)) = SHADERS.iter().find(|(known, _)| *known == name) else {
        panic!("no shader is called {name}: is {name}.wgsl listed in shaders/lib.rs?");
    };
    let fitting = |text: &&'static str| {
        let replaced = REPLACED.iter().find(|(extended, _)| extended == text);
        match replaced {
            Some((_, other)) if !dialect.extended => *other,
            _ => *text,
        }
    };
    let text = texts.iter().map(fitting).collect::<Vec<_>>().join("\n");
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
        let extended = Capabilities::SUBGROUP | Capabilities::SHADER_INT64;
        needed.set(extended, dialect.extended);
        needed
    }

    /// Each shader in each dialect, with a name for messages.
    fn all() -> impl Iterator<Item = (String, Dialect, String)> {
        let dialect = |kind| Dialect {
            immediates: kind & 1 == 0,
            extended: kind & 2 == 0,
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
            let flags = naga::valid::ValidationFlags::all();
            naga::valid::Validator::new(flags, capabilities(dialect))
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
        let texts = |with: &'static str| {
            let dialect = Dialect {
                immediates: true,
                extended: true,
            };
            let other = move |name: &&str| source(name, dialect).contains(with);
            names().filter(other).collect::<Vec<_>>()
        };
        let for_processors = [
            "attention_lanes",
            "matmul_lanes",
            "matmul_lanes_texture",
            "matmul_rows",
            "matmul_rows_texture",
        ];
        assert_eq!(texts("subgroupShuffle"), for_processors);
        assert_eq!(texts("u64"), for_processors);
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
