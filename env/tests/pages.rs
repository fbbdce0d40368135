//! Every game has a page with all of its parts. The table of options is generated:
//! `LAPWING_WRITE_DOCS=1 cargo test -p lapwing-env table_of_options` writes it.

use std::path::PathBuf;

use lapwing_env::{GAMES, Kind};
use serde_json::{Value, json};

use crate::games::configured;

const BEGIN: &str = "<!-- options: begin -->\n";
const END: &str = "<!-- options: end -->\n";

fn path(kind: &Kind) -> PathBuf {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/games");
    PathBuf::from(format!("{pages}/{}.md", kind.name))
}

fn page(kind: &Kind) -> String {
    std::fs::read_to_string(path(kind))
        .unwrap_or_else(|error| panic!("docs/games/{}.md: {error}", kind.name))
}

/// The table of a game's options, with the defaults in force.
fn table(kind: &Kind) -> String {
    let in_force = configured(kind, &json!({})).options();
    let mut changed = Vec::new();
    let mut table = String::from("| option | default | values | meaning |\n|---|---|---|---|\n");
    for option in kind.options {
        if option.if_changed {
            changed.push(format!("`{}`", option.name));
        }
        let default = in_force.get(option.name).cloned();
        let default = match default.unwrap_or_else(option.default) {
            Value::Null => String::new(),
            Value::String(name) => format!("`{name}`"),
            other => format!("`{other}`"),
        };
        let (name, values, meaning) = (option.name, option.wanted(), option.meaning);
        table += &format!("| `{name}` | {default} | {values} | {meaning} |\n");
    }
    let in_force = "among the options in force only if";
    match changed.split_last() {
        None => table,
        Some((only, [])) => {
            format!("{table}\n{only} is {in_force} it differs from its default.\n")
        }
        Some((last, others)) => {
            let others = others.join(", ");
            format!(
                "{table}\n{others} and {last} are {in_force} they differ from their defaults.\n"
            )
        }
    }
}

#[test]
fn the_page_of_a_game_has_its_table_of_options() {
    for kind in GAMES {
        let page = page(kind);
        let (head, rest) = page.split_once(BEGIN).expect(BEGIN);
        let (_, tail) = rest.split_once(END).expect(END);
        let wanted = format!("{head}{BEGIN}{}{END}{tail}", table(kind));
        if std::env::var_os("LAPWING_WRITE_DOCS").is_some() {
            std::fs::write(path(kind), wanted).unwrap();
            continue;
        }
        let name = kind.name;
        assert_eq!(
            page, wanted,
            "docs/games/{name}.md; LAPWING_WRITE_DOCS=1 writes the table"
        );
    }
}

#[test]
fn the_page_of_a_game_names_its_variants_and_probes() {
    for kind in GAMES {
        let page = page(kind);
        let variants = kind.variants.iter().map(|variant| variant.name);
        let probes = kind.probes.iter().map(|probe| probe.name);
        for name in variants.chain(probes) {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/games/{}.md does not name `{name}`",
                kind.name
            );
        }
    }
}

/// The parts that a reader looks for.
#[test]
fn the_page_of_a_game_has_every_part() {
    for kind in GAMES {
        let page = page(kind);
        for part in [
            "Rules",
            "Observation",
            "Actions",
            "Rewards",
            "End",
            "Options",
            "Variants",
            "Probes",
            "Baselines",
            "Source",
        ] {
            let headed = page
                .lines()
                .any(|line| line.starts_with("## ") && line.contains(part));
            assert!(headed, "docs/games/{}.md has no part {part:?}", kind.name);
        }
    }
}
