//! Every game has a page, which leaves nothing out.

use lapwing_env::{GAMES, Kind};

fn page(kind: &Kind) -> String {
    let path = format!(
        "{}/../docs/games/{}.md",
        env!("CARGO_MANIFEST_DIR"),
        kind.name
    );
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("docs/games/{}.md: {error}", kind.name))
}

#[test]
fn the_page_of_a_game_names_its_options_variants_and_probes() {
    for kind in GAMES {
        let page = page(kind);
        let options = kind.options.iter().map(|option| option.name);
        let variants = kind.variants.iter().map(|variant| variant.name);
        let probes = kind.probes.iter().map(|probe| probe.name);
        for name in options.chain(variants).chain(probes) {
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
            "Yardsticks",
            "Source",
        ] {
            let headed = page
                .lines()
                .any(|line| line.starts_with("## ") && line.contains(part));
            assert!(headed, "docs/games/{}.md has no part {part:?}", kind.name);
        }
    }
}
