//! The repository's own rules: who may know whom, and that the map in the README is true.

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
        if name.starts_with('.') || name == "target" || name == "runs" {
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

/// The packages of this workspace that a package depends on, outside of its tests.
fn dependencies(package: &str) -> Vec<String> {
    let manifest: toml::Table = read(&root().join(package).join("Cargo.toml"))
        .parse()
        .unwrap();
    let mut names: Vec<String> = manifest
        .get("dependencies")
        .and_then(toml::Value::as_table)
        .into_iter()
        .flat_map(|table| table.keys())
        .filter(|name| name.starts_with("lapwing"))
        .cloned()
        .collect();
    names.sort();
    names
}

#[test]
fn packages_depend_one_way() {
    assert_eq!(dependencies("shaders"), [""; 0]);
    assert_eq!(dependencies("tensor"), ["lapwing-shaders"]);
    assert_eq!(dependencies("model"), ["lapwing-tensor"]);
    assert_eq!(dependencies("env"), [""; 0]);
    assert_eq!(
        dependencies("train"),
        ["lapwing-env", "lapwing-model", "lapwing-tensor"]
    );
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
        assert!(
            owned || stem == "fill",
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
    for file in files {
        assert!(
            root().join(file).is_file(),
            "README.md names {file}, which does not exist"
        );
    }
}

/// A knob that nothing reads would be ignored in silence.
#[test]
fn every_knob_is_read_somewhere() {
    let readers: String = files(&root().join("train/src"))
        .iter()
        .filter(|path| !path.ends_with("config/check.rs") && !path.ends_with("config/tests.rs"))
        .map(|path| read(path))
        .collect();
    let config: toml::Table = lapwing_train::Config::default().to_toml().parse().unwrap();
    for (section, value) in &config {
        let keys = value
            .as_table()
            .map_or(vec![section], |table| table.keys().collect());
        for key in keys {
            let is_read = readers
                .match_indices(&format!(".{key}"))
                .any(|(at, found)| {
                    let next = readers[at + found.len()..].chars().next();
                    next.is_none_or(|c| !c.is_alphanumeric() && c != '_')
                });
            assert!(is_read, "nothing reads {section}.{key}");
        }
    }
}
