//! External environments.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Ended, SMALL, json, lapwing, run, succeeds, with_input};

/// Returns a directory with the environment of a page of the docs.
fn home_of(page: &str) -> tempfile::TempDir {
    let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    let docs = fs::read_to_string(docs.join(page)).unwrap();
    let program = docs.split("```python\n").nth(1).unwrap();
    let program = program.split("```").next().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("game.py"), program).unwrap();
    home
}

fn home() -> tempfile::TempDir {
    home_of("environments.md")
}

const DOCS: &str = r#"--game 'exec:python3 game.py' --set 'game.options.actions=["left","right"]'"#;

/// Returns the only line of an error.
fn error(home: &Path, arguments: &str, code: i32) -> String {
    let ended = run(home, arguments);
    assert_eq!((ended.code, &*ended.out), (code, ""), "{}", ended.err);
    assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    ended.err
}

/// A game that fails before the first save. The run starts again with other values, which its config.toml has from then on.
#[test]
fn a_run_that_saved_nothing_starts_again_with_the_values_given() {
    let home = home();
    let home = home.path();
    let sound = fs::read_to_string(home.join("game.py")).unwrap();
    let at = "        right = ";
    let broken = sound.replace(at, &format!("        sys.exit(3)\n{at}"));
    fs::write(home.join("game.py"), broken).unwrap();
    let train = format!("train --out run {SMALL} {DOCS}");
    let failed = run(home, &train);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let note = "nothing was saved yet: --resume starts again\n";
    assert!(failed.err.contains(note), "{}", failed.err);

    fs::write(home.join("game.py"), sound).unwrap();
    // Outside its band the entropy alone would be learned from, and GiGPO compares the turns of a cut-off episode.
    let other = "--set train.lr=0.25 --set policy.reply=tags --set policy.max_new_tokens=16 \
        --set 'train.entropy_band=[0.0, 100.0]' --set credit.method=episode";
    let again = succeeds(home, &format!("train --resume run --steps 1 {other}"));
    let unread = "Nothing was learned: most replies could not be read (unreadable in `lapwing help health-checks`).";
    assert!(again.out.contains(unread), "{}", again.out);
    let config = fs::read_to_string(home.join("run/config.toml")).unwrap();
    for line in ["lr = 0.25\n", "steps = 1\n", "reply = \"tags\"\n"] {
        assert!(config.contains(line), "{config}");
    }
    assert_eq!(json(home, "runs . --json")[0]["state"], "done");
    // The values in force are those of the checkpoint.
    succeeds(home, "train --resume run --steps 2");
}

#[test]
fn the_environment_of_the_docs_is_played() {
    let home = home();
    let home = home.path();
    let eval = format!("eval --episodes 40 --json {DOCS}");
    let found = json(home, &eval);
    assert_eq!(found["game"], "exec:python3 game.py");
    let random = &found["baselines"]["random"];
    assert_eq!(random["episode_length_mean"], 1.0);
    let random = random["return_mean"].as_f64().unwrap();
    // Half, with a standard error of 0.08.
    assert!((0.2..0.8).contains(&random), "{random}");
    let played = succeeds(home, &format!("play --episodes 2 {DOCS}"));
    assert!(
        played.out.contains("2 episodes: success "),
        "{}",
        played.out
    );

    let note = "the built-in model has read only prompts of the built-in games; ";
    assert!(played.err.contains(note), "{}", played.err);

    for (seed, word, ending) in [
        ("4", "left", "success, return 1"),
        ("5", "l", "no success, return 0"),
    ] {
        let by_hand = format!("play --human --seed {seed} {DOCS}");
        let by_hand = with_input(home, &by_hand, &format!("{word}\n"));
        assert_eq!((by_hand.code, &*by_hand.err), (0, ""));
        let ending = format!("over after 1 turn: {ending}\n");
        assert!(by_hand.out.contains(&ending), "{}", by_hand.out);
    }
}

/// The way to the goal, and one against the edge.
#[test]
fn the_own_game_of_the_docs_is_played() {
    let home = home_of("own-game.md");
    let line = r#"play --human --game 'exec:python3 game.py' --set game.options.step_limit=8
        --set 'game.options.actions=["left","down","right","up"]'"#;
    let way = "right\nright\nright\ndown\ndown\ndown\nright\ndown\n";
    let played = with_input(home.path(), line, way);
    assert_eq!((played.code, &*played.err), (0, ""));
    assert!(
        played.out.contains(": success, return 1\n"),
        "{}",
        played.out
    );
    let lost = with_input(home.path(), line, &"up\n".repeat(8));
    assert!(
        lost.out
            .contains("over after 8 turns (step limit): no success, return 0\n"),
        "{}",
        lost.out
    );
}

/// A package with the parts of Gymnasium that the shim uses: a lake with escape codes and a time limit of two steps.
const GYMNASIUM: &str = r#"
class spaces:
    class Discrete: pass
