//! The list of all kernel variants: every shader with every set of constants that the ops may compile it with. Tests
//! pass the texts to the shader compilers of all vendors.

use lapwing_shaders::Dialect;

use crate::gpu::{Constants, Kernel};
use crate::ops::{fits_lanes, rows_of_a_thread, tile_constants};

/// One kernel with its constants, in one dialect.
#[derive(Debug, Clone)]
pub struct KernelVariant {
    /// The shader, the entry point and the constants; usable as a file name.
    pub name: String,
    /// The entry point.
    pub entry: String,
    /// The device features that the text uses.
    pub dialect: Dialect,
    /// The text of the shader.
    pub text: String,
}

/// Head sizes: the smallest, those of published models, and the largest. Any other multiple of four compiles the same way.
const HEAD_SIZES: [u32; 8] = [4, 8, 32, 64, 80, 96, 128, 256];

/// Query heads per key head.
const SHARING: [u32; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 16];

/// The end of the names of shaders that read a matrix in a texture, as in the extended dialect only.
const TEXTURE: &str = "_texture";

/// Combines each set with each value of one more constant.
fn times(sets: Vec<Constants>, name: &'static str, values: &[u32]) -> Vec<Constants> {
    let with = |set: &Constants, value: u32| [set.as_slice(), &[(name, value)]].concat();
    let each = |set: Constants| {
        values
            .iter()
            .map(move |value| with(&set, *value))
            .collect::<Vec<_>>()
    };
    sets.into_iter().flat_map(each).collect()
}

fn each(name: &'static str, values: &[u32]) -> Vec<Constants> {
    times(vec![Vec::new()], name, values)
}

fn numbers(until: u32) -> Vec<u32> {
    (0..until).collect()
}

/// The sets of constants that an entry point may be compiled with, in the order of its launches, for these head sizes.
fn constants(shader: &str, entry: &str, sizes: &[u32], sharing: &[u32]) -> Vec<Constants> {
    if let Some(shader) = shader.strip_suffix(TEXTURE) {
        // A matrix in a texture is frozen.
        let sets = constants(shader, entry, sizes, sharing).into_iter();
        return sets.filter(|set| !set.contains(&("LAYOUT", 2))).collect();
    }
    // On a processor and on a GPU.
    let groups = [8, 64];
    match (shader, entry) {
        ("unary", _) => each("FUNCTION", &numbers(8)),
        ("binary", _) => each("FUNCTION", &numbers(7)),
        ("embedding", "gather") => each("FORMAT", &numbers(6)),
        ("norm", "weight_backward") => each("CENTERED", &numbers(2)),
        ("norm", _) => {
            let mut sets = times(each("LANES", &[1, 2, 4, 8, 16, 32, 64]), "GROUP", &[64]);
            sets.extend(times(each("LANES", &[1]), "GROUP", &[8]));
            times(times(sets, "STEP", &[1, 4]), "CENTERED", &numbers(2))
        }
        // The checks use short blocks of the vocabulary.
        ("log_prob" | "sample", _) => times(each("GROUP", &groups), "BLOCK", &[64, 2048]),
        ("adamw", "square_sums" | "finish_norm") => each("GROUP", &groups),
        ("attention" | "attention_lanes", "sum_rows") => each("HEAD_SIZE", sizes),
        // Eight threads with one or two rows each on a processor.
        ("attention", "sum_items") => times(each("HEAD_SIZE", sizes), "ROWS", &[8, 16, 32]),
        ("attention", _) => {
            let few: &[bool] = if entry == "forward" {
                &[false, true]
            } else {
                &[false]
            };
            let of_size = |size: &u32| {
                few.iter()
                    .map(|few| tile_constants(entry, *size, *few))
                    .collect::<Vec<_>>()
            };
            sizes.iter().flat_map(of_size).collect()
        }
        ("attention_lanes", _) => {
            let sizes: Vec<_> = sizes
                .iter()
                .copied()
                .filter(|size| fits_lanes(*size))
                .collect();
            let with_rows = |set: Constants| {
                let rows = [false, true].map(|few| rows_of_a_thread(entry, set[0].1, few));
                let few = if entry == "forward" { 2 } else { 1 };
                times(vec![set], "PER_THREAD", &rows[..few])
            };
            let with_heads = |sharing: &u32| {
                let sets = times(each("HEAD_SIZE", &sizes), "SHARING", &[*sharing]);
                let sets = sets.into_iter().flat_map(with_rows).collect();
                match (entry, *sharing) {
                    ("forward", 2..=8) => times(sets, "HEADS", &[1, *sharing]),
                    ("forward", _) => times(sets, "HEADS", &[1]),
                    _ => sets,
                }
            };
            sharing.iter().flat_map(with_heads).collect()
        }
        ("matmul_tiles", _) => {
            let sizes = |sets, [height, width, step]: [u32; 3]| {
                times(
                    times(times(sets, "ROWS", &[height]), "COLUMNS", &[width]),
                    "STEP",
                    &[step],
                )
            };
            let large = sizes(products(), [128, 64, 16]);
            let small = sizes(products(), [64, 32, 16]);
            let transposed = products().into_iter().filter(is_transposed);
            [large, small, sizes(transposed.collect(), [16, 32, 64])].concat()
        }
        ("matmul_lanes", "product") => {
            let sets = times(products(), "Y_WIDE", &[0, 1]);
            let wide = sets
                .iter()
                .filter(|set| is_wide(set) && !set.contains(&("LAYOUT", 2)));
            let wide = times(wide.cloned().collect(), "HEIGHT", &[28, 32]);
            let narrow = times(sets, "HEIGHT", &[32]);
            [times(narrow, "WIDTH", &[32]), times(wide, "WIDTH", &[64])].concat()
        }
        ("matmul_rows", _) => {
            let sets = times(products(), "Y_WIDE", &[1]).into_iter();
            let sets = sets.filter(|set| is_transposed(set) && is_wide(set));
            times(sets.collect(), "HEIGHT", &[1, 2, 4, 8])
        }
        _ => vec![Vec::new()],
    }
}

