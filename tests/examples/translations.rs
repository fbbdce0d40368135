//! Writes every kernel that lapwing may request, as WGSL and as naga translates it for the drivers of other systems,
//! into a folder: for the compilers of those systems, see tests/compilers.
//!
//! cargo run -p lapwing-tests --example translations -- FOLDER

use std::path::Path;
use std::{env, fs};

use lapwing_tensor::check::kernel_variants;
use lapwing_tests::translation::Translation;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = env::args().nth(1).ok_or("which folder?")?;
    let folder = Path::new(&folder);
    for kind in ["wgsl", "spv", "metal", "hlsl5", "hlsl6"] {
        fs::create_dir_all(folder.join(kind))?;
    }
    let all = kernel_variants();
    for variant in &all {
        let name = &variant.name;
        let translation = Translation::of(variant).map_err(|error| format!("{name}: {error}"))?;
        let write = |kind: &str, bytes: &[u8]| {
            fs::write(folder.join(kind).join(format!("{name}.{kind}")), bytes)
        };
        let words: Vec<u8> = translation
            .spirv
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        // No other compiler of WGSL has integers of 64 bits.
        if !variant.text.contains("u64") {
            write("wgsl", variant.text.as_bytes())?;
        }
        write("spv", &words)?;
        write("metal", translation.msl.as_bytes())?;
        if let Some(text) = &translation.hlsl_5 {
            write("hlsl5", text.as_bytes())?;
        }
        write("hlsl6", translation.hlsl_6.as_bytes())?;
    }
    println!("{} kernels", all.len());
    Ok(())
}
