//! The repository's own rules: who may know whom, and that the map in the README is true.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is in the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The files below a folder, build outputs and hidden folders left out.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || ["target", "runs", "sweeps"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}

/// What a package depends on, outside of its tests.
fn dependencies(package: &str) -> Vec<String> {
    let path = root().join(package).join("Cargo.toml");
    let manifest: toml::Table = read(&path).parse().unwrap();
    let table = manifest["dependencies"].as_table();
    table
        .into_iter()
        .flat_map(|table| table.keys())
        .cloned()
        .collect()
}

/// Those of them that are of this workspace.
fn ours(package: &str) -> Vec<String> {
    let mut names = dependencies(package);
    names.retain(|name| name.starts_with("lapwing"));
    names.sort();
    names
}

#[test]
fn packages_depend_one_way() {
    assert!(!read(&root().join("shaders/Cargo.toml")).contains("\n[dependencies]"));
    assert_eq!(ours("tensor"), ["lapwing-shaders"]);
    assert_eq!(ours("model"), ["lapwing-tensor"]);
    assert_eq!(ours("env"), [""; 0]);
    let below = ["lapwing-env", "lapwing-model", "lapwing-tensor"];
    assert_eq!(ours("train"), below);
    assert_eq!(ours("train/cli"), [&below[..], &["lapwing-train"]].concat());
}

/// The terminal is the program's business.
#[test]
fn the_libraries_know_no_terminal() {
    for package in ["tensor", "model", "env", "train"] {
        let known = dependencies(package);
        for terminal in ["clap", "indicatif", "anyhow"] {
            assert!(
                !known.iter().any(|name| name == terminal),
                "{package} depends on {terminal}"
            );
        }
    }
    assert!(dependencies("train/cli").iter().any(|name| name == "clap"));
}

/// The paths of a `use` tree, one for each name: `a::{b, c::D}` is `a::b` and `a::c::D`.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, inner)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default();
        return vec![name.trim().to_owned()];
    };
    let inner = inner
        .trim_end()
        .strip_suffix('}')
        .expect("braces that close");
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = inner[from..at].trim();
                if !part.is_empty() {
                    found.extend(paths(&format!("{}{part}", before.trim())));
                }
                from = at + 1;
            }
            _ => (),
        }
    }
    found
}

/// What tests do makes no circle and reads no knob.
fn without_tests(text: &str) -> String {
    let text = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    text.replace("#[cfg(test)]\nuse ", "// use ")
}