/// The constants of products. Only frozen weights, which are on the right, have other formats than f32, and only transposed ones are of a
/// gated unit.
fn products() -> Vec<Constants> {
    let of_layout = |(layout, formats, gated)| {
        let sets = times(each("LAYOUT", &[layout]), "FORMAT", &numbers(formats));
        times(times(sets, "WIDE", &[0, 1]), "GATED", &numbers(gated))
    };
    [(0, 6, 2), (1, 6, 1), (2, 1, 1)]
        .into_iter()
        .flat_map(of_layout)
        .collect()
}

fn is_wide(set: &Constants) -> bool {
    set.contains(&("WIDE", 1)) && set.contains(&("Y_WIDE", 1))
}

fn is_transposed(set: &Constants) -> bool {
    set.contains(&("LAYOUT", 0))
}

/// The entry points of a shader, in the order of the text.
fn entries(shader: &str) -> Vec<String> {
    let dialect = Dialect {
        immediates: true,
        extended: true,
    };
    let text = lapwing_shaders::source(shader, dialect);
    let name = |part: &str| Some(part.split_once("fn ")?.1.split_once('(')?.0.to_owned());
    text.split("@compute").skip(1).filter_map(name).collect()
}

/// Panics if [`kernel_variants`] does not list a kernel. The list has only some head sizes; this accepts any.
/// Used as [`GpuOptions::on_compile`](crate::GpuOptions::on_compile).
#[track_caller]
pub(crate) fn assert_listed(shader: &str, entry: &str, asked: &[(&'static str, u32)]) {
    let values = |of: &str| -> Vec<u32> {
        let named = asked.iter().filter(|(name, _)| *name == of);
        named.map(|(_, value)| *value).collect()
    };
    let like_it = constants(shader, entry, &values("HEAD_SIZE"), &values("SHARING"));
    assert!(
        like_it.iter().any(|set| set == asked),
        "check/variants.rs does not list {entry} of {shader} with {asked:?}"
    );
}

/// Returns every variant, in each dialect in which the text differs.
pub fn kernel_variants() -> Vec<KernelVariant> {
    let mut all = Vec::new();
    for shader in lapwing_shaders::names() {
        let dialects = [(true, true), (true, false), (false, true), (false, false)];
        let mut seen = Vec::new();
        for (immediates, extended) in dialects {
            let dialect = Dialect {
                immediates,
                extended,
            };
            let source = lapwing_shaders::source(shader, dialect);
            if seen.contains(&source) || (shader.ends_with(TEXTURE) && !extended) {
                continue;
            }
            seen.push(source);
            for entry in entries(shader) {
                for constants in constants(shader, &entry, &HEAD_SIZES, &SHARING) {
                    let mut name = format!("{shader}.{entry}");
                    for (constant, value) in &constants {
                        name += &format!(".{constant}-{value}");
                    }
                    name += if immediates { "" } else { ".uniform" };
                    name += if extended { "" } else { ".group" };
                    all.push(KernelVariant {
                        name,
                        entry: entry.clone(),
                        dialect,
                        text: Kernel::text(shader, &constants, dialect),
                    });
                }
            }
        }
    }
    all
}
