//! `lapwing eval`, `lapwing probe`, and the scores of people.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::program::{Said, lapwing, run, said};

fn succeeds(home: &Path, arguments: &[&str]) -> Said {
    let said = run(home, arguments);
    assert_eq!(said.code, 0, "{arguments:?}: {}", said.err);
    said
}

fn json(home: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(home, arguments).out).unwrap()
}

/// A run that has learned something: the learning rate makes the most of two steps.
fn trained(home: &Path) {
    let small = [
        "train",
        "frozen-lake",
        "--quiet",
        "--steps",
        "8",
        "--out",
        "run",
        "--set",
        "eval.episodes=8",
        "--set",
        "train.sampling=\"all\"",
        "--set",
        "train.lr=0.001",
    ];
    succeeds(home, &small);
}

#[test]
fn agents_are_set_beside_each_other_on_the_same_scenes() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    trained(home);
    let examined = json(
        home,
        &[
            "eval",
            "run",
            "--adapter",
            "run/adapter",
            "--against",
            "run/adapter",
            "--greedy",
            "--search",
            "1",
            "--episodes",
            "20",
            "--out",
            "scenes.jsonl",
            "--json",
        ],
    );
    let game = &examined["games"][0];
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap();
        list.iter()
            .map(|p| p["player"].as_str().unwrap().to_owned())
            .collect()
    };
    let expected = [
        "model and adapter",
        "model and adapter, greedy",
        "run/adapter",
        "run/adapter, greedy",
        "model",
        "model, greedy",
    ];
    assert_eq!(names(&game["players"]), expected);
    // One and the same adapter is nowhere ahead of itself; it is of the model that it was taught on.
    let differences = game["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 5);
    let itself = &differences[1];
    assert_eq!(itself["against"], "run/adapter");
    assert_eq!(itself["return_mean"], 0.0);
    assert_eq!(itself["return_interval"], serde_json::json!([0.0, 0.0]));
    assert_ne!(differences[3]["return_mean"], 0.0);
    assert_eq!(examined["return_mean"], game["players"][0]["return_mean"]);
    assert_eq!(game["search"]["success_rate"], 1.0);
    assert_eq!(game["best_possible"], 1.0);

    // Scene by scene the same numbers, and everybody on the same scenes.
    let text = fs::read_to_string(home.join("scenes.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 20 * (6 + 3));
    let of = |player: &str| -> Vec<&Value> {
        lines
            .iter()
            .filter(|line| line["player"] == player)
            .collect()
    };
    let mean = of("model")
        .iter()
        .map(|l| l["return"].as_f64().unwrap())
        .sum::<f64>()
        / 20.0;
    assert_eq!(game["players"][4]["return_mean"], mean);
    let scenes = |player| {
        of(player)
            .iter()
            .map(|l| l["scene"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(scenes("model"), scenes("random player"));

    let again = run(
        home,
        &["eval", "run", "--out", "scenes.jsonl", "--episodes", "2"],
    );
    assert_eq!(again.code, 1);
    assert!(
        again
            .err
            .ends_with("error: --out scenes.jsonl: it exists; name another file\n"),
        "{}",
        again.err
    );
    assert_eq!(fs::read_to_string(home.join("scenes.jsonl")).unwrap(), text);
}

#[test]
fn a_table_of_transfer_has_a_row_for_each_game() {
    let home = tempfile::tempdir().unwrap();
    let arguments = [
        "eval",
        "--games",
        "frozen-lake,snake-alone",
        "--episodes",
        "4",
        "--markdown",
        "--quiet",
    ];
    let table = succeeds(home.path(), &arguments).out;
    let last = table.rsplit("mean return in each game\n\n").next().unwrap();
    let rows: Vec<&str> = last.lines().collect();
    assert_eq!(
        rows[0],
        "|  | random player | model | scripted player | best possible |"
    );
    assert!(rows[2].starts_with("| frozen-lake | "), "{table}");
    assert!(rows[3].starts_with("| snake-alone | "), "{table}");
    let wrong = run(home.path(), &["eval", "--games", "frozen-lake,snak"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("`snak` (did you mean `snake`?)"),
        "{}",
        wrong.err
    );
}

#[test]
fn somebody_else_can_play_the_other_side() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let met = |who: &str| {
        let examined = json(
            home,
            &[
                "eval",
                "snake-duel",
                "--opponent",
                who,
                "--episodes",
                "6",
                "--json",
                "--quiet",
            ],
        );
        let player = &examined["games"][0]["players"][0];
        assert_eq!(player["episodes"], 6, "its own side alone");
        player["return_mean"].as_f64().unwrap()
    };
    let all_sides = json(
        home,
        &["eval", "snake-duel", "--episodes", "6", "--json", "--quiet"],
    );
    assert_eq!(all_sides["episodes"], 12);
    // A model that meets itself plays as it does on all sides.
    let (base, random) = (met("base"), met("random"));
    assert_ne!(base, random);
    met("scripted");
    let refused = run(home, &["eval", "frozen-lake", "--opponent", "random"]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.err.ends_with(
            "error: --opponent random: frozen-lake has one agent, and nobody to meet; a game of several is snake-duel\n"
        ),
        "{}",
        refused.err
    );
    let played = succeeds(
        home,
        &["play", "snake-duel", "--opponent", "scripted", "--json"],
    );
    assert_eq!(played.out.lines().count(), 2);
}

#[test]
fn probes_tell_what_was_told_from_habit() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let probed = json(
        home,
        &[
            "probe",
            "frozen-lake",
            "--episodes",
            "10",
            "--json",
            "--quiet",
        ],
    );
    let rows = probed["probes"].as_array().unwrap();
    assert_eq!(rows[0]["probe"], "usual");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let (name, player) = (row["probe"].as_str().unwrap(), &row["players"][0]);
        let parted = player["parted"].as_u64().unwrap();
        let same_meaning = ["usual", "symbols", "wording"].contains(&name);
        assert_eq!(parted == 0, same_meaning, "{row}");
        let of_the_two = player["told"].as_u64().unwrap() + player["habit"].as_u64().unwrap();
        assert!(of_the_two <= parted);
        assert_eq!(player["verdict"] == "same_meaning", same_meaning);
        // The game's own player reads.
        assert_eq!(
            row["scripted"].as_f64().unwrap() > 0.5,
            name != "exact" || row["scripted"] == 1.0
        );
    }
    let wrong = run(home, &["probe", "--probes", "swaped"]);
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains(
            "key `--probes`: found \"swaped\", wanted probes of frozen-lake: holes, swapped"
        ),
        "{}",
        wrong.err
    );
}

#[test]
fn what_people_score_is_kept_and_shown_beside_models() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let by_hand = |moves: &str| {
        let map = "game.options.map=[\"SF\", \"HG\"]";
        let mut play = lapwing(home, &["play", "--human", "--set", map]);
        play.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = play.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(moves.as_bytes())
            .unwrap();
        said(home, child.wait_with_output().unwrap())
    };
    let won = by_hand("right\ndown\n");
    assert!(
        won.out.contains(
            "in 1 game of this kind: mean return 1 (kept in DIR/.data/lapwing/human.jsonl"
        ),
        "{}",
        won.out
    );
    assert!(
        by_hand("down\n")
            .out
            .contains("in 2 games of this kind: mean return 0.5")
    );
    // A game that was left is no score.
    by_hand("right\nquit\n");
    let map = "game.options.map=[\"SF\", \"HG\"]";
    let arguments = ["eval", "--set", map, "--episodes", "2", "--json", "--quiet"];
    let human = &json(home, &arguments)["games"][0]["human"];
    assert_eq!(human["episodes"], 2);
    assert_eq!(human["return_mean"], 0.5);
    // Other options, another game.
    let other = json(home, &["eval", "--episodes", "2", "--json", "--quiet"]);
    assert!(other["games"][0].get("human").is_none());
}
