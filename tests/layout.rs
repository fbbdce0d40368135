//! Rules of the repository that no compiler checks. (Cargo enforces the direction of imports between packages.)

use std::collections::BTreeMap;
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

/// Returns the files below a folder, without build outputs, what users put there, and hidden folders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with('.') || ["target", "runs", "sweeps", "models", "shared"].contains(&name)
        {
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

/// `./check` and people run scripts by their path.
#[cfg(unix)]
#[test]
fn scripts_are_executable() {
    use std::os::unix::fs::PermissionsExt;
    let scripts = files(root())
        .into_iter()
        .filter(|path| fs::read(path).unwrap().starts_with(b"#!"));
    let (executable, not): (Vec<_>, Vec<_>) =
        scripts.partition(|path| path.metadata().unwrap().permissions().mode() & 0o100 != 0);
    assert!(executable.len() > 10, "{executable:?}");
    assert!(not.is_empty(), "not executable (chmod +x): {not:?}");
}

/// Returns the dependencies of a package, without those of its tests.
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

/// Returns those in this workspace.
fn ours(package: &str) -> Vec<String> {
    let mut names = dependencies(package);
    names.retain(|name| name.starts_with("lapwing"));
    names.sort();
    names
}

/// Games do not depend on tensors, nor models on games: they meet in `train/play`.
#[test]
fn the_lowest_packages_are_independent() {
    assert!(!read(&root().join("shaders/Cargo.toml")).contains("\n[dependencies]"));
    assert_eq!(ours("tensor"), ["lapwing-shaders"]);
    assert_eq!(ours("model"), ["lapwing-tensor"]);
    assert_eq!(ours("env"), [""; 0]);
}

/// Only the program uses a terminal and parses arguments.
#[test]
fn the_libraries_know_no_terminal() {
    let libraries = [
        "tensor",
        "model",
        "env",
        "train/play",
        "train/learn",
        "train/run",
        "train/lab",
        "train/serve",
    ];
    for package in libraries {
        let known = dependencies(package);
        for terminal in ["clap", "indicatif", "anyhow", "console"] {
            assert!(
                !known.iter().any(|name| name == terminal),
                "{package} depends on {terminal}"
            );
        }
    }
    assert!(dependencies("train/cli").iter().any(|name| name == "clap"));
}

/// Returns a text without the tests at its end, which read no setting for the program.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default()
}

#[test]
fn only_the_gpu_folder_knows_the_gpu_api() {
    // In two parts, so that this file follows the rule, too.
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
        // Filling memory, loads, and exchanging values between threads serve all ops.
        let serves_all =
            stem == "fill" || ["exchange", "loads"].iter().any(|of| stem.starts_with(of));
        assert!(
            owned || serves_all,
            "{}: no file of that name in tensor/src/ops/",
            shader.display()
        );
    }
}

/// Returns the paths at the line starts of the README's map.
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
            && !["target", "runs", "sweeps", "shared", "models"].contains(&name);
        assert!(
            !is_ours || map.contains(&format!("{name}/")),
            "README.md does not say what {name}/ is"
        );
    }
}

/// Returns the anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let is_kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    heading
        .replace('`', "")
        .chars()
        .filter(is_kept)
        .collect::<String>()
        .replace(' ', "-")
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = files(root())
        .into_iter()
        .filter(|path| path.extension() == Some("md".as_ref()));
    let mut checked = 0;
    for page in pages {
        let text = read(&page);
        // Every second part lies in a block of code.
        let prose: Vec<&str> = text.split("```").step_by(2).collect();
        for link in prose.iter().flat_map(|part| part.split("](").skip(1)) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.with_file_name(path)
            };
            assert!(
                target.exists(),
                "{}: the link {link} leads nowhere",
                page.display()
            );
            let headings = || {
                read(&target)
                    .lines()
                    .filter(|l| l.starts_with('#'))
                    .map(anchor)
                    .collect::<Vec<_>>()
            };
            assert!(
                section.is_empty() || headings().contains(&section.to_owned()),
                "{}: {link} has no such section",
                page.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 200, "{checked} links");
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
    assert_eq!(files.len(), 5, "{files:?}");
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

/// Returns whether this text contains `name` as a separate word.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

/// Returns the code of a file without tests, comments, texts, and line breaks between a name and its field.
fn code(path: &Path) -> String {
    let text = read(path);
    let text = without_tests(&text);
    // Names in comments and messages do not count.
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

/// A setting that nothing reads would be ignored silently. It is read as `section.key`, as `self.key` by the section's
/// own methods, or, for the adapter, by the package that receives the section.
#[test]
fn every_setting_is_read_somewhere() {
    // They look at a setting and do not obey it.
    let is_check = |path: &PathBuf| {
        let mut names = ["check.rs", "unused.rs", "tests.rs"].into_iter();
        names.any(|name| path.ends_with(Path::new("config").join(name)))
    };
    let packages = ["play", "learn", "run", "lab", "serve", "cli"];
    let folders = packages.map(|package| root().join("train").join(package).join("src"));
    let sources = folders.iter().flat_map(|folder| files(folder));
    let readers: String = sources
        .filter(|path| path.extension().is_some_and(|e| e == "rs") && !is_check(path))
        .map(|path| code(&path))
        .collect();
    // `impl PolicyConfig {`, for the section `policy`
    let own = |section: &str| -> String {
        let (first, rest) = section.split_at(1);
        let name = match section {
            // `ModelConfig` is the config of a model's own directory.
            "model" => "impl ModelChoice {".to_owned(),
            _ => format!("impl {}{rest}Config {{", first.to_uppercase()),
        };
        let block = readers.split(&name).nth(1).unwrap_or_default();
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
    let settings: toml::Table = lapwing_train::Config::default().to_toml().parse().unwrap();
    for (section, value) in &settings {
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
    // A key of another section does not count, nor half a word.
    assert!(!has_word(
        "state.config.policy.temperature",
        "eval.temperature"
    ));
    assert!(!has_word("train.learner", "train.learn") && !has_word("retrain.learn", "train.learn"));
    assert!(!is_read("eval", "group_size") && !is_read("train", "episodes"));
}

/// Names that several types share because they are the same idea at the same layer: the parameters of each kernel.
const SHARED_NAMES: [&str; 1] = ["Params"];

/// A type's name leads to a single type.
#[test]
fn type_names_are_unique() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files(root()) {
        let is_product = path.extension().is_some_and(|e| e == "rs")
            && path.components().any(|part| part.as_os_str() == "src")
            && !path.ends_with("tests.rs");
        if !is_product {
            continue;
        }
        for line in without_tests(&read(&path)).lines() {
            let item = line.trim_start();
            let item = item.strip_prefix("pub ").unwrap_or(item);
            let item = item
                .split_once(") ")
                .filter(|(before, _)| before.starts_with("pub("))
                .map_or(item, |(_, item)| item);
            for kind in ["struct ", "enum ", "trait ", "type "] {
                if let Some(rest) = item.strip_prefix(kind)
                    && (kind != "type " || !line.starts_with(' '))
                {
                    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                    let name = &rest[..end.unwrap_or(rest.len())];
                    places
                        .entry(name.to_owned())
                        .or_default()
                        .push(path.clone());
                }
            }
        }
    }
    places.retain(|name, places| places.len() > 1 && !SHARED_NAMES.contains(&&**name));
    assert!(places.is_empty(), "names of several types: {places:#?}");
}