class Lake:
    metadata, action_space = {"render_modes": ["ansi"]}, spaces.Discrete()
    def __init__(self, render_mode=None): self.render_mode = render_mode
    def reset(self, seed): self.steps = 0; return 0, {}
    def step(self, action): self.steps += 1; return 0, 0.0, action == 1, self.steps == 2, {}
    def render(self): return "  (Left)\nS\x1b[41mF\x1b[0mF\n\x1b[34;1m\x1b[43mR\x1b[0m\x1b[0m\x1b[35mY\x1b[0mG\n\n"
def make(name, **arguments): return Lake(**arguments)
"#;

#[test]
fn the_shim_writes_plain_boards_and_reports_truncation() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    fs::write(home.join("gymnasium.py"), GYMNASIUM).unwrap();
    fs::write(home.join("shim.py"), succeeds(home, "shim").out).unwrap();
    let messages = [
        ("reset", r#"{"seed":1}"#),
        ("step", r#"{"action":0}"#),
        ("step", r#"{"action":0}"#),
    ];
    let messages: String = messages
        .map(|(kind, data)| format!("{{\"session\":1,\"type\":\"{kind}\",\"data\":{data}}}\n"))
        .concat();
    fs::write(home.join("in"), &messages).unwrap();
    fs::write(
        home.join("over"),
        messages.replace("\"action\":0", "\"action\":1"),
    )
    .unwrap();
    let answers = |file: &str| -> Vec<serde_json::Value> {
        let output = Command::new("python3")
            .args(["shim.py", "Lake-v1"])
            .current_dir(home)
            .stdin(fs::File::open(home.join(file)).unwrap())
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let read =
            |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["data"].take();
        lines.lines().map(read).collect()
    };
    let answered = answers("in");
    assert_eq!(
        answered[0]["observation"]["text"],
        "SPF\nPYG\nblue: R\nmagenta: Y"
    );
    let ends = |answers: &[serde_json::Value]| -> Vec<(serde_json::Value, serde_json::Value)> {
        answers
            .iter()
            .map(|a| (a["done"].clone(), a["truncated"].clone()))
            .collect()
    };
    let truth = |done: bool, truncated: bool| (done.into(), truncated.into());
    assert_eq!(
        ends(&answered)[1..],
        [truth(false, false), truth(true, true)]
    );
    // An end by the rules in the last step of the limit is no truncation.
    assert_eq!(
        ends(&answers("over"))[1..],
        [truth(true, false), truth(true, false)]
    );
}

/// An environment without fixed actions receives any line, even one that would leave another game.
#[test]
fn a_person_types_any_text() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path();
    let program = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "close":
        continue
    text = message.get("data", {}).get("text", "")
    answer = {"observation": f"heard: {text}", "reward": float(len(text)), "done": text == "Good bye"}
    print(json.dumps({"session": message["session"], "type": "observation", "data": answer}), flush=True)
"#;
    fs::write(home.join("hears.py"), program).unwrap();
    let template = r#"{% block action %}{"text": {{ text | tojson }}}{% endblock %}"#;
    fs::write(home.join("hears.jinja"), template).unwrap();
    let play =
        "play --human --game 'exec:python3 hears.py' --set game.options.template=hears.jinja";
    let ended = with_input(home, play, "q\n\n  Good bye \n");
    assert_eq!((ended.code, &*ended.err), (0, ""));
    for told in [
        "turn 1/100> q: reward 1\n\nheard: q\n",
        "turn 2/100> enter some text (the end of the input quits)\nturn 2/100> Good bye: reward 8\n",
        "over after 2 turns: success, return 9\n",
    ] {
        assert!(ended.out.contains(told), "{told:?}: {}", ended.out);
    }
}

/// It is trained, resumed and evaluated by its name in the config.
#[test]
fn an_environment_is_trained_on() {
    let home = home();
    let home = home.path();
    let train = format!("train --steps 1 {SMALL} {DOCS}");
    let trained = succeeds(home, &train);
    let place = "runs/python3-game.py-1";
    assert!(trained.out.contains(place), "{}", trained.out);
    let config = fs::read_to_string(home.join(place).join("config.toml")).unwrap();
    let config: toml::Table = config.parse().unwrap();
    assert_eq!(
        config["game"]["name"].as_str(),
        Some("exec:python3 game.py")
    );
    assert_eq!(
        config["game"]["options"]["step_limit"].as_integer(),
        Some(100)
    );
    succeeds(home, &format!("train --resume {place} --steps 2"));
    let metrics = fs::read_to_string(home.join(place).join("metrics.jsonl")).unwrap();
    let steps = metrics
        .lines()
        .filter(|line| line.contains("\"kind\":\"step\""));
    assert_eq!(steps.count(), 2);
    succeeds(home, &format!("eval {place}"));
    // As an argument it uses the general defaults.
    let line = r#"config 'exec:python3 game.py' --set 'game.options.actions=["left","right"]'"#;
    let told = succeeds(home, line).out;
    assert!(
        told.contains("name = \"python3-game.py\"") && told.contains("reply = \"tags\""),
        "{told}"
    );
}

#[test]
fn a_game_that_ignores_its_seed_is_noticed() {
    let home = home_of("own-game.md");
    let home = home.path();
    let eval = r#"eval --player random --episodes 5 --game 'exec:python3 game.py' --set 'game.options.actions=["left","down"]'"#;
    let note = "the game starts differently with the same seed";
    assert!(!succeeds(home, eval).err.contains(note));
    let program = fs::read_to_string(home.join("game.py")).unwrap();
    let (seeded, own) = ("random.Random(data[\"seed\"])", "random.Random()");
    assert!(program.contains(seeded));
    fs::write(home.join("game.py"), program.replace(seeded, own)).unwrap();
    let told = succeeds(home, eval).err;
    assert!(told.contains(note), "{told}");
}

#[test]
fn the_end_of_a_process_is_reported_in_a_line() {
    let home = home();
    let home = home.path();
    fs::write(
        home.join("game.py"),
        "import sys\nsys.stderr.write('\\x1b[2Jno level 9')\nsys.exit(4)\n",
    )
    .unwrap();
    assert_eq!(
        error(home, &format!("eval {DOCS}"), 1),
        "error: exec:python3 game.py: it ended (exit status 4; started in the current directory); its last words on \
         standard error: \"\\u{1b}[2Jno level 9\"\n"
    );
}

/// The child ignores Ctrl-C and the end of its input.
#[cfg(unix)]
#[test]
fn ctrl_c_leaves_no_child() {
    let home = home();
    let home = home.path();
    let game = fs::read_to_string(home.join("game.py")).unwrap();
    let game = format!(
        "import os, signal, time\nopen('pid.new', 'w').write(str(os.getpid()))\nos.rename('pid.new', 'pid')\n\
         signal.signal(signal.SIGINT, signal.SIG_IGN)\n{game}\ntime.sleep(1000)\n"
    );
    fs::write(home.join("game.py"), game).unwrap();
    let train = format!("train --steps 100000 {SMALL} {DOCS}");
    let eval = format!("eval --episodes 100000 {DOCS}");
    for (arguments, signals) in [(&train, 1), (&train, 2), (&eval, 1)] {
        for left in ["pid", "runs"] {
            let _ = fs::remove_file(home.join(left));
            let _ = fs::remove_dir_all(home.join(left));
        }
        let mut program = lapwing(home, arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pid = waited(|| fs::read_to_string(home.join("pid")).ok());
        if signals == 1 && arguments.starts_with("train") {
            let run = home.join("runs/python3-game.py-1/metrics.jsonl");
            waited(|| {
                fs::read_to_string(&run)
                    .ok()
                    .filter(|text| text.contains("\"step\""))
            });
        }
        for _ in 0..signals {
            let id = program.id().to_string();
            let status = Command::new("kill").args(["-INT", &id]).status();
            assert!(status.unwrap().success());
            sleep(Duration::from_millis(100));
        }
        let status = waited(|| program.try_wait().unwrap());
        assert_eq!(status.code(), Some(130), "{arguments}");
        waited(|| (!is_alive(&pid)).then_some(()));
    }
}

/// Turns are printed as they are played, and the first signal keeps them.
#[cfg(unix)]
#[test]
fn a_signal_ends_a_game_and_keeps_its_turns() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let game = r#"
import json, sys
for line in sys.stdin:
    session = json.loads(line)["session"]
    data = {"observation": "P", "reward": 0.0, "done": False}
    print(json.dumps({"session": session, "type": "observation", "data": data}), flush=True)
"#;
    fs::write(home.join("game.py"), game).unwrap();
    let endless = "play --player random --set game.options.step_limit=1000000";
    let mut program = lapwing(home, &format!("{endless} {DOCS}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(program.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("--- turn 3\n") {
        assert_ne!(out.read_line(&mut text).unwrap(), 0, "{text}");
    }
    let id = program.id().to_string();
    let status = Command::new("kill").args(["-INT", &id]).status();
    assert!(status.unwrap().success());
    out.read_to_string(&mut text).unwrap();
    let ended = Ended::new(home, program.wait_with_output().unwrap());
    assert_eq!(ended.code, 130, "{}", ended.err);
    assert!(
        ended.last().ends_with("stopped: 0 of 1 episodes are over"),
        "{}",
        ended.err
    );
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("stopped after ") && last.ends_with(" turns, return 0"),
        "{last}"
    );
}

/// Whether a process runs. A zombie does not.
#[cfg(unix)]
fn is_alive(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z"),
        Err(_) if Path::new("/proc/self/stat").exists() => false,
        Err(_) => {
            let sent = Command::new("kill")
                .args(["-0", pid])
                .stderr(Stdio::null())
                .status();
            sent.unwrap().success()
        }
    }
}

fn waited<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "it does not come"
        );
        sleep(Duration::from_millis(20));
    }
}
