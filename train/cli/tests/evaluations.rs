//! `lapwing eval`, `lapwing probe`, and the scores of people.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{json, lines, run, succeeds, with_input};

/// Trains a run with a large learning rate.
fn trained(home: &Path) {
    let line = r#"train frozen-lake --quiet --steps 8 --out run --set eval.episodes=8
        --set 'train.sampling="all"' --set train.lr=0.01"#;
    succeeds(home, line);
}

#[test]
fn agents_are_compared_on_the_same_scenes() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    trained(home);
    let line = "eval run --adapter run/adapter --against run/adapter --greedy --search 1 \
        --episodes 20 --out scenes.jsonl --json";
    let examined = json(home, line);
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
    // The difference is zero for the same adapter, and not for the initial model.
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

    // The run has tested itself on the first of these scenes, before and after.
    let test = fs::read(home.join("run/test.json")).unwrap();
    let test: Value = serde_json::from_slice(&test).unwrap();
    let few = "eval run --adapter run/adapter --episodes 8 --greedy --json";
    let few = json(home, few);
    let [new, greedy, old, old_greedy] = [0, 1, 2, 3].map(|at| &few["games"][0]["players"][at]);
    let tests = [&test["sampled"], &test["greedy"]];
    for (at, players) in [[old, old_greedy], [new, greedy]].iter().enumerate() {
        for (player, tested) in players.iter().zip(tests) {
            assert_eq!(tested[at]["step"], at * 8);
            assert_eq!(tested[at]["return_mean"], player["return_mean"]);
        }
    }

    // The file of scenes has the same numbers, and the same scenes for all players.
    let lines = lines(&home.join("scenes.jsonl"));
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
}

#[test]
fn a_table_of_transfer_has_a_row_for_each_game() {
    let home = tempfile::tempdir().unwrap();
    let line = "eval --games frozen-lake,snake-alone --episodes 4 --markdown --quiet";
    let table = succeeds(home.path(), line).out;
    let last = table.rsplit("mean return in each game\n\n").next().unwrap();
    let rows: Vec<&str> = last.lines().collect();
    let head: Vec<&str> = rows[0]
        .trim_matches('|')
        .split('|')
        .map(str::trim)
        .collect();
    let wanted = [
        "",
        "random player",
        "model",
        "scripted player",
        "best possible",
    ];
    assert_eq!(head, wanted);
    assert!(rows[2].starts_with("| frozen-lake | "), "{table}");
    assert!(rows[3].starts_with("| snake-alone | "), "{table}");
}

#[test]
fn an_opponent_plays_the_other_side() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let met = |who: &str| {
        let line = format!("eval snake-duel --opponent {who} --episodes 6 --json --quiet");
        let examined = json(home, &line);
        let player = &examined["games"][0]["players"][0];
        assert_eq!(player["episodes"], 6, "its own side alone");
        player["return_mean"].as_f64().unwrap()
    };
    let all_sides = json(home, "eval snake-duel --episodes 6 --json --quiet");
    assert_eq!(all_sides["episodes"], 12);
    // Opponents differ.
    let (base, random) = (met("base"), met("random"));
    assert_ne!(base, random);
    met("scripted");
    let played = succeeds(home, "play snake-duel --opponent scripted --json");
    assert_eq!(played.out.lines().count(), 2);
}

#[test]
fn probes_separate_instructions_from_habit() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let probed = json(home, "probe frozen-lake --episodes 10 --json --quiet");
    let rows = probed["probes"].as_array().unwrap();
    assert_eq!(rows[0]["probe"], "usual");
    assert_eq!(rows.len(), 7);
    for row in rows {
        let (name, player) = (row["probe"].as_str().unwrap(), &row["players"][0]);
        let parted = player["parted"].as_u64().unwrap();
        let same_meaning = ["usual", "symbols", "wording"].contains(&name);
        // In `exact` the two differ only if the goal is one step away before step 8.
        assert!((parted == 0) == same_meaning || name == "exact", "{row}");
        let of_the_two = player["changed"].as_u64().unwrap() + player["usual"].as_u64().unwrap();
        assert!(of_the_two <= parted);
        assert_eq!(player["verdict"] == "same_meaning", same_meaning);
        assert_eq!(player["verdict"] == "not_met", parted == 0 && !same_meaning);
        assert_eq!(
            row["scripted"].as_f64().unwrap() > 0.5,
            name != "exact" || row["scripted"] == 1.0
        );
    }
}

#[test]
fn an_episode_ends_with_its_last_board_and_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let map = "game.options.map=[\"SF\", \"HG\"]";
    let line = format!("play --player scripted --episodes 2 --set '{map}'");
    let played = succeeds(home.path(), &line);
    insta::assert_snapshot!(played.out, @r#"
    === seed 1
    --- turn 1
    system: You walk on a frozen lake. P is you, _ is ice, O is a hole, G is the goal. Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.
    Reply with one word: left, down, right, up.
    user: P _
    O G
    > right
    right: reward 0

    --- turn 2
    _ P
    O G
    > down
    down: reward 1

    _ _
    O P
    over after 2 turns (reached the goal): success, return 1
    === seed 2
    --- turn 1
    system: You walk on a frozen lake. P is you, _ is ice, O is a hole, G is the goal. Reach the goal. A hole ends the game. Each move goes one cell; the edge stops you.
    Reply with one word: left, down, right, up.
    user: P _
    O G
    > right
    right: reward 0

    --- turn 2
    _ P
    O G
    > down
    down: reward 1

    _ _
    O P
    over after 2 turns (reached the goal): success, return 1
    2 episodes: success 1.000, return 1.000
    "#);
}

#[test]
fn scores_of_people_are_recorded_and_shown() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let map = "game.options.map=[\"SF\", \"HG\"]";
    let by_hand = |moves: &str| {
        let ended = with_input(home, &format!("play --human --set '{map}'"), moves);
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        ended
    };
    let won = by_hand("jump\nright\nd\n");
    assert!(
        won.out.contains(
            "in 1 game of this kind: mean return 1 (recorded in DIR/.data/lapwing/human.jsonl"
        ),
        "{}",
        won.out
    );
    let ending = "over after 2 turns (reached the goal): success, return 1\n";
    assert!(
        won.out.contains(ending) && !won.out.contains('\u{1b}'),
        "{}",
        won.out
    );
    assert!(
        by_hand("down\n")
            .out
            .contains("in 2 games of this kind: mean return 0.5")
    );
    // An unfinished game has no score.
    by_hand("right\nquit\n");
    let line = format!("eval --set '{map}' --episodes 2 --json --quiet");
    let human = &json(home, &line)["games"][0]["human"];
    assert_eq!(human["episodes"], 2);
    assert_eq!(human["return_mean"], 0.5);
    // Other options are another game.
    let other = json(home, "eval --episodes 2 --json --quiet");
    assert!(other["games"][0].get("human").is_none());
}

#[test]
fn a_failed_evaluation_leaves_no_file() {
    let home = tempfile::tempdir().unwrap();
    let ended = run(home.path(), "eval --model ./nowhere --out games.jsonl");
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(!home.path().join("games.jsonl").exists());
}