/// The `use` paths of a text that begin with `crate`, `super` or `self`; `public`: those that are handed on.
fn uses(text: &str, public: bool) -> Vec<String> {
    let text = without_tests(text);
    let begins = if public { "pub use " } else { "use " };
    let statement = |line: &(usize, &str)| line.1.starts_with(begins);
    let starts: Vec<usize> = text
        .split_inclusive('\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        })
        .filter(statement)
        .map(|(start, _)| start)
        .collect();
    let tree = |start: usize| {
        text[start + begins.len()..]
            .split(';')
            .next()
            .unwrap_or_default()
    };
    starts
        .into_iter()
        .flat_map(|start| paths(tree(start)))
        .collect()
}

/// The module that a file is: `play/referee.rs` is `crate::play::referee`, and so is `play/referee/mod.rs`.
fn module(source: &Path, file: &Path) -> String {
    let path = file.strip_prefix(source).unwrap().with_extension("");
    let mut names: Vec<&str> = path.iter().map(|name| name.to_str().unwrap()).collect();
    if ["mod", "lib", "main"].contains(names.last().unwrap()) {
        names.pop();
    }
    [&["crate"], &names[..]].concat().join("::")
}

/// `super::x` in this module as a path from the root.
fn absolute(module: &str, path: &str) -> String {
    if let Some(rest) = path.strip_prefix("super::") {
        let above = module.rsplit_once("::").map_or(module, |(above, _)| above);
        return absolute(above, rest);
    }
    match path.strip_prefix("self::") {
        Some(rest) => format!("{module}::{rest}"),
        None if path.starts_with("crate") => path.to_owned(),
        // `pub use config::Config` beside `mod config`
        None => format!("{module}::{path}"),
    }
}

/// Which file of a crate imports which others. A name that a file above hands on belongs to the file that it is from.
fn imports(source: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let files: Vec<PathBuf> = files(source)
        .into_iter()
        .filter(|f| f.extension().is_some_and(|e| e == "rs") && !f.ends_with("tests.rs"))
        .collect();
    let texts: BTreeMap<String, String> = files
        .iter()
        .map(|file| (module(source, file), read(file)))
        .collect();
    let mut handed_on = BTreeMap::new();
    for (module, text) in &texts {
        for path in uses(text, true) {
            let name = path.rsplit("::").next().unwrap().to_owned();
            handed_on.insert(format!("{module}::{name}"), absolute(module, &path));
        }
    }
    let owner = |path: String| {
        let mut path = path;
        while let Some(further) = handed_on.get(&path).filter(|further| **further != path) {
            path = further.clone();
        }
        // The longest beginning of the path that is a file.
        let mut path = &*path;
        loop {
            if texts.contains_key(path) {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let of = |(module, text): (&String, &String)| {
        let paths = uses(text, false).into_iter();
        let below = |path: &String| {
            let first = path.split("::").next().unwrap_or_default();
            texts.contains_key(&format!("{module}::{first}"))
        };
        let rooted = |path: &String| {
            ["crate", "super", "self"]
                .iter()
                .any(|root| path.starts_with(root))
        };
        let inner = paths
            .chain(uses(text, true))
            .filter(|path| rooted(path) || below(path));
        let files = inner.filter_map(|path| owner(absolute(module, &path)));
        // A folder's own file holds it together: what is in the folder may know it.
        let is_above =
            |other: &String| module == other || module.starts_with(&format!("{other}::"));
        (
            module.clone(),
            files.filter(|other| !is_above(other)).collect(),
        )
    };
    texts.iter().map(of).collect()
}

/// A circle that starts and ends with some file, if there is one.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    for start in imports.keys() {
        let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut open = vec![start];
        while let Some(file) = open.pop() {
            for next in &imports[file] {
                if next == start {
                    let mut way = vec![start.clone(), file.clone()];
                    let mut file = file;
                    while let Some(before) = came_from.get(file) {
                        way.push((*before).clone());
                        file = before;
                    }
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(next) {
                    came_from.insert(next, file);
                    open.push(next);
                }
            }
        }
    }
    None
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    for package in ["tensor", "model", "env", "train", "train/cli"] {
        let imports = imports(&root().join(package).join("src"));
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(
            count > 3,
            "{package}: {count} imports found, which cannot be all"
        );
        assert_eq!(circle(&imports), None, "{package}");
    }
}

#[test]
fn a_circle_is_found() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::C;\n");
    write("a.rs", "use crate::{\n    b::{self, B},\n};\n");
    write("b.rs", "use crate::C;\n");
    write("c.rs", "#[cfg(test)]\nuse crate::a::A;\n");
    assert_eq!(circle(&imports(home.path())), None);
    write("c.rs", "use super::a::A;\n");
    let way = circle(&imports(home.path())).unwrap();
    assert_eq!((way.len(), way.first()), (4, way.last()), "{way:?}");

    // Through a folder's own file: e uses what d holds, and a part of d uses e.
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    fs::create_dir(home.path().join("d")).unwrap();
    write("lib.rs", "mod d;\nmod e;\n");
    write("d/mod.rs", "mod f;\n\nuse f::F;\n\npub struct D(F);\n");
    write("d/f.rs", "use super::D;\n");
    write("e.rs", "use crate::d::D;\n");
    assert_eq!(circle(&imports(home.path())), None);
    write("d/f.rs", "use crate::e::E;\n");
    let way = circle(&imports(home.path())).unwrap();
    assert_eq!((way.len(), way.first()), (4, way.last()), "{way:?}");
}

#[test]
fn only_the_gpu_folder_knows_the_gpu_api() {
    // In two parts, so that this file keeps the rule too.
    let word = concat!("wg", "pu");
    let allowed = root().join("tensor/src/gpu");
    let knowing: Vec<PathBuf> = files(root())
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs" || e == "wgsl"))
        .filter(|path| !path.starts_with(&allowed) && read(path).contains(word))
        .collect();
    assert!(
        knowing.is_empty(),
        "{word} is named outside of {}: {knowing:?}",
        allowed.display()
    );
}

#[test]
fn an_op_has_its_files_named_alike() {
    let ops: Vec<String> = files(&root().join("tensor/src/ops"))
        .iter()
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    for shader in files(&root().join("shaders")) {
        if shader.extension().is_none_or(|e| e != "wgsl") || shader.ends_with("common.wgsl") {
            continue;
        }
        // Variants of one op share its name: matmul_tiles belongs to matmul.
        let stem = shader.file_stem().unwrap().to_str().unwrap();
        let owned = ops
            .iter()
            .any(|op| stem == op || stem.starts_with(&format!("{op}_")));
        // What fills memory, and how threads exchange values, serve all.
        let serves_all = stem == "fill" || stem.starts_with("exchange_");
        assert!(
            owned || serves_all,
            "{}: no file of that name in tensor/src/ops/",
            shader.display()
        );
    }
}

/// The paths at the line starts of the README's map.
fn map() -> Vec<String> {
    let readme = read(&root().join("README.md"));
    let section = readme
        .split("## What is where")
        .nth(1)
        .expect("the README has a map");
    let block = section
        .split("```")
        .nth(1)
        .expect("the map is a code block");
    block
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn what_the_map_names_exists() {
    let map = map();
    assert!(map.len() > 10);
    for path in map {
        assert!(
            root().join(&path).exists(),
            "README.md names {path}, which does not exist"
        );
    }
}

#[test]
fn the_map_names_every_top_level_folder() {
    let map = map();
    for entry in fs::read_dir(root()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_ours = path.is_dir()
            && !name.starts_with('.')
            && !["target", "runs", "shared", "models"].contains(&name);
        assert!(
            !is_ours || map.contains(&format!("{name}/")),
            "README.md does not say what {name}/ is"
        );
    }
}

#[test]
fn the_reading_path_exists() {
    let readme = read(&root().join("README.md"));
    let section = readme
        .split("## Read it in this order")
        .nth(1)
        .expect("the README has a reading path");
    let section = section.split("\n## ").next().unwrap();
    let files: Vec<&str> = section
        .lines()
        .filter(|l| l.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|l| l.split('`').nth(1))
        .collect();
    assert_eq!(files.len(), 6, "{files:?}");
    let mut lines = 0;
    for file in files {
        assert!(
            root().join(file).is_file(),
            "README.md names {file}, which does not exist"
        );
        lines += read(&root().join(file)).lines().count();
    }
    assert!(
        lines < 1000,
        "the reading path has {lines} lines, too many for an evening"
    );
}

/// Whether this text has `name` as a word of its own.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

/// The code of a file, tests, comments and texts apart, without what formatting puts between a name and its field.
fn code(path: &Path) -> String {
    let text = without_tests(&read(path));
    // What comments and messages name is not read.
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    let text: String = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "");
    let text: Vec<&str> = text.split('"').step_by(2).collect();
    text.join("\"\"")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace(" .", ".")
}

/// A knob that nothing reads would be ignored in silence. It is read as `section.key`; or as `self.key` by the section's own
/// methods; or, as those of the adapter, by the package that it is handed to.
#[test]
fn every_knob_is_read_somewhere() {
    let is_check =
        |path: &PathBuf| path.ends_with("config/check.rs") || path.ends_with("config/tests.rs");
    let sources = files(&root().join("train/src"))
        .into_iter()
        .filter(|path| !is_check(path));
    let readers: String = sources.map(|path| code(&path)).collect();
    let config = code(&root().join("train/src/run/config/mod.rs"));
    let own = |section: &str| -> String {
        let mut letters = section.chars();
        let name: String = letters
            .next()
            .unwrap()
            .to_uppercase()
            .chain(letters)
            .collect();
        let block = config
            .split(&format!("impl {name} {{"))
            .nth(1)
            .unwrap_or_default();
        block.split(" impl ").next().unwrap_or_default().to_owned()
    };
    let adapter: String = files(&root().join("model/src/adapter"))
        .iter()
        .map(|path| code(path))
        .collect();
    let is_read = |section: &str, key: &str| {
        has_word(&readers, &format!("{section}.{key}"))
            || has_word(&own(section), &format!("self.{key}"))
            || section == "lora" && has_word(&adapter, &format!("config.{key}"))
    };
    let knobs: toml::Table = lapwing_train::Config::default().to_toml().parse().unwrap();
    for (section, value) in &knobs {
        match value.as_table() {
            None => assert!(
                has_word(&readers, &format!("config.{section}")),
                "nothing reads {section}"
            ),
            Some(keys) => keys.keys().for_each(|key| {
                assert!(is_read(section, key), "nothing reads {section}.{key}");
            }),
        }
    }
    // One section's key is not another's, and half a word is none.
    assert!(!has_word(
        "state.config.policy.temperature",
        "eval.temperature"
    ));
    assert!(!has_word("train.learner", "train.learn") && !has_word("retrain.learn", "train.learn"));
    assert!(!is_read("eval", "group_size") && !is_read("train", "episodes"));
}
