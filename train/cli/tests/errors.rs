//! `docs/errors.md`: wrong input and the error messages for it. The page is the output of the program. To write it:
//! `LAPWING_WRITE_DOCS=1 cargo test -p lapwing error_messages`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::{Value, json};

use crate::support::{copy, files, golden, run, succeeds};

/// A wrong command.
struct Row {
    title: &'static str,
    /// Makes the files of the directory.
    prepare: fn(&Path),
    line: &'static str,
}

/// The sections of the page with their rows: what is wrong, in which directory, and the command line.
macro_rules! table {
    ($($name:literal { $($(#[$on:meta])* $title:literal, $prepare:expr, $line:literal;)* })*) => {
        const SECTIONS: &[(&str, &[Row])] = &[$(
            ($name, &[$($(#[$on])* Row { title: $title, prepare: $prepare, line: $line }),*])
        ),*];
    };
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

/// A small model in `model`.
fn model(directory: &Path) {
    copy(&golden("qwen2"), &directory.join("model"));
}

/// The same with other content of one file.
fn model_with(directory: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    model(directory);
    write(&directory.join("model"), name, bytes);
}

/// The same with another value in its config.
fn model_changed(directory: &Path, key: &str, value: Value) {
    model(directory);
    changed(&directory.join("model/config.json"), key, value);
}

/// The same with this template, and a conversation for it.
fn chat_template(directory: &Path, text: &str) {
    model_with(directory, "chat_template.jinja", text);
    let messages = r#"[{"role": "user", "content": "a"}]"#;
    write(directory, "in.json", messages);
}

fn changed(path: &Path, key: &str, value: Value) {
    let mut json: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    json[key] = value;
    fs::write(path, json.to_string()).unwrap();
}

/// An adapter of that model in `adapter`.
fn adapter(directory: &Path) {
    copy(&golden("qwen2/adapter"), &directory.join("adapter"));
}

fn adapter_changed(directory: &Path, key: &str, value: Value) {
    adapter(directory);
    let path = directory.join("adapter/adapter_config.json");
    changed(&path, key, value);
}

/// A run in `run` without a checkpoint.
fn new_run(directory: &Path) {
    static CONFIG: OnceLock<String> = OnceLock::new();
    let config = CONFIG.get_or_init(|| succeeds(directory, "config frozen-lake").out);
    write(directory, "run/config.toml", config);
}

/// Two runs in `runs`.
fn runs(directory: &Path) {
    for name in ["runs/lake-2", "runs/lake-10"] {
        write(directory, &format!("{name}/config.toml"), "");
    }
}

/// An existing file of scores.
fn scores(directory: &Path) {
    write(directory, "scores.jsonl", "{}\n");
}

/// A prompt template with this text.
macro_rules! template {
    ($text:expr) => {
        |directory| write(directory, "mine.jinja", $text)
    };
}

/// An environment that only starts.
const GAME: &str = r#"
import json
session = json.loads(input())["session"]
data = {"observation": "P", "reward": None, "done": False}
print(json.dumps({"session": session, "type": "observation", "data": data}), flush=True)
input()
"#;

#[cfg(unix)]
fn pipe(directory: &Path) {
    let mut command = std::process::Command::new("mkfifo");
    let made = command.arg(directory.join("mine.toml")).status();
    assert!(made.unwrap().success());
}

table! {
    "The command line" {
        "nothing to measure has the name", nothing, "bench prodct";
        "a forecast without a model", nothing, "bench --preset snake-paper";
        "a comparison with a missing result", nothing, "bench --compare old.json";
        "a comparison with another file", input!("[1]"), "bench --compare in.json";
        "a comparison with a result of another version", input!(r#"{"format": 0}"#), "bench --compare in.json";
        "an unknown command", nothing, "trian";
        "an unknown option", nothing, "train --stpes 5";
        "too many arguments", nothing, "train frozen-lake snake";
        "a misspelt preset", nothing, "train frozen-lak";
        "an unknown preset", nothing, "play pong";
        "a file without its ending", mine!("base = \"snake\"\n"), "train mine";
        "a word in place of a number", nothing, "train --steps many";
        "a negative seed", nothing, "train --seed -1";
        "a seed too large for TOML", nothing, "eval --set eval.seed=9223372036854775808";
        "no episodes", nothing, "eval --episodes 0";
        "no episodes to play", nothing, "play snake --episodes 0";
        "too many episodes", nothing, "eval --set eval.episodes=16777216";
        "no value", nothing, "train --set train.lr";
        "a value without an equals sign", nothing, "train --set train.lr 1";
        "a value without a key", nothing, "train --set =3";
        "a negative number of episodes", nothing, "eval --episodes -1";
        "a game that is not one, as an option", nothing, "train --game 'exec:'";
        "a command without exec:", nothing, "play 'python3 game.py'";
        "a text in place of a run", nothing, "generate 'Once upon a time' --model model --prompt a";
        "another seed for a resumed run", new_run, "train --resume run --seed 2";
        "a model for a human player", nothing, "play snake --human --model model";
        "no prompt", nothing, "generate";
        "two prompts", nothing, "generate --prompt a --ids in.json";
        "a probability above 1", nothing, "generate --prompt a --top-p 2";
        "a temperature below 0", nothing, "generate --prompt a --temperature -1";
        "two ways to sample", nothing, "generate --prompt a --greedy --top-k 5";
        "no new tokens", nothing, "generate --prompt a --max-new-tokens 0";
        "no adapter to merge", nothing, "merge --out merged";
        "a width that heads of 16 do not divide", nothing, "pretrain --out base --width 40";
        "a seed too large for TOML, as an option", nothing, "train --seed 18446744073709551615";
        "two inputs to score", nothing, "score --text a --ids in.json";
        "greedy decoding with a temperature", nothing, "generate --prompt a --greedy --temperature 0.5";
        "no run to report on", nothing, "report";
        "an option of other programs", nothing, "train --lr 0.1";
        "another one, with two meanings", nothing, "train --episodes 3";
        "another one beside an option", nothing, "train --steps 5 --lr 0.1";
        "another one, of an evaluation", nothing, "eval --seed 3";
        "another one, without effect on an evaluation", nothing, "eval --lr 0.1";
        "another one, of a game", nothing, "play --step-limit 5";
        "a device that is not a number", nothing, "devices --device gpu";
        "an unknown shell", nothing, "completions tcl";
        "an unknown page", nothing, "help frozenlake";
        "an unknown key to explain", nothing, "config --explain nope";
        "an unknown manual page", nothing, "man trian";
    }
    "Values of a config" {
        "a misspelt key", nothing, "train --set train.group_sise=8";
        "a key without its section", nothing, "train --set lr=8";
        "a section in place of a value", nothing, "train --set train=3";
        "a word in place of a number", nothing, "train --set train.lr=fast";
        "a negative count", nothing, "train --set train.steps=-1";
        "a fraction of a step", nothing, "train --set train.steps=1.5";
        "an unknown value", nothing, "train --set train.sampling=best";
        "an estimator without effect", nothing, "train --set train.kl=k1";
        "one of two numbers", nothing, "train --set 'train.betas=[0.9]'";
        "a decay of 1", nothing, "train --set 'train.betas=[0.9, 1.0]'";
        "an infinite learning rate", nothing, "train --set train.lr=inf";
        "not a number", nothing, "train --set train.beta=nan";
        "no episodes to train on", nothing, "train --set train.learn=0";
        "a template variable that is not a number", nothing, "train --set policy.chat_template_kwargs.heat=nan";
        "a board for a game without one", nothing, "train rooms --set learner=dqn";
        "a group of one", nothing, "train --set train.group_size=1";
        "more episodes to train on than in a group", nothing, "train --set train.sampling=aaw --set train.learn=26";
        "groups smaller than the preset expects", nothing, "train frozen-lake-paper --set train.group_size=3";
        "a measurement of small groups", mine!("train.group_size = 3\ntrain.measure = true"), "train mine.toml";
        "a large first DQN buffer", nothing, "train snake-dqn --set dqn.capacity=500";
        "a batch of no tokens", nothing, "train --set train.tokens_per_batch=0";
        "a training temperature of 0", nothing, "train --set policy.temperature=0";
        "a reply longer than the model's texts", nothing, "train --set policy.max_new_tokens=8192";
        "a rank of 0", nothing, "train --set lora.rank=0";
        "an unknown layer", nothing, r#"train --set 'lora.targets=["q"]'"#;
        "an invalid pattern", nothing, "train --set 'lora.targets=(q'";
        "no checkpoint to keep", nothing, "train --set checkpoint.keep=0";
        "a name with a slash", nothing, "train --set name=a/b";
        "a number in place of a table", nothing, "train --set policy.chat_template_kwargs=7";
    }
    "Config files" {
        "a missing file", nothing, "train mine.toml";
        "a file that is not TOML", mine!("[train\nlr = 1\n"), "train mine.toml";
        "a text without quotes", mine!("base = frozen-lake\n"), "train mine.toml";
        "a semicolon after a value", mine!("[train]\nsteps = 3;\n"), "train mine.toml";
        "a base below a heading", mine!("[game]\nbase = \"snake\"\n"), "train mine.toml";
        "a misspelt key of the base", mine!("bse = \"snake\"\n"), "train mine.toml";
        "a key twice", mine!("[train]\nlr = 1\nlr = 2\n"), "train mine.toml";
        "an unknown key", mine!("[train]\nlearning_rate = 1\n"), "train mine.toml";
        "an option of the game in another section", mine!("game.actions = [\"left\"]\n"), "train mine.toml";
        "a heading above keys of other sections", mine!("[model]\ngame.name = \"snake\"\n"), "train mine.toml";
        "a key of the wrong type", mine!("[train]\nsteps = \"ten\"\n"), "train mine.toml";
        "a base that is not a string", mine!("base = 3\n"), "train mine.toml";
        "a misspelt base", mine!("base = \"frozen-lak\"\n"), "train mine.toml";
        "a missing base", mine!("base = \"other.toml\"\n"), "train mine.toml";
        "a circular base", mine!("base = \"mine.toml\"\n"), "train mine.toml";
        "a binary file", mine!(b"\xff\xfe\x00"), "train mine.toml";
        "a file that is too large", mine!("#".repeat(2 << 20)), "train mine.toml";
        "a directory in place of a file", |d| fs::create_dir(d.join("mine.toml")).unwrap(), "train mine.toml";
        "a file with another extension", |d| write(d, "mine.json", "{}"), "train mine.json";
        #[cfg(unix)]
        "an endless file", |d| std::os::unix::fs::symlink("/dev/zero", d.join("mine.toml")).unwrap(), "train mine.toml";
        #[cfg(unix)]
        "a pipe without a writer", pipe, "train mine.toml";
        "a name with control characters", nothing, "train '\u{1b}[2J\nerror: forged.toml'";
    }
    "Games" {
        "a misspelt game", nothing, "train --set game.name=frozen-lakes";
        "a misspelt option", nothing, "train --set game.options.sise=8";
        "an option of another game", nothing, "train snake --set game.options.slippery=true";
        "a board that is too small", nothing, "play --human --set game.options.size=1";
        "no turns", nothing, "train --set game.options.step_limit=0";
        "a number in place of a boolean", nothing, "train --set game.options.slippery=1";
        "a probability that is not a number", nothing, "train --set game.options.frozen=nan";
        "a probability above 1", nothing, "train --set game.options.frozen=1.5";
        "an infinite probability", nothing, "train --set game.options.frozen=inf";
        "a date in place of a map", nothing, "train --set game.options.map=2026-11-21";
        "a map with an unknown letter", nothing, r#"train --set 'game.options.map=["SX", "HG"]'"#;
        "a map without a goal", nothing, r#"train --set 'game.options.map=["SF", "HF"]'"#;
        "an unreachable goal", nothing, r#"train --set 'game.options.map=["SH", "HG"]'"#;
        "a map and a size", nothing, r#"train --set 'game.options.map=["SF", "HG"]' --set game.options.size=4"#;
        "a size and a width", nothing, "train --set 'game.options={size=4, width=5, height=6}'";
        "more apples than cells", nothing, "train snake --set game.options.apples=100";
        "too many snakes", nothing, "train snake --set game.options.agents=9";
        "an unknown view", nothing, "train snake --set game.options.view=top";
        "a number in place of the options", nothing, "train --set game.options=3";
    }
    "Players, probes, environments" {
        "a misspelt probe", nothing, "probe snake --probes poisen";
        "a probe of another game", nothing, "play --human --set game.probe=poison";
        "a misspelt game to evaluate", nothing, "eval --games snake,frozen-lak";
        "a misspelt variant", nothing, "play snake-standart --human";
        "an existing file of scores", scores, "eval --out scores.jsonl";
        "two output formats", nothing, "eval --json --markdown";
        "no search tries", nothing, "eval --search 0";
        "an opponent in a game of one agent", nothing, "eval --opponent scripted";
        "a missing opponent", nothing, "play snake-duel --opponent runs/other";
        "an unknown player", nothing, "eval --player gpt";
        "an API without a model name", nothing, "eval --player 'openai:http://127.0.0.1:9/v1'";
        "an invalid URL", nothing, "eval --player 'openai:localhost' --player-model m";
        "a model name without an API", nothing, "eval --player-model m";
        "an existing file of episodes", scores, "play --player random --keep scores.jsonl";
        "a file of episodes below a file", scores, "play --player random --keep scores.jsonl/kept.jsonl";
        "a warm-up by an unknown player", nothing, "train --warmup --set warmup.player=kept.jsonl";
        "a warm-up with a file without episodes", scores, "train --warmup --set warmup.player=scores.jsonl";
        "a warm-up of all weights", nothing, "train --warmup --set train.weights=all";
        "a warm-up of a network", nothing, "train frozen-lake-pqn --warmup";
        "a warm-up of a run that has begun", nothing, "train --resume run --warmup";
        "updates of a warm-up that are no number", nothing, "train --warmup=many";
        "a file without episodes", scores, "pretrain --from scores.jsonl --out adapter";
        "a command with an open quote", nothing, r"play --human --game 'exec:python3 '\''game.py'";
        "a misspelt option of an environment", nothing, "play --human --game 'exec:python3 game.py' --set game.options.action=1";
        "an environment without actions", nothing, "play --human --game 'exec:no-such-program'";
        "fewer tokens than an action takes", nothing, "play --set policy.reply=tags";
        "tags from a policy that may only say words", nothing, "play --set policy.constrain=true --set policy.reply=tags";
        "an API that is to say only words", nothing,
            "play --player 'openai:http://127.0.0.1:9/v1' --player-model m --set policy.constrain=true";
        "a program without exec:", nothing, "train --game ./lift.py";
        "a command without exec:", nothing, "play --game 'python3 games/lift.py'";
        "a server without ws:", nothing, "play --game 'http://127.0.0.1:9'";
        "probes of an environment", nothing, r#"probe --set 'game.name=exec:python3 lift.py' --set 'game.options.actions=["go"]'"#;
        "a program of this directory that is not on the PATH", |d| write(d, "lift.py", "#!/usr/bin/env python3"),
            r#"play --player random --game 'exec:lift.py' --set 'game.options.actions=["go"]'"#;
        "a script without its interpreter", |d| write(d, "game.py", GAME),
            r#"play --player random --game 'exec:./game.py' --set 'game.options.actions=["go"]'"#;
        "an environment to pretrain on", mine!("[game]\nname = \"exec:./game\"\noptions.actions = [\"go\"]\n"),
            "pretrain mine.toml --out base";
        "a scripted player of an environment", |d| write(d, "game.py", GAME),
            r#"play --player scripted --game 'exec:python3 game.py' --set 'game.options.actions=["go"]'"#;
        "a missing program", nothing, r#"play --player random --game 'exec:no-such-program' --set 'game.options.actions=["go"]'"#;
        "a missing server", nothing, r#"play --player random --game 'ws://127.0.0.1:9/ws' --set 'game.options.actions=["go"]'"#;
        "an encrypted connection", nothing, "play --human --game 'wss://example.org/ws'";
        "a port that does not exist", nothing, "play --human --game 'ws://127.0.0.1:99999/ws'";
        "an address with a password", nothing, "play --human --game 'ws://me:secret@127.0.0.1:80/ws'";
        "mixture shares above 1", nothing, r#"train --set 'mix=[{probe="swapped", share=0.7}, {probe="red", share=0.7}]'"#;
        "a mixture with a misspelt probe", nothing, r#"train --set 'mix=[{probe="swaped"}]'"#;
        "an unknown reply format", nothing, "train --set policy.reply=xml";
        "a missing template", nothing, r#"play --set 'policy.templates=["mine.jinja"]'"#;
        "a misspelt template block", template!(r#"{% extends "usual" %}{% block rule %}{% endblock %}"#),
            r#"play --set 'policy.templates=["mine.jinja"]'"#;
        "an invalid template", template!("{% block rules %}{{ rules }"), r#"play --set 'policy.templates=["mine.jinja"]'"#;
        "an invalid port", nothing, "serve --port 70000";
    }
    "Models and adapters" {
        "a missing directory", nothing, "score --model no/such/model --text a";
        "a missing model to train", nothing, "train --model no/such/model";
        "a preset for a model of yours", nothing, "train frozen-lake-paper";
        "a misspelt directory of models", |d| write(d, "models/notes.txt", ""), "score --model models/mine --text a";
        "a missing adapter to evaluate", nothing, "eval --adapter no/such/adapter";
        "a run in place of a model", new_run, "train --model run";
        "an adapter in place of a model", adapter, "train --model adapter";
        "a run in place of a model, to generate", new_run, "generate --model run --prompt a";
        "an adapter in place of a model, to score", adapter, "score --model adapter --text a";
        "a model in place of a run", model, "serve model";
        "an adapter in place of a run", adapter, "score adapter --text a";
        "an empty name of a model", nothing, "train --model ''";
        "a GGUF file without its name", |d| write(d, "model/a.gguf", ""), "score --model model --text a";
        "a weight file in place of a model", model, "score --model model/model.safetensors --text a";
        "a directory without a config", |d| write(d, "model/notes.txt", ""), "score --model model --text a";
        "a config that is not JSON", |d| model_with(d, "config.json", "{"), "score --model model --text a";
        "an unsupported architecture", |d| model_changed(d, "model_type", "mamba".into()), "score --model model --text a";
        "a width that does not fit", |d| model_changed(d, "hidden_size", 63.into()), "score --model model --text a";
        "quantised weights", |d| model_changed(d, "quantization_config", json!({"quant_method": "gptq"})), "score --model model --text a";
        "no weights", |d| { model(d); fs::remove_file(d.join("model/model.safetensors")).unwrap() }, "score --model model --text a";
        "truncated weights", |d| model_with(d, "model.safetensors", &fs::read(golden("qwen2/model.safetensors")).unwrap()[..1000]),
            "score --model model --text a";
        "no tokenizer", |d| { model(d); fs::remove_file(d.join("model/tokenizer.json")).unwrap() }, "score --model model --text a";
        "an invalid tokenizer", |d| model_with(d, "tokenizer.json", "[]"), "score --model model --text a";
        "a truncated template", |d| chat_template(d, "{% if"), "generate --model model --chat in.json";
        "a template that imitates our output", |d| chat_template(d, "{{ raise_exception('no\nerror: \x1b[31mforged') }}"),
            "generate --model model --chat in.json";
        "a missing adapter", nothing, "merge --adapter no/such/adapter --out merged";
        "an adapter without its config", |d| write(d, "adapter/notes.txt", ""), "merge --adapter adapter --out merged";
        "an adapter of another model", adapter, "merge --adapter adapter --out merged";
        "an adapter of an earlier built-in model", |d| adapter_changed(d, "base_model_name_or_path", "lapwing-base".into()),
            "eval --adapter adapter";
        "an unsupported kind of adapter", |d| { model(d); adapter_changed(d, "use_dora", true.into()) },
            "merge --model model --adapter adapter --out merged";
        "an output directory that is not empty", |d| { model(d); adapter(d) }, "merge --model model --adapter adapter --out model";
        "a GGUF file without its ending", new_run, "merge run --format gguf --out merged";
        "a GGUF file in another format", new_run, "merge run --out merged.gguf";
        "a type of GGUF files for another format", new_run, "merge run --type q8_0 --out merged";
        "a directory without a tokenizer", nothing, "generate --tokenizer texts --prompt a";
        "a tokenizer with more tokens than the model", |d| { model(d); copy(&golden("../base"), &d.join("texts")) },
            "score --model model --tokenizer texts --text a";
    }
    "Runs" {
        "a missing run", nothing, "eval runs/lake";
        "a model in place of a run", model, "eval model";
        "an adapter in place of a run", adapter, "eval adapter";
        "another directory in place of a run", |d| write(d, "notes/a.txt", ""), "eval notes";
        "a directory of runs in place of a run", runs, "eval runs";
        "a run without an adapter", new_run, "eval run";
        "a run without an adapter, as an adapter", new_run, "merge --adapter run --out merged";
        "a run without an adapter, to merge", new_run, "merge run --out merged";
        "a missing run to resume", nothing, "train --resume runs/lake";
        "another directory to resume", |d| write(d, "notes/a.txt", ""), "train --resume notes";
        "an output directory that is not empty", |d| write(d, "notes/a.txt", ""), "train --out notes";
        "a run as an output directory", |d| { new_run(d); write(d, "run/metrics.jsonl", "") }, "export run --format csv --out run";
        "a file as an output directory", |d| write(d, "notes", ""), "train --out notes";
        "an output directory with a checkpoint", model, "pretrain --out model --steps 1";
        "a truncated config of a run", |d| write(d, "run/config.toml", "[train"), "train --resume run";
        "an invalid checkpoint", |d| {
            new_run(d);
            for (name, text) in [("metrics.jsonl", ""), ("episodes.jsonl", ""), ("checkpoints/step-000001.safetensors", "notes")] {
                write(d, &format!("run/{name}"), text);
            }
        }, "train --resume run";
        "a run to resume and a preset", new_run, "train snake --resume run";
        "a report of a missing run", nothing, "report runs/lake";
        "a report in place of another file", |d| { new_run(d); write(d, "notes.html", "mine") }, "report run --out notes.html";
        "a report of a bench in place of another file", |d| write(d, "bench.txt", "mine"), "bench --report bench.txt";
        "a missing directory of runs", nothing, "runs lakes";
        "a run and another adapter", new_run, "score run --adapter adapter --text a";
        "a missing run to watch", nothing, "watch runs/lake";
        "a missing run to export", nothing, "export runs/lake --format csv";
        "a value learner without weights", nothing, "eval frozen-lake-pqn";
        "no format", new_run, "export run";
        "an unknown format", new_run, "export run --format xml";
    }
    "Sweeps" {
        "a missing file", nothing, "sweep mine.toml";
        "a file that is not TOML", mine!("seeds"), "sweep mine.toml";
        "an unknown key", mine!("seed = 1"), "sweep mine.toml";
        "a config in place of a sweep file", mine!("[train]\nsteps = 3"), "sweep mine.toml";
        "a sweep file in place of a config", mine!("seeds = 2"), "train mine.toml";
        "no seeds", mine!("seeds = 0"), "sweep mine.toml";
        "a seed in a setting", mine!("[set]\ntrain.seed = 3"), "sweep mine.toml";
        "a seed twice", mine!("seeds = [1, 1]"), "sweep mine.toml";
        "an unknown base", mine!(r#"base = "lake""#), "sweep mine.toml";
        "a setting with a missing model", mine!("[settings.other]\nmodel.dir = \"no/such/model\""), "sweep mine.toml";
        "a setting with a wrong value", mine!("[settings.fast]\ntrain.lr = \"high\""), "sweep mine.toml";
        "a setting with a slash in its name", mine!(r#"[settings."a/b"]"#), "sweep mine.toml";
        "a grid value without brackets", mine!("[grid]\n\"train.lr\" = 0.1"), "sweep mine.toml";
        "an unknown metric", mine!("[compare]\nmetrics = [\"entrop\"]"), "sweep mine.toml";
        "a number in place of a list of scores", mine!("[compare]\nreach = 0.9"), "sweep mine.toml";
        "a probe of another game", mine!("[compare]\nprobes = [\"poison\"]"), "sweep mine.toml";
        "probes of a value learner", mine!("base = \"snake-pqn\"\n[compare]\nprobes = [\"poison\"]"), "sweep mine.toml";
        "a dot in the name of a setting", mine!("[settings.lambda-0.9]\ncredit.lambda = 0.9"), "sweep mine.toml";
        "no runs at a time", mine!(""), "sweep mine.toml --jobs 0";
        "a part that does not exist", mine!(""), "sweep mine.toml --part 5/4";
        "a part of the results", mine!(""), "sweep mine.toml --results --part 1/4";
        "results of a sweep that was not started", mine!(""), "sweep mine.toml --results";
    }
    "Texts and tokens" {
        "a missing file", nothing, "score --ids in.json";
        "a file that is not JSON", input!("1, 2"), "score --ids in.json";
        "an object in place of a list", input!("{}"), "score --ids in.json";
        "an invalid token id", input!("[1, -2]"), "score --ids in.json";
        "no token ids", input!("[]"), "score --ids in.json";
        "an unknown token", input!("[1, 100000]"), "score --ids in.json";
        "more tokens than the model supports", input!(format!("{:?}", [1; 3000])), "score --ids in.json";
        "an object without messages", input!(r#"{"message": []}"#), "generate --chat in.json";
        "an empty text", nothing, "score --text ''";
        "an empty standard input", nothing, "generate --chat -";
        "an empty conversation", input!("[]"), "generate --chat in.json";
        "a message without a role", input!(r#"[{"content": "a"}]"#), "generate --chat in.json";
        "a string in place of a conversation", input!(r#""a""#), "generate --chat in.json";
        "a directory in place of a file", |d| fs::create_dir(d.join("in.json")).unwrap(), "score --ids in.json";
    }
}

/// Returns the error message in one line, and the exit status.
fn message(row: &Row) -> String {
    let home = tempfile::tempdir().unwrap();
    (row.prepare)(home.path());
    let before = files(home.path());
    let ended = run(home.path(), row.line);
    assert_eq!(ended.out, "", "{}", row.title);
    let after = files(home.path());
    assert!(
        before.iter().all(|file| after.contains(file)),
        "{}: a file was changed",
        row.title
    );
    assert!(
        after.is_empty() || !before.is_empty(),
        "{}: a file was left",
        row.title
    );
    let from = ended.err.find("error: ");
    let from = from.unwrap_or_else(|| panic!("{}: no error in {}", row.title, ended.err));
    let text = &ended.err[from..];
    // The parser of arguments always adds the same lines.
    let text = text.split("\n\nUsage:").next().unwrap();
    let text = text.split("\n\nFor more information").next().unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(!text.contains('\u{1b}'), "{}", row.title);
    format!("{} ({})", code(&words.join(" ")), ended.code)
}

/// Returns a text as code in a table of Markdown.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let room = if longest > 0 { " " } else { "" };
    format!("{fence}{room}{}{room}{fence}", text.replace('|', "\\|"))
}

fn command(row: &Row) -> String {
    let line = row.line.replace(r"'\''", r"\'");
    code(&line.replace('\u{1b}', r"\u{1b}").replace('\n', r"\n"))
}

const HEAD: &str = "# Error messages

This page lists wrong input and the error message that `lapwing` prints for it, with the exit code in brackets: 2 if the
input is wrong (the command line, a config, a file or directory that you name), 1 if something failed at run time. The
test `train/cli/tests/errors.rs` writes this page from the program's output.
";

#[test]
fn the_page_of_error_messages_is_up_to_date() {
    let rows: Vec<&Row> = SECTIONS.iter().flat_map(|(_, rows)| *rows).collect();
    let messages: Vec<_> = rows.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Relaxed);
                    let Some(row) = rows.get(at) else { break };
                    messages[at].set(message(row)).unwrap();
                }
            });
        }
    });
    let mut messages = messages.iter().map(|message| message.get().unwrap());
    let mut page = HEAD.as_bytes().to_vec();
    for (name, rows) in SECTIONS {
        writeln!(
            page,
            "\n## {name}\n\n| wrong input | `lapwing` ... | error message |\n|---|---|---|"
        )
        .unwrap();
        for row in *rows {
            let message = messages.next().unwrap();
            writeln!(page, "| {} | {} | {message} |", row.title, command(row)).unwrap();
        }
    }
    let page = String::from_utf8(page).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    if std::env::var_os("LAPWING_WRITE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    for (kept, found) in kept.lines().zip(page.lines()) {
        assert_eq!(
            kept, found,
            "docs/errors.md is out of date; LAPWING_WRITE_DOCS=1 writes it"
        );
    }
    assert_eq!(kept.lines().count(), page.lines().count());
}
