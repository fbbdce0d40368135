use std::sync::atomic::AtomicBool;

use super::*;
use lapwing_model::read_text;
use lapwing_train::record::directory::RunDirectory;

/// The files in memory belong to the process, so one visit at a time.
static VISIT: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn ask(session: &mut PageSession, request: Value) -> Result<Value, String> {
    let answer = session.answer(&request.to_string(), &())?;
    Ok(serde_json::from_str(&answer).unwrap())
}

fn start(session: &mut PageSession, steps: usize) {
    let run = json!({"call": "start", "preset": "frozen-lake", "seed": "3", "group_size": 2, "sampling": "all", "steps": steps});
    assert_eq!(ask(session, run).unwrap(), json!({ "steps": steps }));
    session.run().unwrap().state.config.eval.episodes = 20;
}

fn advance(session: &mut PageSession) -> Result<Value, String> {
    ask(session, json!({"call": "advance"}))
}

/// Returns the lines of the run's metrics and episodes, without times.
fn records(run: &Path) -> Vec<Value> {
    let mut records = Vec::new();
    for path in [directory::metrics(run), directory::episodes(run)] {
        for line in read_text(&path, 1 << 30).unwrap().lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            let is_time = |key: &str| key == "time" || key.starts_with("seconds_");
            line.as_object_mut().unwrap().retain(|key, _| !is_time(key));
            records.push(line);
        }
    }
    records
}

#[test]
fn a_run_in_the_page_is_the_run_of_the_program() {
    let _one = VISIT.lock().unwrap();
    let mut session = PageSession::open(false).unwrap();
    start(&mut session, 12);
    let mut answers = Vec::new();
    let mut lost = None;
    loop {
        if answers.len() == 13 && lost.is_none() {
            // After eleven steps; the last snapshot is after ten.
            session.gpu.lose();
            lost = Some(advance(&mut session).unwrap_err());
            continue;
        }
        let answer = advance(&mut session).unwrap();
        answers.push(answer["step"].as_u64().unwrap());
        if answer["done"] == true {
            break;
        }
    }
    assert_eq!(
        answers,
        [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 12, 12]
    );
    let lost = lost.unwrap();
    assert!(lost.starts_with("the GPU was lost ("), "{lost}");
    assert!(lost.ends_with("Continue trains on from step 10"), "{lost}");

    let home = tempfile::tempdir().unwrap();
    let (dir, config) = (
        home.path().join("run"),
        session.run().unwrap().state.config.clone(),
    );
    let gpu = device(false).unwrap();
    let mut state = State::new(&gpu, None, config, RunPurpose::Train, &()).unwrap();
    let mut run = RunDirectory::create(&dir, &state.config).unwrap();
    trainer::train(&mut state, &mut run, &mut [], &(), &AtomicBool::new(false)).unwrap();
    assert_eq!(records(&run_directory()), records(&dir));
    let tests = |run: &Path| {
        let test = TestResults::read(run);
        let all = test.sampled.into_iter().chain(test.greedy);
        all.map(|test| (test.step, test.play)).collect::<Vec<_>>()
    };
    assert_eq!(tests(&run_directory()), tests(&dir));

    let files = ask(&mut session, json!({"call": "files"})).unwrap();
    let wanted = [
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "config.toml",
        "episodes.jsonl",
        "metrics.jsonl",
        "sessions.jsonl",
        "test.json",
    ];
    assert_eq!(files, json!(wanted.map(|name| format!("run/{name}"))));
    for file in &wanted[..2] {
        let read = |run: &Path| lapwing_model::read_file(&run.join(file), 1 << 30).unwrap();
        assert!(read(&run_directory()) == read(&dir), "{file}");
    }

    let report = ask(&mut session, json!({"call": "report"})).unwrap();
    assert_eq!(report["runs"][0]["steps_done"], 12);
    assert_eq!(report["runs"][0]["notes"], json!([]));
    let shown = report["runs"][0]["episodes"]["shown"].as_array().unwrap();
    let prompts = &report["runs"][0]["episodes"]["prompts"];
    let part = |which: usize| {
        prompts[shown[0]["prompt_parts"][0][which].as_u64().unwrap() as usize]
            .as_str()
            .unwrap()
    };
    let observation = shown[0]["turns"][0]["observation"].as_str().unwrap();
    let prompt = format!("{}{observation}{}", part(0), part(1));

    // The words of the base and of the trained policy differ, and each are a distribution.
    let words = [false, true].map(|trained| {
        let words = ask(
            &mut session,
            json!({"call": "words", "prompt": prompt, "trained": trained}),
        )
        .unwrap();
        let words = words.as_array().unwrap().clone();
        let sum: f64 = words
            .iter()
            .map(|word| word["probability"].as_f64().unwrap())
            .sum();
        assert!((0.9..1.0001).contains(&sum), "{words:?}");
        words
    });
    assert_ne!(words[0], words[1]);

    // The adapter, brought back, plays as the trained policy.
    let adapter = Path::new(MEMORY).join("adapter");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        let bytes =
            lapwing_model::read_file(&directory::adapter(&dir).join(file), 1 << 30).unwrap();
        write_file(&adapter.join(file), &bytes).unwrap();
    }
    let text = ask(
        &mut session,
        json!({"call": "adapter", "folder": "adapter"}),
    )
    .unwrap();
    assert_eq!(text["text"], "adapter of rank 16, for the built-in model");
    let again = ask(
        &mut session,
        json!({"call": "words", "prompt": prompt, "trained": true}),
    )
    .unwrap();
    assert_eq!(again, json!(words[1]));
    // One that cannot be read does not replace it.
    let bad = Path::new(MEMORY).join("bad");
    write_file(&bad.join("adapter_config.json"), b"{}").unwrap();
    let error = ask(&mut session, json!({"call": "adapter", "folder": "bad"})).unwrap_err();
    assert!(error.contains("adapter_config.json: peft_type"), "{error}");
    start(&mut session, 1);
    assert_eq!(
        session.run().unwrap().state.config.model.adapter,
        Some(adapter)
    );

    // Its episodes alone, dropped onto the page.
    let look = Path::new(MEMORY).join("look");
    let episodes = lapwing_model::read_file(&directory::episodes(&dir), 1 << 30).unwrap();
    write_file(&directory::episodes(&look), &episodes).unwrap();
    let seen = ask(
        &mut session,
        json!({"call": "look", "folder": "look", "preset": "frozen-lake"}),
    )
    .unwrap();
    assert_eq!(
        seen["runs"][0]["episodes"]["shown"]
            .as_array()
            .unwrap()
            .len(),
        shown.len()
    );
    assert_eq!(
        seen["runs"][0]["notes"][0],
        "metrics.jsonl is missing or cannot be opened."
    );
}

