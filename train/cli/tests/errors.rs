//! `docs/errors.md`: what is typed or given wrong, and what the program says to it. The page is what comes out here, so that
//! it cannot say anything else. To write it anew: `LAPWING_WRITE_DOCS=1 cargo test -p lapwing wrong_input`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::program::{lapwing, said};

/// What is wrong, what lies in the directory, and what is typed there.
struct Row {
    wrong: &'static str,
    given: fn(&Path),
    typed: &'static [&'static str],
}

const fn row(wrong: &'static str, given: fn(&Path), typed: &'static [&'static str]) -> Row {
    Row {
        wrong,
        given,
        typed,
    }
}

fn nothing(_: &Path) {}

fn write(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A config file with this text.
macro_rules! mine {
    ($text:expr) => {
        |directory| write(directory, "mine.toml", $text)
    };
}

/// A file of token ids, or a conversation.
macro_rules! input {
    ($text:expr) => {
        |directory| write(directory, "in.json", $text)
    };
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// A small model in `model`.
fn model(directory: &Path) {
    copy(&Path::new(GOLDEN).join("qwen2"), &directory.join("model"));
}

/// The same with one file of other bytes.
fn model_with(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    model(directory);
    write(&directory.join("model"), name, bytes);
}

/// The same with a value of its config replaced.
fn model_changed(directory: &Path, key: &str, value: serde_json::Value) {
    model(directory);
    changed(&directory.join("model/config.json"), key, value);
}

fn changed(path: &Path, key: &str, value: serde_json::Value) {
    let mut json: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    json[key] = value;
    fs::write(path, json.to_string()).unwrap();
}

/// An adapter for that model in `adapter`.
fn adapter(directory: &Path) {
    copy(
        &Path::new(GOLDEN).join("qwen2/adapter"),
        &directory.join("adapter"),
    );
}

/// A run in `run` that has saved nothing yet.
fn run(directory: &Path) {
    let out = lapwing(directory, &["config", "frozen-lake"])
        .output()
        .unwrap();
    write(directory, "run/config.toml", out.stdout);
}

const COMMAND_LINE: &[Row] = &[
    row("a command that is none", nothing, &["trian"]),
    row(
        "an option that is none",
        nothing,
        &["train", "--stpes", "5"],
    ),
    row(
        "too many arguments",
        nothing,
        &["train", "frozen-lake", "snake"],
    ),
    row("a preset that is none", nothing, &["train", "frozen-lak"]),
    row(
        "a preset that is nothing like one",
        nothing,
        &["play", "pong"],
    ),
    row(
        "a number that is none",
        nothing,
        &["train", "--steps", "many"],
    ),
    row("a negative seed", nothing, &["train", "--seed", "-1"]),
    row(
        "a seed beyond TOML's",
        nothing,
        &["eval", "--set", "eval.seed=9223372036854775808"],
    ),
    row("no episodes", nothing, &["eval", "--episodes", "0"]),
    row(
        "no episodes to watch",
        nothing,
        &["play", "snake", "--episodes", "0"],
    ),
    row(
        "too many episodes",
        nothing,
        &["eval", "--set", "eval.episodes=16777216"],
    ),
    row("no value", nothing, &["train", "--set", "train.lr"]),
    row(
        "a value without its sign",
        nothing,
        &["train", "--set", "train.lr", "1"],
    ),
    row(
        "a value without its key",
        nothing,
        &["train", "--set", "=3"],
    ),
    row(
        "a seed for a run that has one",
        run,
        &["train", "--resume", "run", "--seed", "2"],
    ),
    row(
        "a model for a person",
        nothing,
        &["play", "snake", "--human", "--model", "model"],
    ),
    row("nothing to go on with", nothing, &["generate"]),
    row(
        "two things to go on with",
        nothing,
        &["generate", "--prompt", "a", "--ids", "in.json"],
    ),
    row(
        "a share above 1",
        nothing,
        &["generate", "--prompt", "a", "--top-p", "2"],
    ),
    row(
        "a temperature below 0",
        nothing,
        &["generate", "--prompt", "a", "--temperature", "-1"],
    ),
    row(
        "two ways to draw",
        nothing,
        &["generate", "--prompt", "a", "--greedy", "--top-k", "5"],
    ),
    row(
        "no token",
        nothing,
        &["generate", "--prompt", "a", "--max-new-tokens", "0"],
    ),
    row("nothing to merge", nothing, &["merge", "--out", "merged"]),
    row(
        "a chance above 1",
        nothing,
        &["pretrain", "--out", "base", "--skill", "2"],
    ),
    row(
        "a shell that is not known",
        nothing,
        &["completions", "tcl"],
    ),
    row("a page that there is not", nothing, &["man", "trian"]),
];

const CONFIG: &[Row] = &[
    row(
        "a key that is misspelt",
        nothing,
        &["train", "--set", "train.group_sise=8"],
    ),
    row(
        "a key without its section",
        nothing,
        &["train", "--set", "lr=8"],
    ),
    row(
        "a section for a value",
        nothing,
        &["train", "--set", "train=3"],
    ),
    row(
        "a word for a number",
        nothing,
        &["train", "--set", "train.lr=fast"],
    ),
    row(
        "a negative count",
        nothing,
        &["train", "--set", "train.steps=-1"],
    ),
    row(
        "half a step",
        nothing,
        &["train", "--set", "train.steps=1.5"],
    ),
    row(
        "a word that is none of its kind",
        nothing,
        &["train", "--set", "train.sampling=best"],
    ),
    row(
        "an estimator that does nothing",
        nothing,
        &["train", "--set", "train.kl=k1"],
    ),
    row(
        "one number of two",
        nothing,
        &["train", "--set", "train.betas=[0.9]"],
    ),
    row(
        "a decay of 1",
        nothing,
        &["train", "--set", "train.betas=[0.9, 1.0]"],
    ),
    row(
        "an infinite rate",
        nothing,
        &["train", "--set", "train.lr=inf"],
    ),
    row(
        "a number that is none",
        nothing,
        &["train", "--set", "train.beta=nan"],
    ),
    row(
        "a group of one",
        nothing,
        &["train", "--set", "train.group_size=1"],
    ),
    row(
        "more to learn from than there are",
        nothing,
        &["train", "--set", "train.learn=26"],
    ),
    row(
        "a correction of what is not drawn",
        nothing,
        &[
            "train",
            "--set",
            "train.sampling=top",
            "--set",
            "train.correction=true",
        ],
    ),
    row(
        "a batch that holds no reply",
        nothing,
        &["train", "--set", "train.tokens_per_batch=1"],
    ),
    row(
        "a temperature of 0 to learn from",
        nothing,
        &["train", "--set", "policy.temperature=0"],
    ),
    row("a rank of 0", nothing, &["train", "--set", "lora.rank=0"]),
    row(
        "a layer that there is not",
        nothing,
        &["train", "--set", "lora.targets=[\"q\"]"],
    ),
    row(
        "a pattern that is none",
        nothing,
        &["train", "--set", "lora.targets=(q"],
    ),
    row(
        "no checkpoint to be kept",
        nothing,
        &["train", "--set", "checkpoint.keep=0"],
    ),
    row(
        "a name with a slash",
        nothing,
        &["train", "--set", "name=a/b"],
    ),
    row(
        "a word for a table",
        nothing,
        &["train", "--set", "policy.chat_template_kwargs=7"],
    ),
];

const FILES: &[Row] = &[
    row("no such file", nothing, &["train", "mine.toml"]),
    row(
        "a file that is not TOML",
        mine!("[train\nlr = 1\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a key twice",
        mine!("[train]\nlr = 1\nlr = 2\n"),
        &["train", "mine.toml"],
    ),
    row(
        "an unknown key",
        mine!("[train]\nlearning_rate = 1\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a key of the wrong kind",
        mine!("[train]\nsteps = \"ten\"\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a base that is no text",
        mine!("base = 3\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a base that is misspelt",
        mine!("base = \"frozen-lak\"\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a base that is missing",
        mine!("base = \"other.toml\"\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a base on itself",
        mine!("base = \"mine.toml\"\n"),
        &["train", "mine.toml"],
    ),
    row(
        "a file of bytes",
        mine!(b"\xff\xfe\x00"),
        &["train", "mine.toml"],
    ),
    row(
        "a file that is too large",
        mine!("#".repeat(2 << 20)),
        &["train", "mine.toml"],
    ),
    row(
        "a directory of that name",
        |directory| fs::create_dir(directory.join("mine.toml")).unwrap(),
        &["train", "mine.toml"],
    ),
    row(
        "a file of another kind",
        |directory| write(directory, "mine.json", "{}"),
        &["train", "mine.json"],
    ),
    #[cfg(unix)]
    row(
        "an endless device",
        |directory| std::os::unix::fs::symlink("/dev/zero", directory.join("mine.toml")).unwrap(),
        &["train", "mine.toml"],
    ),
    #[cfg(unix)]
    row(
        "a pipe that nobody writes to",
        |directory| {
            let made = std::process::Command::new("mkfifo")
                .arg(directory.join("mine.toml"))
                .status();
            assert!(made.unwrap().success());
        },
        &["train", "mine.toml"],
    ),
    row(
        "a name that would move the cursor",
        nothing,
        &["train", "\u{1b}[2J\nerror: forged.toml"],
    ),
];

const GAMES: &[Row] = &[
    row(
        "a game that is misspelt",
        nothing,
        &["train", "--set", "game.name=frozen-lakes"],
    ),
    row(
        "an option that is misspelt",
        nothing,
        &["train", "--set", "game.options.sise=8"],
    ),
    row(
        "an option of another game",
        nothing,
        &["train", "snake", "--set", "game.options.slippery=true"],
    ),
    row(
        "a board that is too small",
        nothing,
        &["play", "--human", "--set", "game.options.size=1"],
    ),
    row(
        "no turn",
        nothing,
        &["train", "--set", "game.options.step_limit=0"],
    ),
    row(
        "a word for a yes",
        nothing,
        &["train", "--set", "game.options.slippery=1"],
    ),
    row(
        "a chance that is no number",
        nothing,
        &["train", "--set", "game.options.frozen=nan"],
    ),
    row(
        "a chance above 1",
        nothing,
        &["train", "--set", "game.options.frozen=1.5"],
    ),
    row(
        "a map that is a date",
        nothing,
        &["train", "--set", "game.options.map=2026-11-21"],
    ),
    row(
        "a map with a strange letter",
        nothing,
        &["train", "--set", "game.options.map=[\"SX\", \"HG\"]"],
    ),
    row(
        "a map without a goal",
        nothing,
        &["train", "--set", "game.options.map=[\"SF\", \"HF\"]"],
    ),
    row(
        "a goal that cannot be reached",
        nothing,
        &["train", "--set", "game.options.map=[\"SH\", \"HG\"]"],
    ),
    row(
        "a map and a size",
        nothing,
        &[
            "train",
            "--set",
            "game.options.map=[\"SF\", \"HG\"]",
            "--set",
            "game.options.size=4",
        ],
    ),
    row(
        "a size and both sides",
        nothing,
        &["train", "--set", "game.options={size=4, width=5, height=6}"],
    ),
    row(
        "more apples than cells",
        nothing,
        &["train", "snake", "--set", "game.options.apples=100"],
    ),
    row(
        "too many snakes",
        nothing,
        &["train", "snake", "--set", "game.options.agents=9"],
    ),
    row(
        "a view that is none",
        nothing,
        &["train", "snake", "--set", "game.options.view=top"],
    ),
    row(
        "a word for all options",
        nothing,
        &["train", "--set", "game.options=3"],
    ),
];

const MODELS: &[Row] = &[
    row(
        "no such directory",
        nothing,
        &["score", "--model", "no/such/model", "--text", "a"],
    ),
    row("a run for a model", run, &["train", "--model", "run"]),
    row(
        "an adapter for a model",
        adapter,
        &["train", "--model", "adapter"],
    ),
    row(
        "a directory without a config",
        |d| write(d, "model/notes.txt", ""),
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "a config that is not JSON",
        |d| model_with(d, "config.json", "{"),
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "another architecture",
        |d| model_changed(d, "model_type", "mamba".into()),
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "a width that does not fit",
        |d| model_changed(d, "hidden_size", 63.into()),
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "quantised weights",
        |d| {
            model_changed(
                d,
                "quantization_config",
                serde_json::json!({"quant_method": "gptq"}),
            )
        },
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "no weights",
        |d| {
            model(d);
            fs::remove_file(d.join("model/model.safetensors")).unwrap();
        },
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "weights that are cut off",
        |d| {
            model_with(
                d,
                "model.safetensors",
                &fs::read(Path::new(GOLDEN).join("qwen2/model.safetensors")).unwrap()[..1000],
            )
        },
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "no tokenizer",
        |d| {
            model(d);
            fs::remove_file(d.join("model/tokenizer.json")).unwrap();
        },
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "a tokenizer that is none",
        |d| model_with(d, "tokenizer.json", "[]"),
        &["score", "--model", "model", "--text", "a"],
    ),
    row(
        "a template that is cut off",
        |d| {
            model_with(d, "chat_template.jinja", "{% if");
            write(d, "in.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
        },
        &["generate", "--model", "model", "--chat", "in.json"],
    ),
    row(
        "a template that forges lines",
        |d| {
            model_with(
                d,
                "chat_template.jinja",
                "{{ raise_exception('no\nerror: \x1b[31mforged') }}",
            );
            write(d, "in.json", "[{\"role\": \"user\", \"content\": \"a\"}]");
        },
        &["generate", "--model", "model", "--chat", "in.json"],
    ),
    row(
        "no such adapter",
        nothing,
        &["merge", "--adapter", "no/such/adapter", "--out", "merged"],
    ),
    row(
        "an adapter without its config",
        |d| write(d, "adapter/notes.txt", ""),
        &["merge", "--adapter", "adapter", "--out", "merged"],
    ),
    row(
        "an adapter of another model",
        adapter,
        &["merge", "--adapter", "adapter", "--out", "merged"],
    ),
    row(
        "an adapter that is more than low-rank",
        |d| {
            model(d);
            adapter(d);
            changed(
                &d.join("adapter/adapter_config.json"),
                "use_dora",
                true.into(),
            );
        },
        &[
            "merge",
            "--model",
            "model",
            "--adapter",
            "adapter",
            "--out",
            "merged",
        ],
    ),
    row(
        "a place with files in it",
        |d| {
            model(d);
            adapter(d);
        },
        &[
            "merge",
            "--model",
            "model",
            "--adapter",
            "adapter",
            "--out",
            "model",
        ],
    ),
];

const RUNS: &[Row] = &[
    row("no such run", nothing, &["eval", "runs/lake"]),
    row("a model for a run", model, &["eval", "model"]),
    row("an adapter for a run", adapter, &["eval", "adapter"]),
    row(
        "a directory of something else",
        |d| write(d, "notes/a.txt", ""),
        &["eval", "notes"],
    ),
    row("a run that has no adapter yet", run, &["eval", "run"]),
    row(
        "the same, as an adapter",
        run,
        &["merge", "--adapter", "run", "--out", "merged"],
    ),
    row(
        "the same, to be merged",
        run,
        &["merge", "run", "--out", "merged"],
    ),
    row(
        "no run to go on with",
        nothing,
        &["train", "--resume", "runs/lake"],
    ),
    row(
        "a directory that is no run",
        |d| write(d, "notes/a.txt", ""),
        &["train", "--resume", "notes"],
    ),
    row(
        "a place with files in it",
        |d| write(d, "notes/a.txt", ""),
        &["train", "--out", "notes"],
    ),
    row(
        "a config of a run that is cut off",
        |d| write(d, "run/config.toml", "[train"),
        &["train", "--resume", "run"],
    ),
    row(
        "a checkpoint that is none",
        |d| {
            run(d);
            write(d, "run/checkpoints/step-000001.safetensors", "notes");
        },
        &["train", "--resume", "run"],
    ),
    row(
        "a run to go on with, and a preset",
        run,
        &["train", "snake", "--resume", "run"],
    ),
    row("a report of no run", nothing, &["report", "runs/lake"]),
    row(
        "a report in the place of something else",
        |d| {
            run(d);
            write(d, "notes.html", "mine");
        },
        &["report", "run", "--out", "notes.html"],
    ),
    row("no run to watch", nothing, &["watch", "runs/lake"]),
    row(
        "a format that is none",
        run,
        &["export", "run", "--format", "xml"],
    ),
];

const SWEEPS: &[Row] = &[
    row("no such file", nothing, &["sweep", "mine.toml"]),
    row("not TOML", mine!("seeds"), &["sweep", "mine.toml"]),
    row(
        "a key that is none",
        mine!("seed = 1"),
        &["sweep", "mine.toml"],
    ),
    row("no seeds", mine!("seeds = 0"), &["sweep", "mine.toml"]),
    row(
        "a seed twice",
        mine!("seeds = [1, 1]"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a base that is none",
        mine!("base = \"lake\""),
        &["sweep", "mine.toml"],
    ),
    row(
        "a setting with a wrong value",
        mine!("[settings.fast]\ntrain.lr = \"high\""),
        &["sweep", "mine.toml"],
    ),
    row(
        "a setting with a name for two directories",
        mine!("[settings.\"a/b\"]"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a grid of one value without brackets",
        mine!("[grid]\n\"train.lr\" = 0.1"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a metric that no step has",
        mine!("[compare]\nmetrics = [\"entrop\"]"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a score to reach that is no list",
        mine!("[compare]\nreach = 0.9"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a probe that the game does not have",
        mine!("[compare]\nprobes = [\"poison\"]"),
        &["sweep", "mine.toml"],
    ),
    row(
        "probes of what reads no words",
        mine!("base = \"snake-pqn\"\n[compare]\nprobes = [\"poison\"]"),
        &["sweep", "mine.toml"],
    ),
    row(
        "a point in the name of a setting",
        mine!("[settings.lambda-0.9]\ncredit.lambda = 0.9"),
        &["sweep", "mine.toml"],
    ),
    row(
        "no runs at a time",
        mine!(""),
        &["sweep", "mine.toml", "--jobs", "0"],
    ),
];

const INPUT: &[Row] = &[
    row("no such file", nothing, &["score", "--ids", "in.json"]),
    row("not JSON", input!("1, 2"), &["score", "--ids", "in.json"]),
    row("not a list", input!("{}"), &["score", "--ids", "in.json"]),
    row("no id", input!("[1, -2]"), &["score", "--ids", "in.json"]),
    row("no token", input!("[]"), &["score", "--ids", "in.json"]),
    row(
        "a token that the model has not",
        input!("[1, 100000]"),
        &["score", "--ids", "in.json"],
    ),
    row("an empty text", nothing, &["score", "--text", ""]),
    row(
        "an empty standard input",
        nothing,
        &["generate", "--chat", "-"],
    ),
    row(
        "a conversation of nothing",
        input!("[]"),
        &["generate", "--chat", "in.json"],
    ),
    row(
        "a message without a role",
        input!("[{\"content\": \"a\"}]"),
        &["generate", "--chat", "in.json"],
    ),
    row(
        "a conversation that is a text",
        input!("\"a\""),
        &["generate", "--chat", "in.json"],
    ),
    row(
        "a directory for a file",
        |d| fs::create_dir(d.join("in.json")).unwrap(),
        &["score", "--ids", "in.json"],
    ),
];

/// A file of scores that somebody has made before.
fn scores(directory: &Path) {
    write(directory, "scores.jsonl", "{}\n");
}

/// A prompt template with this text.
macro_rules! template {
    ($text:expr) => {
        |directory| write(directory, "mine.jinja", $text)
    };
}

const MINE: &[&str] = &["play", "--set", "policy.templates=[\"mine.jinja\"]"];

const PLAYERS: &[Row] = &[
    row(
        "a probe that is misspelt",
        nothing,
        &["probe", "snake", "--probes", "poisen"],
    ),
    row(
        "a probe of another game",
        nothing,
        &["play", "--human", "--set", "game.probe=poison"],
    ),
    row(
        "a game to examine that is misspelt",
        nothing,
        &["eval", "--games", "snake,frozen-lak"],
    ),
    row(
        "a variant that is misspelt",
        nothing,
        &["play", "snake-standart", "--human"],
    ),
    row(
        "scores that would be overwritten",
        scores,
        &["eval", "--out", "scores.jsonl"],
    ),
    row(
        "two forms of one table",
        nothing,
        &["eval", "--json", "--markdown"],
    ),
    row("no tries", nothing, &["eval", "--search", "0"]),
    row(
        "an opponent in a game of one",
        nothing,
        &["eval", "--opponent", "scripted"],
    ),
    row(
        "an opponent that does not exist",
        nothing,
        &["play", "snake-duel", "--opponent", "runs/other"],
    ),
    row(
        "a player that is none",
        nothing,
        &["eval", "--player", "gpt"],
    ),
    row(
        "an API without a model's name",
        nothing,
        &["eval", "--player", "openai:http://127.0.0.1:9/v1"],
    ),
    row(
        "an address that is none",
        nothing,
        &[
            "eval",
            "--player",
            "openai:localhost",
            "--player-model",
            "m",
        ],
    ),
    row(
        "a model's name without an API",
        nothing,
        &["eval", "--player-model", "m"],
    ),
    row(
        "episodes that would be overwritten",
        scores,
        &["play", "--player", "random", "--keep", "scores.jsonl"],
    ),
    row(
        "nothing to imitate",
        scores,
        &["pretrain", "--from", "scores.jsonl", "--out", "adapter"],
    ),
    row(
        "an environment without words",
        nothing,
        &["play", "--human", "--game", "exec:no-such-program"],
    ),
    row(
        "a program that there is not",
        nothing,
        &[
            "play",
            "--player",
            "random",
            "--game",
            "exec:no-such-program",
            "--set",
            "game.options.actions=[\"go\"]",
        ],
    ),
    row(
        "a server that there is not",
        nothing,
        &[
            "play",
            "--player",
            "random",
            "--game",
            "ws://127.0.0.1:9/ws",
            "--set",
            "game.options.actions=[\"go\"]",
        ],
    ),
    row(
        "a server that is encrypted",
        nothing,
        &["play", "--human", "--game", "wss://example.org/ws"],
    ),
    row(
        "a mixture of too much",
        nothing,
        &[
            "train",
            "--set",
            "mix=[{probe=\"swapped\", share=0.7}, {probe=\"red\", share=0.7}]",
        ],
    ),
    row(
        "a mixture with a probe that is misspelt",
        nothing,
        &["train", "--set", "mix=[{probe=\"swaped\"}]"],
    ),
    row(
        "a form of reply that is none",
        nothing,
        &["train", "--set", "policy.reply=xml"],
    ),
    row("a template that is missing", nothing, MINE),
    row(
        "a part of a template that is misspelt",
        template!("{% extends \"usual\" %}{% block rule %}{% endblock %}"),
        MINE,
    ),
    row(
        "a template that is none",
        template!("{% block rules %}{{ rules }"),
        MINE,
    ),
    row(
        "a port that is none",
        nothing,
        &["serve", "--port", "70000"],
    ),
];

const SECTIONS: [(&str, &[Row]); 9] = [
    ("The command line", COMMAND_LINE),
    ("Values of a config", CONFIG),
    ("Config files", FILES),
    ("Games", GAMES),
    ("Players, probes, environments", PLAYERS),
    ("Models and adapters", MODELS),
    ("Runs", RUNS),
    ("Sweeps", SWEEPS),
    ("Texts and tokens", INPUT),
];

/// What the program says, in one line, and the code that it ends with.
fn answer(row: &Row) -> String {
    let home = tempfile::tempdir().unwrap();
    (row.given)(home.path());
    let output = lapwing(home.path(), row.typed).output().unwrap();
    let said = said(home.path(), output);
    assert_eq!(said.out, "", "{}", row.wrong);
    let from = said.err.find("error: ");
    let from = from.unwrap_or_else(|| panic!("{}: no error in {}", row.wrong, said.err));
    let told = &said.err[from..];
    // What the parser of arguments adds is the same everywhere.
    let told = told.split("\n\nUsage:").next().unwrap();
    let told = told.split("\n\nFor more information").next().unwrap();
    let words: Vec<&str> = told.split_whitespace().collect();
    assert!(!told.contains('\u{1b}'), "{}", row.wrong);
    format!("{} ({})", code(&words.join(" ")), said.code)
}

/// A text as Markdown shows it in a table, as it is.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let room = if longest > 0 { " " } else { "" };
    format!("{fence}{room}{}{room}{fence}", text.replace('|', "\\|"))
}

fn typed(row: &Row) -> String {
    let word = |word: &&str| match word {
        plain
            if !plain.is_empty()
                && plain
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_./=,".contains(c)) =>
        {
            (*plain).to_owned()
        }
        other => format!(
            "'{}'",
            other.escape_debug().to_string().replace("\\\"", "\"")
        ),
    };
    let words: Vec<String> = row.typed.iter().map(word).collect();
    code(&words.join(" "))
}

const HEAD: &str = "# What is said of wrong input

Made by a test (`train/cli/tests/errors.rs`), which asks the program: change the table there. In brackets, the code that the
program ends with: 2 for what was typed, 1 for what was found.
";

#[test]
fn wrong_input_is_answered_as_the_page_says() {
    let rows: Vec<&Row> = SECTIONS.iter().flat_map(|(_, rows)| *rows).collect();
    // Most of the time is spent on starting: as many at once as there are cores.
    let answers: Vec<_> = rows.iter().map(|_| std::sync::OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(row) = rows.get(at) else { break };
                    answers[at].set(answer(row)).unwrap();
                }
            });
        }
    });
    assert!(rows.len() >= 60, "{}", rows.len());
    let mut answers = answers.iter().map(|answer| answer.get().unwrap());
    let mut page = HEAD.as_bytes().to_vec();
    for (name, rows) in SECTIONS {
        writeln!(
            page,
            "\n## {name}\n\n| what is wrong | `lapwing` ... | what is said |\n|---|---|---|"
        )
        .unwrap();
        for row in rows {
            let answer = answers.next().unwrap();
            writeln!(page, "| {} | {} | {answer} |", row.wrong, typed(row)).unwrap();
        }
    }
    let page = String::from_utf8(page).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    if std::env::var_os("LAPWING_WRITE_DOCS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    for (kept, found) in kept.lines().zip(page.lines()) {
        assert_eq!(
            kept, found,
            "docs/errors.md; LAPWING_WRITE_DOCS=1 writes it anew"
        );
    }
    assert_eq!(kept.lines().count(), page.lines().count());
}
