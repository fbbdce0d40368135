use std::fs;
use std::io::Write;

use insta::assert_snapshot;
use serde_json::Value;

use super::*;
use lapwing_learn::metrics::{StepMetrics, UpdateMetrics};
use lapwing_play::metrics::{Baselines, GameMetrics, PlayMetrics};
use lapwing_play::sample::{EpisodePurpose, KeptEpisode, KeptTurn};
use lapwing_train::Config;
use lapwing_train::record::directory;
use lapwing_train::record::directory::{RunDirectory, Session};
use lapwing_train::record::metrics::Evaluation;
use lapwing_train::record::{Record, Sink};

fn play(success_rate: f64) -> PlayMetrics {
    PlayMetrics {
        episodes: 50,
        return_mean: success_rate,
        success_rate,
        ..PlayMetrics::default()
    }
}

fn step(number: usize, success_rate: f64) -> Record {
    Record::Step(StepMetrics {
        step: number,
        play: play(success_rate),
        seconds_rollout: 0.5,
        seconds_update: 0.25,
        tokens_played: Some(100),
        tokens_computed: Some(10),
        learned: number.is_multiple_of(2).then_some(UpdateMetrics {
            kl: Some(0.5),
            ..UpdateMetrics::default()
        }),
        ..StepMetrics::default()
    })
}

fn evaluation(step: usize, success_rate: f64) -> Record {
    Record::Evaluation(Evaluation {
        step,
        seconds_evaluation: 2.0,
        play: play(success_rate),
        ..Evaluation::default()
    })
}

/// An episode of one turn on this scene.
fn episode(purpose: EpisodePurpose, step: usize, scene: u64, reply: &str) -> Record {
    let turn = KeptTurn {
        observation: "P _\nO G".to_owned(),
        messages: Vec::new(),
        prompt: "You see:\nP _\nO G\nWhat now?".to_owned(),
        reply: reply.to_owned(),
        action: Some("right".to_owned()),
        unread: None,
        reward: 0.0,
        shaping: 0.0,
        advantage: None,
    };
    Record::Episode(KeptEpisode {
        step,
        purpose,
        game: None,
        scene: scene.to_string(),
        agent: 0,
        game_return: 1.0,
        composite_return: 1.0,
        advantage: None,
        chosen: None,
        success: true,
        truncated: false,
        turns: vec![turn],
        last: "_ _\nO P".to_owned(),
    })
}

/// Writes a run with these settings and records.
fn run(folder: &Path, name: &str, settings: &[&str], records: &[Record]) -> PathBuf {
    let path = folder.join(name);
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    let config = Config::load("frozen-lake", &settings).unwrap();
    let mut run = RunDirectory::create(&path, &config).unwrap();
    run.begin(&Session {
        version: "0.1.0".to_owned(),
        device: "a card".to_owned(),
        driver: "a driver".to_owned(),
        backend: "vulkan".to_owned(),
        config: "frozen-lake".to_owned(),
        model: "lapwing-base-2".to_owned(),
        ..Session::default()
    })
    .unwrap();
    records
        .iter()
        .for_each(|record| run.record(record).unwrap());
    path
}

/// Returns the data of the page.
fn data(runs: &[PathBuf]) -> Value {
    serde_json::to_value(ReportData::read(runs).unwrap()).unwrap()
}