#[test]
fn a_person_and_the_model_play_snake() {
    let _one = VISIT.lock().unwrap();
    let mut session = PageSession::open(true).unwrap();
    let play = json!({"call": "play", "preset": "snake", "seed": "3", "human": [0]});
    let first = ask(&mut session, play.clone()).unwrap();
    assert_eq!(
        (&first["turn"], &first["over"], &first["moves"]),
        (&json!(0), &json!(false), &json!([]))
    );
    let wrong = ask(&mut session, json!({"call": "move", "action": "north"})).unwrap_err();
    assert_eq!(wrong, "north is none of up, down, left, right");
    let wrong = ask(&mut session, json!({"call": "move"})).unwrap_err();
    assert_eq!(wrong, "choose one of up, down, left, right");
    let head = |view: &Value| {
        let board = view["observation"].as_str().unwrap().to_owned();
        board.find('1').expect("a head")
    };
    let second = ask(&mut session, json!({"call": "move", "action": "left"})).unwrap();
    // A cell and the space after it.
    assert_eq!(
        (second["turn"].as_u64(), head(&second)),
        (Some(1), head(&first) - 2)
    );
    let made = &second["moves"][0];
    assert_eq!(
        (&made["agent"], &second["agents"][0]["human"]),
        (&json!(1), &json!(true))
    );
    assert!(made["prompt"].as_str().unwrap().contains("You are snake 1"));
    assert_eq!(made["words"].as_array().unwrap().len(), 8);
    // Earlier turns stay as they were.
    let third = ask(&mut session, json!({"call": "move", "action": "down"})).unwrap();
    assert_eq!(third["turn"], 2);
    // The same moves make the same game.
    ask(&mut session, play).unwrap();
    assert_eq!(
        ask(&mut session, json!({"call": "move", "action": "left"})).unwrap(),
        second
    );

    // Without a person the model plays on until the end.
    ask(
        &mut session,
        json!({"call": "play", "preset": "frozen-lake", "seed": "1", "human": []}),
    )
    .unwrap();
    let mut turns = 0;
    while ask(&mut session, json!({"call": "move"})).unwrap()["over"] == false {
        turns += 1;
        assert!(turns < 25, "the referee ends it after 20 turns");
    }
}

#[test]
fn wrong_requests_are_answered_with_a_sentence() {
    let _one = VISIT.lock().unwrap();
    let mut session = PageSession::open(false).unwrap();
    let offered = ask(&mut session, json!({"call": "open"})).unwrap();
    assert_eq!(offered["presets"].as_array().unwrap().len(), PRESETS.len());
    let run = |preset: &str, seed: &str, size: usize| json!({"call": "start", "preset": preset, "seed": seed, "group_size": size, "sampling": "aaw", "steps": 1});
    for (request, wanted) in [
        (json!({"call": "advance"}), "no run was started"),
        (
            json!({"call": "move", "action": "left"}),
            "no game was started",
        ),
        (
            run("chess", "1", 8),
            "chess is none of the presets of this page",
        ),
        (run("frozen-lake", "many", 8), "train.seed"),
        (run("frozen-lake", "1", 1), "train.group_size"),
        (
            json!({"call": "play", "preset": "snake", "seed": "3", "human": [2]}),
            "the game has 2 players",
        ),
        (
            json!({"call": "play", "preset": "snake", "seed": "x", "human": []}),
            "the seed of a game is an integer",
        ),
        (json!({"call": "dance"}), "unknown variant `dance`"),
    ] {
        let error = ask(&mut session, request).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
    assert!(session.run.is_none());
    ask(&mut session, run("frozen-lake", "1", 8)).unwrap();
    // The paper's share of the episodes.
    assert_eq!(session.run().unwrap().state.config.train.learn, 3);
}