#[test]
fn seeds_are_one_curve_and_other_configs_another() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [
        run(
            dir.path(),
            "a",
            &["record.episodes=2"],
            &[evaluation(0, 0.1), step(1, 0.2), step(2, 0.4)],
        ),
        run(
            dir.path(),
            "b",
            &["train.seed=2"],
            &[evaluation(0, 0.3), step(1, 0.6)],
        ),
        run(
            dir.path(),
            "c",
            &["train.lr=0.002", "train.seed=7"],
            &[step(1, 1.0)],
        ),
    ];
    let data = data(&runs);
    let groups = data["groups"].as_array().unwrap();
    let of = |i: usize, key: &str| groups[i][key].clone();
    assert_eq!(of(0, "runs"), serde_json::json!([0, 1]));
    assert_eq!(of(1, "runs"), serde_json::json!([2]));
    assert_eq!(of(0, "label"), "train.lr=0.003");
    assert_eq!(of(1, "label"), "train.lr=0.002");
    // b has no step 2: the mean is over the other seeds.
    let success = &groups[0]["train"]["metrics"]["success_rate"];
    assert_snapshot!(success, @r#"{"mean":[0.4,0.4],"low":[0.2,0.4],"high":[0.6,0.4]}"#);
    // Values that were not measured are null.
    assert_snapshot!(groups[0]["train"]["metrics"]["kl"], @r#"{"mean":[null,0.5],"low":[null,0.5],"high":[null,0.5]}"#);
    assert_snapshot!(groups[0]["eval"]["metrics"]["success_rate"], @r#"{"mean":[0.2],"low":[0.1],"high":[0.3]}"#);
    // One run has no band.
    assert_snapshot!(groups[1]["train"]["metrics"]["success_rate"], @r#"{"mean":[1.0]}"#);
    assert_eq!(self::data(&runs[..1])["groups"][0]["label"], "frozen-lake");
}

#[test]
fn a_sweep_is_its_runs_named_by_setting_and_seed() {
    let dir = tempfile::tempdir().unwrap();
    for setting in ["top", "aaw"] {
        for seed in [10, 2] {
            let [seed, sampling] = [
                format!("train.seed={seed}"),
                format!("train.sampling={setting}"),
            ];
            let name = format!("{setting}/{}", seed.replace("train.seed=", "seed-"));
            run(dir.path(), &name, &[&seed, &sampling], &[step(1, 0.5)]);
        }
    }
    fs::write(dir.path().join("top/seed-2.log"), "").unwrap();
    let data = data(&[dir.path().to_owned()]);
    let of = |list: &str, key: &str| {
        let list = data[list].as_array().unwrap();
        list.iter().map(|one| one[key].clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        of("runs", "name"),
        ["aaw seed-2", "aaw seed-10", "top seed-2", "top seed-10"]
    );
    assert_eq!(of("groups", "label"), ["aaw", "top"]);
    assert_eq!(
        default_path(&[dir.path().to_owned()]),
        dir.path().join("report.html")
    );
}

#[test]
fn a_network_has_no_language() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), "a", &["learner=dqn"], &[]);
    assert_eq!(data(&[path])["runs"][0]["language"], false);
    let step = serde_json::to_value(StepMetrics::default()).unwrap();
    for absent in ["tokens_played", "tokens_computed", "groups_skipped"] {
        assert!(step.get(absent).is_none(), "{absent}");
    }
}

#[test]
fn a_run_has_its_cost_and_the_differences_of_its_config() {
    let dir = tempfile::tempdir().unwrap();
    let records = [
        Record::Baselines(Baselines::default()),
        evaluation(0, 0.1),
        step(1, 0.2),
        step(2, 0.4),
        evaluation(2, 0.5),
    ];
    let path = run(dir.path(), "a", &["train.lr=0.002"], &records);
    let test = r#"{"baselines":{"game":"snake","seed":1},"sampled":[],"greedy":[]}"#;
    std::fs::write(directory::test(&path), test).unwrap();
    let run = &data(&[path])["runs"][0];
    assert_eq!(run["test"]["baselines"]["game"], "snake");
    assert_snapshot!(run["seconds"], @r#"[["rollout",1.0],["update",0.5],["evaluation",4.0]]"#);
    assert_eq!(
        (&run["tokens_played"], &run["tokens_computed"]),
        (&200.into(), &20.into())
    );
    assert_eq!(
        (&run["steps_done"], &run["steps_total"]),
        (&2.into(), &150.into())
    );
    assert_eq!(run["base"], "the preset frozen-lake");
    let config = run["config"].as_array().unwrap();
    let differing: Vec<&Value> = config.iter().filter(|line| line[1] != line[2]).collect();
    assert_eq!(
        differing,
        [&serde_json::json!(["train.lr", "0.002", "0.003"])]
    );
    assert!(config.len() > 40, "{}", config.len());
}

#[test]
fn long_runs_are_thinned_to_means() {
    let dir = tempfile::tempdir().unwrap();
    let steps: Vec<Record> = (1..=1000)
        .map(|i| step(i, f64::from(u8::from(i % 3 == 0))))
        .collect();
    let data = data(&[run(dir.path(), "long", &[], &steps)]);
    assert_eq!(data["bucket"], 3);
    let train = &data["groups"][0]["train"];
    let (x, success) = (&train["x"], &train["metrics"]["success_rate"]["mean"]);
    assert_eq!(x.as_array().unwrap().len(), 334);
    // The bucket of steps 1 to 3 is at 2, and one of three episodes succeeded.
    assert_eq!(
        (&x[0], &x[1], &success[0]),
        (&2.0.into(), &5.0.into(), &0.33333.into())
    );
}

/// The return of a lesson is not comparable with that of evaluations, which play the run's own game.
#[test]
fn training_curves_leave_out_games_that_are_mixed_in() {
    let dir = tempfile::tempdir().unwrap();
    let of = |game: &str, score: f64| GameMetrics::of(game, &play(score));
    let played = |number: usize, games: &[GameMetrics]| {
        let Record::Step(metrics) = step(number, 9.0) else {
            unreachable!("a step");
        };
        let games = games.to_vec();
        Record::Step(StepMetrics { games, ..metrics })
    };
    let steps = [
        played(1, &[of("snake with apples = 5", 8.0)]),
        played(
            2,
            &[of("frozen-lake", 1.0), of("snake with apples = 5", 8.0)],
        ),
    ];
    let mix = r#"mix=[{name="snake", share=0.5, options={apples=5}}]"#;
    let data = data(&[run(dir.path(), "mixed", &[mix], &steps)]);
    let metrics = &data["groups"][0]["train"]["metrics"];
    assert_eq!(
        metrics["return_mean"]["mean"],
        serde_json::json!([null, 1.0])
    );
    assert_eq!(metrics["kl"]["mean"], serde_json::json!([null, 0.5]));
}

#[test]
fn the_same_scene_is_shown_before_and_after() {
    let dir = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    for at in [0, 25, 50] {
        for scene in [u64::MAX, 7] {
            records.push(episode(EpisodePurpose::Evaluation, at, scene, "right"));
        }
        // Of one group only, up to the limit.
        for member in 0..20 {
            let scene = 100 + u64::from(member >= 10);
            records.push(episode(EpisodePurpose::Training, at + 1, scene, "right"));
        }
    }
    let path = run(dir.path(), "a", &[], &records);
    let page = data(&[path]);
    let episodes = &page["runs"][0]["episodes"];
    let shown = episodes["shown"].as_array().unwrap();
    assert_eq!((shown.len(), &episodes["total"]), (3 * (2 + 8), &66.into()));
    let pairs: Vec<[usize; 2]> = serde_json::from_value(episodes["pairs"].clone()).unwrap();
    assert_eq!(pairs.len(), 2);
    for [before, after] in pairs {
        assert_eq!(shown[before]["scene"], shown[after]["scene"]);
        assert_eq!(
            (&shown[before]["step"], &shown[after]["step"]),
            (&0.into(), &50.into())
        );
    }
    // Numbers that JavaScript would round are strings, and prompts are stored once.
    assert_eq!(shown[0]["scene"], "18446744073709551615");
    assert_snapshot!(episodes["prompts"], @r#"["You see:\n","\nWhat now?"]"#);
    assert_snapshot!(shown[0]["prompt_parts"], @"[[0,1]]");

    let path = run(dir.path(), "b", &[], &records[..1]);
    assert_snapshot!(data(&[path])["runs"][0]["episodes"]["pairs"], @"[]");
}

#[test]
fn damaged_lines_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(
        dir.path(),
        "a",
        &[],
        &[
            evaluation(0, 0.1),
            episode(EpisodePurpose::Evaluation, 0, 1, "x"),
        ],
    );
    let add = |name: &str, bytes: &[u8]| {
        let file = fs::File::options().append(true).open(path.join(name));
        file.unwrap().write_all(bytes).unwrap();
    };
    add("metrics.jsonl", b"odd\n\xff\xfe\n{\"kind\":\"st");
    add("episodes.jsonl", b"{}\n{\"kind\":\"epi");
    fs::remove_file(directory::sessions(&path)).unwrap();
    let page = dir.path().join("page.html");
    let notes = write(std::slice::from_ref(&path), &page).unwrap();
    assert_eq!(
        notes[1],
        "a: sessions.jsonl is missing or cannot be opened."
    );
    let run = &data(&[path])["runs"][0];
    assert_snapshot!(run["notes"].to_string(), @r#"["2 lines of metrics.jsonl could not be read and are left out.","sessions.jsonl is missing or cannot be opened.","A line of episodes.jsonl could not be read and is left out."]"#);
    assert_eq!(run["evaluations"].as_array().unwrap().len(), 1);
    assert_eq!(run["episodes"]["shown"].as_array().unwrap().len(), 1);
    // Without a session, the base follows from the name of the config.
    assert_eq!(run["base"], "the preset frozen-lake");

    // A run without records has a page, and so has a directory of runs; one without a run is an error.
    let empty = self::run(dir.path(), "empty", &[], &[]);
    assert_eq!(
        data(&[empty])["groups"][0]["train"]["x"],
        serde_json::json!([])
    );
    let all = data(&[dir.path().to_owned()]);
    let names = all["runs"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|run| &run["name"]).collect();
    assert_eq!(names, ["a", "empty"]);
    let none = dir.path().join("none");
    fs::create_dir(&none).unwrap();
    let error = ReportData::read(&[none]).unwrap_err().to_string();
    assert!(error.contains("is not a run"), "{error}");
}

#[test]
fn untrusted_text_stays_text_and_nothing_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let hostile = "</script><script>alert(1)</script><!-- @@JS@@ <img src=x>";
    let records = [episode(EpisodePurpose::Evaluation, 0, 1, hostile)];
    let name = "<b>&amp;";
    let path = run(
        dir.path(),
        name,
        &[&format!("name=\"{name}<title>\"")],
        &records,
    );
    let page = ReportData::read(&[path]).unwrap();
    let html = super::page(&page);
    assert_eq!(
        html.matches("<script").count(),
        HTML.matches("<script").count()
    );
    assert_eq!(html.matches("<title").count(), 1);
    assert!(!html.contains("<b>") && !html.contains("<img"));
    // The script reads the data unchanged.
    let (_, rest) = html.split_once(r#"id="data">"#).unwrap();
    let (blob, _) = rest.split_once("</script>").unwrap();
    let back: Value = serde_json::from_str(blob).unwrap();
    assert_eq!(back, serde_json::to_value(&page).unwrap());
    assert_eq!(
        back["runs"][0]["episodes"]["shown"][0]["turns"][0]["reply"],
        hostile
    );
    // The name of a namespace is not fetched.
    let own = [HTML, CSS, JS]
        .concat()
        .replace("http://www.w3.org/2000/svg", "");
    for fetching in [
        "http:",
        "https:",
        "url(",
        "@import",
        "fetch(",
        "src=",
        "XMLHttp",
        "innerHTML",
    ] {
        assert!(!own.contains(fetching), "{fetching}");
    }
}

#[test]
fn only_reports_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), "a", &[], &[]);
    let runs = [path.clone()];
    let out = default_path(&runs);
    assert_eq!(out, path.join("report.html"));
    write(&runs, &out).unwrap();
    let first = fs::read(&out).unwrap();
    fs::write(&out, [&first[..], b"older"].concat()).unwrap();
    write(&runs, &out).unwrap();
    assert_eq!(fs::read(&out).unwrap(), first);

    let notes = dir.path().join("notes.html");
    fs::write(&notes, "precious").unwrap();
    let error = write(&runs, &notes).unwrap_err().to_string();
    assert_snapshot!(error.replace(dir.path().to_str().unwrap(), "DIR"), @"DIR/notes.html exists, and lapwing did not make it: choose another place with --out");
    assert_eq!(fs::read(&notes).unwrap(), b"precious");
    assert!(write(&runs, dir.path()).is_err());
    // With little data the page is small.
    assert!(first.len() < 80_000, "{} bytes", first.len());
}
