//! Tests of configs and of the text of their errors.

use std::path::Path;

use insta::assert_snapshot;
use lapwing_env::DeclaredOptions;
use proptest::prelude::*;
use toml::Table;

use super::{Config, PRESETS, Resolved};
use crate::base::source::ModelSource;
use lapwing_play::ReplyForm;

fn load(request: &str, settings: &[&str]) -> Result<Config, super::ConfigError> {
    let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
    Config::load(request, &settings)
}

/// Returns the error of loading the default preset with these settings.
fn error(settings: &[&str]) -> String {
    load("frozen-lake", settings).unwrap_err().to_string()
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn every_preset_loads_and_goes_by_its_name() {
    for preset in PRESETS {
        let config = load(preset.name, &[]).unwrap();
        assert_eq!(config.name, preset.name);
    }
}

#[test]
fn every_preset_file_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../presets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let mut listed: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    files.sort();
    listed.sort();
    assert_eq!(files, listed);
}

#[test]
fn a_setting_wins_over_the_file_and_the_file_over_the_default() {
    let (_dir, path) = file("[train]\nlr = 0.5\nsteps = 3\n");
    let config = load(&path, &["train.steps=4"]).unwrap();
    assert_eq!(
        (config.train.lr, config.train.steps, config.train.group_size),
        (0.5, 4, 100)
    );
    assert_eq!(config.name, "mine");
}

#[test]
fn values_are_toml_and_bare_words_are_texts() {
    let settings = [
        "train.kl=k2",
        "train.sampling=\"top\"",
        "train.betas=[0.5, 0.75]",
        "train.lr=1",
        "lora.targets=all-linear",
    ];
    let config = load("frozen-lake", &settings).unwrap();
    assert_eq!(config.train.kl, lapwing_tensor::rl::Kl::K2);
    assert_eq!(config.train.sampling, lapwing_learn::config::Sampling::Top);
    assert_eq!(config.train.betas, [0.5, 0.75]);
    assert_eq!(config.train.lr, 1.0);
    assert_eq!(config.lora.targets, lapwing_model::Targets::default());
}

#[test]
fn the_games_options_are_resolved_by_the_game() {
    let config = load("frozen-lake", &["game.options.size=8"]).unwrap();
    assert_eq!(config.game.options["size"].as_integer(), Some(8));
    assert_eq!(config.game.options["frozen"].as_float(), Some(0.8));
    assert_eq!(config.game.options["slippery"].as_bool(), Some(false));
}

#[test]
fn unknown_names_are_named_with_the_nearest() {
    assert_snapshot!(load("frozen-lak", &[]).unwrap_err(), @"unknown preset `frozen-lak` (did you mean `frozen-lake`?); the presets and games are frozen-lake, frozen-lake-slippery, frozen-lake-large, snake, snake-imitation, frozen-lake-paper, snake-paper, frozen-lake-small, snake-small, rooms-small, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn, sokoban, rooms, 2048; lapwing games lists variants, and the name of a file ends in .toml");
    assert_snapshot!(load("pong", &[]).unwrap_err(), @"unknown preset `pong`; the presets and games are frozen-lake, frozen-lake-slippery, frozen-lake-large, snake, snake-imitation, frozen-lake-paper, snake-paper, frozen-lake-small, snake-small, rooms-small, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn, sokoban, rooms, 2048; lapwing games lists variants, and the name of a file ends in .toml");
    assert_snapshot!(error(&["train.group_sise=8"]), @"unknown key `train.group_sise` in --set (did you mean `train.group_size`?); the keys of [train] are aggregation, beta, betas, clip_high, clip_low, entropy_band, entropy_end, entropy_gain, episode_clip, group_size, groups, kl, learn, lr, lr_end, max_grad_norm, measure, minibatches, optimiser, passes, ratio, retry, sampling, seed, shared_luck, steps, tokens_per_batch, turn_clip, warmup, weight_decay, weights");
    assert_snapshot!(error(&["lr=8"]), @"unknown key `lr` in --set (did you mean `train.lr`?); at the top are checkpoint, credit, critic, dqn, eval, game, learner, lora, mix, model, name, policy, pqn, record, train, value, warmup");
    assert_snapshot!(error(&["trian.lr=8"]), @"unknown key `trian` in --set (did you mean `train`?); at the top are checkpoint, credit, critic, dqn, eval, game, learner, lora, mix, model, name, policy, pqn, record, train, value, warmup");
    assert_snapshot!(error(&["train.lr.x=8"]), @"key `train.lr` in --set: found { x = 8 }, wanted a number");
    assert_snapshot!(error(&["game.name=frozen-lakes"]), @"unknown game `frozen-lakes` (did you mean `frozen-lake`?); the games are frozen-lake, frozen-lake-firm, frozen-lake-slippery, frozen-lake-large, frozen-lake-big-slippery, frozen-lake-fixed, frozen-lake-author-firm, frozen-lake-author-slippery, snake, snake-standard, snake-poison-apple, snake-poison-apple-and-banana, snake-banana, snake-downhill, snake-greedy-enemy, snake-duel, snake-alone, snake-small, sokoban, sokoban-small, sokoban-textarena, sokoban-standard, rooms, rooms-goto-local, rooms-goto-maze, rooms-pickup-loc, rooms-pickup-dist, rooms-put-next-local, rooms-unlock-local, rooms-unlock-pickup, rooms-blocked-unlock-pickup, rooms-unlock-to-unlock, 2048, 2048-small, 2048-medium, 2048-standard");
    assert_snapshot!(error(&["game.options.sise=8"]), @"frozen-lake: unknown option `sise` (did you mean `size`?); the options are size, width, height, largest, frozen, slippery, map, step_limit, view, target, exact, red, swapped, symbols, wording");
}

#[test]
fn a_critic_has_ranges_and_says_where_it_is_idle() {
    let wanted = |setting: &str| {
        let told = error(&[setting]);
        let (key, _) = setting.split_once('=').unwrap();
        assert!(told.contains(key), "{told}");
        told.split_once("wanted ").unwrap().1.to_owned()
    };
    assert_eq!(wanted("critic.hidden=0"), "an integer from 1 to 65536");
    assert_eq!(wanted("critic.lr=-1"), "a number, 0 or more");
    assert_eq!(wanted("critic.passes=0"), "at least 1");
    assert_eq!(wanted("critic.clip=0"), "a number above 0");
    let notes = |settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        Config::resolve("frozen-lake", &settings).unwrap().notes
    };
    let idle = notes(&["critic.lr=0.1", "critic.clip=1", "credit.lambda=1"]);
    assert_eq!(idle.len(), 3, "{idle:?}");
    let used = [
        "credit.method=critic",
        "critic.lr=0.1",
        "critic.clip=1",
        "credit.gamma=1",
    ];
    assert_eq!(notes(&used), [""; 0]);
    assert_eq!(notes(&[&used[..], &["credit.lambda=1"]].concat()), [""; 0]);
    assert_eq!(notes(&[&used[..], &["credit.omega=2"]].concat()).len(), 1);
    let never = notes(&[
        "credit.method=critic",
        "critic.warmup=7",
        "train.steps=7",
        "eval.every=7",
    ]);
    assert_eq!(never.len(), 1, "{never:?}");
    assert!(never[0].contains("the policy stays as it is"), "{never:?}");
    let by_default = notes(&["credit.method=critic", "train.steps=3", "eval.every=3"]);
    assert_snapshot!(by_default.join("\n"), @"critic.warmup (the default) is 5, not below train.steps, which is 3: only the critic learns, and the policy stays as it is");
}

#[test]
fn wrong_values_are_named_with_what_is_wanted() {
    assert_snapshot!(error(&["train.lr"]), @"--set takes KEY=VALUE, such as train.lr=0.001, but was given `train.lr`");
    assert_snapshot!(error(&["=3"]), @"--set takes KEY=VALUE, such as train.lr=0.001, but was given `=3`");
    assert_snapshot!(error(&["train=3"]), @"key `train` in --set: found 3, wanted a key in it; they are aggregation, beta, betas, clip_high, clip_low, entropy_band, entropy_end, entropy_gain, episode_clip, group_size, groups, kl, learn, lr, lr_end, max_grad_norm, measure, minibatches, optimiser, passes, ratio, retry, sampling, seed, shared_luck, steps, tokens_per_batch, turn_clip, warmup, weight_decay, weights");
    assert_snapshot!(error(&["game.options=3"]), @"key `game.options` in --set: found 3, wanted a table");
    assert_snapshot!(error(&["train.lr=fast"]), @r#"key `train.lr` in --set: found "fast", wanted a number"#);
    assert_snapshot!(error(&["train.steps=-1"]), @"key `train.steps` in --set: found -1, wanted an integer, 0 or more");
    assert_snapshot!(error(&["train.steps=1.5"]), @"key `train.steps` in --set: found 1.5, wanted an integer, 0 or more");
    assert_snapshot!(error(&["train.kl=k4"]), @r#"key `train.kl` in --set: found "k4", wanted one of `k2`, `k3`"#);
    assert_snapshot!(error(&["lora.rslora=1"]), @"key `lora.rslora` in --set: found 1, wanted true or false");
    assert_snapshot!(error(&["train.betas=[0.9]"]), @"key `train.betas` in --set: found [0.9], wanted an array of length 2");
    assert_snapshot!(error(&["lora.targets=7"]), @r#"key `lora.targets` in --set: found 7, wanted "all-linear", a list of names, or a pattern"#);
    assert_snapshot!(error(&["policy.chat_template_kwargs=7"]), @"key `policy.chat_template_kwargs` in --set: found 7, wanted a table");
    assert_snapshot!(error(&["game.options.size=0"]), @"frozen-lake: option `size` is 0, but must be an integer from 2 to 64");
}

#[test]
fn values_out_of_range_are_named_with_the_range() {
    assert_snapshot!(error(&["lora.rank=0"]), @"key `lora.rank`: found 0 (--set), wanted an integer from 1 to 65536");
    assert_snapshot!(error(&["policy.temperature=0"]), @"key `policy.temperature`: found 0 (--set), wanted a number from 0.001 to 1000");
    assert_snapshot!(error(&["train.group_size=1"]), @"key `train.group_size`: found 1 (--set), wanted an integer from 2 to 16777216");
    assert_snapshot!(error(&["train.sampling=aaw", "train.group_size=25", "train.learn=26"]), @"key `train.learn`: found 26 (--set), wanted at most train.group_size, which is 25 (--set); for example: --set train.learn=25");
    assert_snapshot!(error(&["train.clip_low=1.5"]), @"key `train.clip_low`: found 1.5 (--set), wanted a number from 0 to 1");
    assert_snapshot!(error(&["train.lr=inf"]), @"key `train.lr`: found inf (--set), wanted a number, 0 or more");
    assert_snapshot!(error(&["train.beta=nan"]), @"key `train.beta`: found NaN (--set), wanted a number, 0 or more");
    assert_snapshot!(error(&["train.betas=[0.9, 1.0]"]), @"key `train.betas`: found 1 (--set), wanted two numbers from 0 to just below 1");
    assert_snapshot!(error(&["lora.targets=[\"q\"]"]), @r#"key `lora.targets`: target modules "q": there is no such layer; there are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head"#);
    assert_snapshot!(error(&["lora.targets=[]"]), @r#"key `lora.targets`: target modules "[]": no layer is named"#);
    assert_snapshot!(error(&["lora.targets=(q"]), @r#"key `lora.targets`: target modules "(q": not a regular expression: Parsing error at position 8: Opening parenthesis without closing parenthesis"#);
    assert_snapshot!(error(&["train.tokens_per_batch=0"]), @"key `train.tokens_per_batch`: found 0 (--set), wanted an integer from 1 to 16777216");
}

/// As null they would be ignored silently, and the game played with its defaults.
#[test]
fn numbers_that_are_none_are_no_options() {
    assert_snapshot!(error(&["game.options.size=inf"]), @"key `game.options.size`: found inf (--set), wanted a finite number");
    assert_snapshot!(error(&["game.options.width=nan"]), @"key `game.options.width`: found nan (--set), wanted a finite number");
    assert_snapshot!(error(&["game.options.map=nan"]), @"key `game.options.map`: found nan (--set), wanted a finite number");
    assert_snapshot!(error(&["game.options.map=[\"SF\", -inf]"]), @"key `game.options.map`: found -inf (--set), wanted a finite number");
    assert_snapshot!(error(&["game.options.size=NaN"]), @r#"frozen-lake: option `size` is "NaN", but must be an integer from 2 to 64"#);
    assert_snapshot!(error(&["game.options={size = inf}"]), @"key `game.options.size`: found inf (--set), wanted a finite number");
    let (_home, path) = file("[game.options]\nsize = nan\n");
    let error = load(&path, &[])
        .unwrap_err()
        .to_string()
        .replace(&path, "FILE");
    assert_snapshot!(error, @"key `game.options.size`: found nan (FILE), wanted a finite number");
}

#[test]
fn the_conversation_is_not_free_to_be_set() {
    for name in [
        "messages",
        "add_generation_prompt",
        "tools",
        "documents",
        "eos_token",
        "raise_exception",
    ] {
        let told = error(&[&format!("policy.chat_template_kwargs.{name}=1")]);
        let wanted = format!(
            "key `policy.chat_template_kwargs.{name}`: found 1 (--set), wanted it left out: "
        );
        assert!(told.starts_with(&wanted), "{told}");
    }
    assert!(
        load(
            "frozen-lake",
            &["policy.chat_template_kwargs.enable_thinking=false"]
        )
        .is_ok()
    );
}

#[test]
fn a_model_is_a_directory_or_a_repository() {
    let source = |settings: &[&str]| {
        load("frozen-lake", settings)
            .unwrap()
            .model
            .source()
            .unwrap()
    };
    assert_eq!(source(&[]), ModelSource::BuiltIn);
    assert_eq!(source(&["model.dir=a/b"]), ModelSource::Local("a/b".into()));
    let ModelSource::Repository(repository) = source(&["model.repo=a/b@v1"]) else {
        panic!("a repository");
    };
    assert_eq!((repository.id(), repository.revision()), ("a/b", "v1"));
    assert_snapshot!(error(&["model.repo=qwen"]), @r#"key `model.repo` in --set: found "qwen", wanted OWNER/NAME, OWNER/NAME@REVISION or OWNER/NAME:QUANT"#);
    assert_snapshot!(error(&["model.quantise=q4", "train.weights=all"]), @r#"key `model.quantise`: found "q4" (--set), wanted "none" beside train.weights, which is "all" (--set); for example: --set model.quantise=none"#);
    assert_snapshot!(error(&["model.repo=a/b", "model.dir=c"]), @r#"key `model.repo`: found "a/b" (--set), wanted none beside model.dir, which is "c" (--set); for example: --set model.repo="#);
    let small = |text: &str| {
        let text = format!("base = \"frozen-lake-small\"\n[model]\n{text}");
        files(&[("mine.toml", &text)], "mine.toml")
            .unwrap()
            .config
            .model
            .source()
            .unwrap()
    };
    let repository = small("repo = \"a/b\"");
    assert!(
        matches!(repository, ModelSource::Repository(_)),
        "{repository:?}"
    );
    assert_eq!(small("dir = \"c\""), ModelSource::Local("c".into()));
}

/// Writes these files to a directory and loads one of them.
fn files(files: &[(&str, &str)], request: &str) -> Result<Resolved, String> {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let home = dir.path().to_str().unwrap();
    let resolved = Config::resolve(&format!("{home}/{request}"), &[]);
    let resolved = resolved.map(|mut resolved| {
        for note in &mut resolved.notes {
            *note = note.replace(&format!("{home}/"), "");
        }
        resolved
    });
    resolved.map_err(|e| e.to_string().replace(&format!("{home}/"), ""))
}

#[test]
fn files_at_fault_are_named() {
    let told = |text: &str| files(&[("mine.toml", text)], "mine.toml").unwrap_err();
    assert_snapshot!(told("[train]\nlr = 0.5\nlr = 0.6\n"), @"mine.toml is not valid TOML: line 3, `lr = 0.6`: duplicate key");
    assert_snapshot!(told("[train\n"), @"mine.toml is not valid TOML: line 1, `[train`: unclosed table, expected `]`");
    let missing = load("no/such/file.toml", &[]).unwrap_err();
    assert_snapshot!(missing, @"no/such/file.toml: cannot be read: No such file or directory (os error 2)");
    assert_snapshot!(told("[train]\nlearning_rate = 0.5\n"), @"unknown key `train.learning_rate` in mine.toml; the keys of [train] are aggregation, beta, betas, clip_high, clip_low, entropy_band, entropy_end, entropy_gain, episode_clip, group_size, groups, kl, learn, lr, lr_end, max_grad_norm, measure, minibatches, optimiser, passes, ratio, retry, sampling, seed, shared_luck, steps, tokens_per_batch, turn_clip, warmup, weight_decay, weights");
}

/// Special and oversized files are refused without waiting.
#[cfg(unix)]
#[test]
fn endless_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let told = || {
        let error = load(path.to_str().unwrap(), &[]).unwrap_err().to_string();
        error.replace(dir.path().to_str().unwrap(), "DIR")
    };
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert_snapshot!(told(), @"DIR/mine.toml: cannot be read: not a file");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "#".repeat(1 << 20) + "#").unwrap();
    assert_snapshot!(told(), @"DIR/mine.toml: cannot be read: larger than 1024 KiB");
}

#[test]
fn a_file_states_differences_from_its_base() {
    let mine = ("mine.toml", "base = \"frozen-lake\"\n[train]\nlr = 0.5\n");
    let resolved = files(&[mine], "mine.toml").unwrap();
    let preset = load("frozen-lake", &[]).unwrap();
    let wanted = Config {
        name: "mine".to_owned(),
        train: super::TrainConfig {
            lr: 0.5,
            ..preset.train
        },
        ..preset
    };
    assert_eq!(resolved.config, wanted);
    assert_eq!(resolved.notes, [""; 0]);
    // A base is relative to the file that names it, in any working directory.
    let lake = (
        "base/lake.toml",
        "name = \"theirs\"\nbase = \"../mine.toml\"\n[train]\nsteps = 3\n",
    );
    let mut top = "base = \"base/lake.toml\"\n[game]\nname = \"snake\"\n".to_owned();
    let resolved = files(&[mine, lake, ("top.toml", &top)], "top.toml").unwrap();
    let config = &resolved.config;
    assert_eq!((config.train.lr, config.train.steps), (0.5, 3));
    assert_eq!(config.name, "top");
    assert_eq!(config.game.name, "snake".into());
    // Another game drops the options of the previous one.
    assert_eq!(config.game.options["step_limit"].as_integer(), Some(20));
    assert!(!config.game.options.contains_key("slippery"));
    top += "options.slippery = true\n";
    assert_snapshot!(files(&[mine, lake, ("top.toml", &top)], "top.toml").unwrap_err(), @"snake: unknown option `slippery`; the options are size, width, height, agents, enemies, apples, bananas, fires, apple_reward, banana_reward, fire_reward, death_reward, step_reward, step_limit, view, opponent, hill, swapped, symbols, wording");
}

#[test]
fn a_base_that_is_none_is_named() {
    let told = |base: &str| {
        let text = format!("base = {base}\n");
        files(&[("mine.toml", &text)], "mine.toml").unwrap_err()
    };
    assert_snapshot!(told("3"), @"key `base` in mine.toml: found 3, wanted the name of a preset, or of a file that ends in .toml");
    assert_snapshot!(told("\"frozen-lak\""), @r#"key `base` in mine.toml: found "frozen-lak", wanted a preset (frozen-lake, frozen-lake-slippery, frozen-lake-large, snake, snake-imitation, frozen-lake-paper, snake-paper, frozen-lake-small, snake-small, rooms-small, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn), or a file that ends in .toml (did you mean `frozen-lake`?)"#);
    assert_snapshot!(told("\"other.toml\""), @"other.toml: cannot be read: No such file or directory (os error 2)");
    assert_snapshot!(told("\"mine.toml\""), @r#"key `base` in mine.toml: found "mine.toml", wanted a file that is not based on this one"#);
    let circle = [
        ("a.toml", "base = \"b.toml\""),
        ("b.toml", "base = \"a.toml\""),
    ];
    assert_snapshot!(files(&circle, "a.toml").unwrap_err(), @r#"key `base` in b.toml: found "a.toml", wanted a file that is not based on this one"#);
    let names: Vec<String> = (0..10).map(|i| format!("{i}.toml")).collect();
    let bases: Vec<String> = (0..10)
        .map(|i| format!("base = \"{}.toml\"", i + 1))
        .collect();
    let chain: Vec<(&str, &str)> = names
        .iter()
        .map(|n| &**n)
        .zip(bases.iter().map(|b| &**b))
        .collect();
    assert_snapshot!(files(&chain, "0.toml").unwrap_err(), @r#"key `base` in 7.toml: found "8.toml", wanted an end: 8 files are based on each other already"#);
}

#[test]
fn what_a_file_starts_from_and_what_has_no_effect_is_said() {
    let notes = |text: &str| {
        files(&[("mine.toml", text)], "mine.toml")
            .unwrap()
            .notes
            .join("\n")
    };
    assert_snapshot!(notes("[train]\nlr = 0.5\n"), @r#"mine.toml starts from the general defaults; base = "frozen-lake" would start from a preset"#);
    assert_snapshot!(notes("[game]\nname = \"snake\"\n"), @r#"mine.toml starts from the general defaults; base = "snake" would start from a preset"#);
    let idle = "base = \"snake\"
[model]
adapter = \"x\"
[lora]
rank = 4
[train]
steps = 10
sampling = \"all\"
learn = 7
beta = 0
kl = \"k2\"
minibatches = 1
clip_low = 0.1
warmup = 20
[eval]
every = 11
[checkpoint]
every = 12
[record]
episodes = 3
all_episodes = true
";
    assert_snapshot!(notes(idle), @r#"
    train.learn (mine.toml) has no effect with train.sampling = "all"
    train.kl (mine.toml) has no effect with train.beta = 0
    train.clip_low (mine.toml) has no effect with train.passes = 1 and train.minibatches = 1
    train.warmup (mine.toml) is more than train.steps, which is 10: train.lr is never reached
    train.steps (mine.toml) is 10: in all of these steps all groups play games of [[mix]], so snake itself is only evaluated
    eval.every (mine.toml) has no effect: it is more than train.steps, which is 10
    checkpoint.every (mine.toml) has no effect: it is more than train.steps, which is 10
    record.episodes (mine.toml) has no effect with record.all_episodes = true
    lora.rank (mine.toml) has no effect with model.adapter, whose adapter has its own
    "#);
    let whole = "base = \"snake\"\n[lora]\nrank = 4\n[train]\nweights = \"all\"\n";
    assert_snapshot!(notes(whole), @r#"
    train.lr = 0.002 (the preset snake) was chosen for an adapter; all weights want a rate of their own, in large models about a tenth
    lora.rank (mine.toml) has no effect with train.weights = "all", which trains no adapter
    "#);
    let settings = ["train.weights=all", "train.lr=1e-4"].map(str::to_owned);
    let resolved = Config::resolve("snake", &settings).unwrap();
    assert_eq!(resolved.notes, [""; 0]);
    // A rate chosen for the other optimiser, and moments that Muon does not have.
    let settings = ["train.optimiser=muon", "train.betas=[0.5, 0.5]"].map(str::to_owned);
    let resolved = Config::resolve("frozen-lake-paper", &settings).unwrap();
    assert_snapshot!(resolved.notes.join("\n"), @r#"
    train.lr = 0.00001 (the default) was chosen for AdamW; Muon wants 3e-3 for the built-in model, falling to 0 (train.lr_end = 0)
    train.betas (--set) has no effect with train.optimiser = "muon"
    "#);
    let resolved = Config::resolve("frozen-lake", &["train.optimiser=adamw".to_owned()]).unwrap();
    assert_snapshot!(resolved.notes.join("\n"), @"train.lr = 0.003 (the preset frozen-lake) was chosen for Muon; AdamW wants 5e-4 for the built-in model, which need not fall (train.lr_end = 1)");
    let settings = ["train.optimiser=adamw", "train.lr=0.01"].map(str::to_owned);
    let resolved = Config::resolve("frozen-lake", &settings).unwrap();
    assert_eq!(resolved.notes, [""; 0]);
    // The user chose neither the values of a preset nor the defaults.
    let settings = ["train.sampling=all", "train.steps=1"].map(str::to_owned);
    let resolved = Config::resolve("frozen-lake", &settings).unwrap();
    assert_eq!(resolved.notes, [""; 0]);
    // Nor those in a file that lapwing wrote.
    let written = files(
        &[("config.toml", &resolved.config.to_toml())],
        "config.toml",
    )
    .unwrap();
    assert_eq!(written.notes, [""; 0]);
    assert_eq!(written.config, resolved.config);
}

/// Such a note would point to a preset that is for another model or game.
#[test]
fn an_own_model_or_game_needs_no_preset() {
    for text in [
        "model.repo = \"owner/name\"",
        "model.dir = \"model\"",
        "game.name = \"exec:game\"\ngame.options.actions = [\"left\"]",
        "game.name = \"sokoban\"",
    ] {
        let resolved = files(&[("mine.toml", text)], "mine.toml").unwrap();
        assert_eq!(resolved.notes, [""; 0], "{text}");
    }
}

#[test]
fn another_game_than_the_preset_has_is_noted() {
    let notes = |request: &str, game: &str| {
        let settings = [format!("game.name={game}")];
        Config::resolve(request, &settings)
            .unwrap()
            .notes
            .join("\n")
    };
    assert_snapshot!(notes("frozen-lake", "snake"), @"snake is played with the other values of the preset frozen-lake; `lapwing train snake` starts from the preset for it");
    assert_snapshot!(notes("snake-duel", "frozen-lake"), @"frozen-lake is played with the other values of the preset snake; `lapwing train frozen-lake` starts from the preset for it");
    for (request, game) in [
        ("frozen-lake", "sokoban"),
        ("frozen-lake", "frozen-lake"),
        ("rooms", "snake"),
    ] {
        assert_eq!(notes(request, game), "");
    }
}

#[test]
fn the_default_of_learn_follows_the_size_of_a_group() {
    let small = "train.group_size = 4\n";
    let resolved = files(&[("mine.toml", small)], "mine.toml").unwrap();
    assert_eq!(resolved.config.train.learn, 4);
    assert_snapshot!(resolved.notes.join("\n"), @r#"
    train.learn is 4 instead of the default 25, because train.group_size is 4 (mine.toml): all episodes are trained on, whatever train.sampling is
    mine.toml starts from the general defaults; base = "frozen-lake" would start from a preset
    "#);
    let text = resolved.to_toml();
    assert!(
        text.contains("\nlearn = 4  # follows train.group_size (default 25)\n"),
        "{text}"
    );
    let again = files(&[("config.toml", &text)], "config.toml").unwrap();
    assert_eq!((again.config, again.notes), (resolved.config, vec![]));
    // A value that somebody wrote stays.
    for text in [
        format!("{small}train.learn = 25"),
        format!("base = \"snake-paper\"\n{small}"),
    ] {
        let error = files(&[("mine.toml", &text)], "mine.toml").unwrap_err();
        assert!(error.contains("key `train.learn`: found "), "{error}");
    }
    let all = format!("{small}train.sampling = \"all\"");
    let all = files(&[("mine.toml", &all)], "mine.toml").unwrap();
    assert_eq!(all.config.train.learn, 25);
}

#[test]
fn what_the_output_leaves_out_is_listed() {
    let last = |request: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let text = Config::resolve(request, &settings).unwrap().to_toml();
        text.lines().last().unwrap().to_owned()
    };
    assert_snapshot!(last("frozen-lake", &[]), @"# left out, as they have no effect here or are not set: [value], [dqn], [pqn], [critic], game.options.width, game.options.height, game.options.largest, game.options.map, game.options.target, game.options.exact, game.options.red, game.options.swapped, game.options.symbols, game.options.wording");
    assert_snapshot!(last("frozen-lake", &["game.options.map=[\"SF\", \"FG\"]"]), @"# left out, as they have no effect here or are not set: [value], [dqn], [pqn], [critic], game.options.size, game.options.width, game.options.height, game.options.largest, game.options.frozen, game.options.target, game.options.exact, game.options.red, game.options.swapped, game.options.symbols, game.options.wording");
    assert_snapshot!(last("snake-dqn", &[]), @"# left out, as they have no effect here or are not set: [model], [lora], [mix], [policy], [warmup], [pqn], [credit], [critic], game.options.width, game.options.height, game.options.opponent, game.options.hill, game.options.swapped, game.options.symbols, game.options.wording");
}

#[test]
fn every_value_says_where_it_comes_from() {
    let settings = [
        "train.steps=3",
        "--seed train.seed=5",
        "policy.chat_template_kwargs.a=1",
        "model.dir=a\nb\"\u{1b}",
    ];
    let resolved = Config::resolve("snake", &settings.map(str::to_owned)).unwrap();
    let text = resolved.to_toml();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), resolved.config);
    for line in [
        "name = \"snake\"  # the name of the config",
        "lr = 0.002  # the preset snake (default 0.00001)",
        "steps = 3  # --set (default 700)",
        "seed = 5  # --seed (default 1)",
        "a = 1  # --set",
        "size = 6  # the preset snake (default 10)",
        "agents = 1  # default",
        "omega = 1.0  # default, no effect",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

/// A saved output makes the same run, without notes on values that the user did not choose.
#[test]
fn sections_without_effect_are_left_out() {
    let sections = |request: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        let text = Config::resolve(request, &settings).unwrap().to_toml();
        let saved = files(&[("mine.toml", &text)], "mine.toml").unwrap();
        assert_eq!(saved.notes, [""; 0], "{text}");
        let headings = text.lines().filter_map(|line| line.strip_prefix('['));
        let headings: Vec<&str> = headings.map(|line| line.trim_end_matches(']')).collect();
        headings.join(" ")
    };
    let shared = "eval checkpoint record";
    let learner = "model lora game game.options policy train warmup credit";
    assert_eq!(sections("frozen-lake", &[]), format!("{learner} {shared}"));
    let critic = sections("frozen-lake", &["credit.method=critic"]);
    assert_eq!(critic, format!("{learner} critic {shared}"));
    let whole = sections("frozen-lake", &["train.weights=all", "train.lr=1e-4"]);
    assert_eq!(whole, format!("{} {shared}", learner.replace("lora ", "")));
    let value = "game game.options train value";
    assert_eq!(sections("snake-dqn", &[]), format!("{value} dqn {shared}"));
    assert_eq!(sections("snake-pqn", &[]), format!("{value} pqn {shared}"));
}

/// The part of `docs/configuration.md` that `LAPWING_WRITE_DOCS=1 cargo test -p lapwing-train reference` writes.
#[test]
fn the_reference_of_all_keys_is_documented() {
    const BEGIN: &str = "<!-- keys: begin -->\n";
    const END: &str = "<!-- keys: end -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect(BEGIN);
    let (_, tail) = rest.split_once(END).expect(END);
    let (mut text, mut section) = (String::new(), None);
    for (of, key) in super::keys() {
        if section != Some(of) {
            let meaning = Config::LIST.iter().find(|option| option.name == of);
            let meaning = meaning.map_or("", |option| option.meaning);
            text += &match of {
                "" => "### Outside of sections\n\n".to_owned(),
                "mix" => format!("\n### `[[mix]]`\n\n{meaning}\n\n"),
                _ => format!("\n### `[{of}]`\n\n{meaning}\n\n"),
            };
            text += "| key | default | values | meaning |\n|---|---|---|---|\n";
            section = Some(of);
        }
        let default = match (key.default)() {
            serde_json::Value::Null => String::new(),
            value => format!("`{value}`"),
        };
        let (name, values, meaning) = (key.name, key.wanted(), key.meaning);
        assert!(
            !values.contains("expected") && !values.is_empty(),
            "{name}: {values}"
        );
        text += &format!("| `{name}` | {default} | {values} | {meaning} |\n");
    }
    let wanted = format!("{head}{BEGIN}{text}{END}{tail}");
    if std::env::var_os("LAPWING_WRITE_DOCS").is_some() {
        return std::fs::write(path, wanted).unwrap();
    }
    assert_eq!(
        page, wanted,
        "docs/configuration.md; LAPWING_WRITE_DOCS=1 writes the keys"
    );
}

#[test]
fn keys_are_explained() {
    let keys = |name: &str| -> String {
        let game = lapwing_env::find("snake").unwrap().options;
        let keys = super::explain(name, game).map(|keys| {
            let keys: Vec<String> = keys.into_iter().map(|(key, _)| key).collect();
            keys.join(" ")
        });
        keys.unwrap_or_else(|error| error.to_string())
    };
    assert_eq!(keys("train.lr"), "train.lr");
    assert_eq!(keys("lr"), "train.lr warmup.lr critic.lr");
    assert_eq!(
        keys("lora"),
        "lora.rank lora.alpha lora.targets lora.rslora"
    );
    assert_eq!(keys("base"), "base");
    assert!(keys("game").contains("game.name game.probe game.options game.options.size"));
    assert_snapshot!(keys("train.lrr"), @"unknown key or section `train.lrr` (did you mean `train.lr`?)");
    assert!(keys("temperatur").contains("(did you mean `eval.temperature`?)"));
    // The adapter's keys are declared apart from its struct.
    let lora: Table = Table::try_from(Config::default().lora).unwrap();
    for (_, key) in super::keys()
        .into_iter()
        .filter(|(section, _)| *section == "lora")
    {
        let default = toml::Value::try_from((key.default)()).unwrap();
        assert_eq!(lora[key.name], default, "{}", key.name);
    }
    assert_eq!(lora.len(), 4);
}

#[test]
fn a_run_is_named_by_what_it_plays() {
    let name = |request: &str, settings: &[&str]| load(request, settings).unwrap().name;
    assert_eq!(name("frozen-lake", &["game.name=snake"]), "snake");
    assert_eq!(
        name("frozen-lake", &["game.name=frozen-lake"]),
        "frozen-lake"
    );
    assert_eq!(
        name("frozen-lake-large", &["game.options.size=7"]),
        "frozen-lake-large"
    );
    assert_eq!(
        name("frozen-lake", &["game.name=snake", "name=mine"]),
        "mine"
    );
}

#[test]
fn a_run_is_asked_for_by_its_directory() {
    let config = load("snake", &["train.steps=3", "name=mine"]).unwrap();
    let resolved = files(&[("run/config.toml", &config.to_toml())], "run").unwrap();
    assert_eq!((&resolved.config, resolved.notes.len()), (&config, 0));
    assert!(resolved.run.unwrap().ends_with("run"));
    let told = |names: &[&str]| {
        let empty: Vec<(&str, &str)> = names.iter().map(|name| (*name, "")).collect();
        files(&empty, "place").unwrap_err()
    };
    assert_snapshot!(told(&["place/config.json"]), @"place is not a run: it is a model, which is given with --model");
    assert_snapshot!(told(&["place/adapter_config.json"]), @"place is not a run: it is an adapter, which is given with --adapter");
    assert_snapshot!(told(&["place/notes.txt"]), @"place is not a run: wanted the directory of a run, such as runs/frozen-lake-1, with config.toml in it");
    assert_snapshot!(told(&["place"]), @"place is not a config: wanted a file that ends in .toml, or the directory of a run");
    assert_snapshot!(told(&[]), @"place does not exist: wanted a preset, a file that ends in .toml, or the directory of a run");
}

#[test]
fn a_value_that_lost_its_sign_is_found() {
    assert_snapshot!(load("1", &["train.lr"]).unwrap_err(), @"--set takes KEY=VALUE, such as train.lr=0.001, but was given `train.lr` (did you mean `train.lr=1`?)");
    assert_snapshot!(load("frozen-lake", &["train.lr"]).unwrap_err(), @"--set takes KEY=VALUE, such as train.lr=0.001, but was given `train.lr`");
}

#[test]
fn paths_hold_from_everywhere() {
    let config = load("frozen-lake", &["model.dir=models/a"])
        .unwrap()
        .absolute();
    let here = std::env::current_dir().unwrap();
    assert_eq!(config.model.dir, Some(here.join("models/a")));
    assert_eq!(config.model.adapter, None);
    assert_eq!(config.clone().absolute(), config);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The config in the run directory makes the same run again.
    #[test]
    fn a_resolved_config_resolves_to_itself(
        preset in 0..PRESETS.len(),
        steps in 0usize..10_000,
        lr in 0.0..1.0f64,
        temperature in 1e-3..10.0f64,
        seed in 0..=i64::MAX as u64,
        size in 2usize..9,
        slippery: bool,
        kl in prop::sample::select(vec!["k2", "k3"]),
        dir in "[ -~]{0,12}",
    ) {
        let given = load(PRESETS[preset].name, &[]).unwrap().game.options;
        // A map has its own size.
        let sized = match given.contains_key("map") {
            true => format!("game.options.step_limit={size}"),
            false => format!("game.options.size={size}"),
        };
        let mut config = load(PRESETS[preset].name, &[
            &format!("train.steps={steps}"),
            &format!("train.lr={lr:e}"),
            &format!("policy.temperature={temperature}"),
            &format!("train.seed={seed}"),
            &format!("train.kl={kl}"),
            "game.name=frozen-lake",
            &sized,
            &format!("game.options.slippery={slippery}"),
        ]).unwrap();
        // Not through `--set`, where a bare word that reads as a number would be one.
        config.model.dir = (!dir.is_empty()).then(|| dir.into());
        let (_dir, path) = file(&config.to_toml());
        prop_assert_eq!(load(&path, &[]).unwrap(), config);
    }
}

/// A variant has its own game, and everything else from the preset of its game.
#[test]
fn a_variant_is_played_as_the_preset_of_its_game_is() {
    for kind in lapwing_env::GAMES {
        for variant in kind.variants {
            let found = load(variant.name, &[]).unwrap();
            let scenario = (kind.configure)(&(variant.options)()).unwrap();
            assert_eq!(found.name, variant.name);
            assert_eq!(
                found.game,
                super::GameConfig::of(&*scenario),
                "{}",
                variant.name
            );
            // A preset with the variant's own name may have other numbers.
            if PRESETS.iter().any(|preset| preset.name == variant.name) {
                continue;
            }
            let preset = load(kind.name, &[]).unwrap();
            let expected = Config {
                name: found.name.clone(),
                game: found.game.clone(),
                ..preset
            };
            assert_eq!(found, expected, "{}", variant.name);
        }
    }
    let told = Config::resolve("snake-poison-apple", &[])
        .unwrap()
        .to_toml();
    assert!(told.contains("apple_reward = -1.0  # the variant snake-poison-apple (default 1.0)\n"));
    assert!(
        told.contains("reply = \"word\"  # the preset snake (default \"tags\")\n"),
        "{told}"
    );
}

/// Each is both a game and a preset.
#[test]
fn presets_and_variants_of_one_name_are_one_game() {
    let mut both = 0;
    for kind in lapwing_env::GAMES {
        for variant in kind.variants {
            if PRESETS.iter().all(|preset| preset.name != variant.name) {
                continue;
            }
            let scenario = (kind.configure)(&(variant.options)()).unwrap();
            let preset = load(variant.name, &[]).unwrap();
            assert_eq!(
                preset.game,
                super::GameConfig::of(&*scenario),
                "{}",
                variant.name
            );
            both += 1;
        }
    }
    assert_eq!(
        both, 3,
        "frozen-lake-slippery, frozen-lake-large and snake-small"
    );
}

#[test]
fn games_are_mixed_in_by_settings_and_by_files() {
    let set = load("frozen-lake", &["mix=[{probe=\"swapped\", share=0.2}]"]).unwrap();
    let swapped = super::MixConfig {
        probe: Some("swapped".to_owned()),
        share: 0.2,
        ..super::MixConfig::default()
    };
    assert_eq!(set.mix, std::slice::from_ref(&swapped));
    assert_eq!(swapped.title(&set.game), "frozen-lake (swapped)");
    let scenario = swapped.scenario(&set.game).unwrap();
    assert_eq!(scenario.options()["swapped"], true);
    assert_eq!(
        scenario.options()["step_limit"],
        20,
        "the run's own options"
    );

    let text = "base = \"frozen-lake\"\n[[mix]]\nname = \"snake\"\nuntil = 3\noptions = { size = 6 }\n[[mix]]\nfrom = 3\nshare = 1.0\n";
    let (_dir, path) = file(text);
    let resolved = Config::resolve(&path, &[]).unwrap();
    let mix = &resolved.config.mix;
    assert_eq!((mix[0].steps(), mix[1].steps()), (0..3, 3..usize::MAX));
    assert_eq!(
        mix[0].scenario(&resolved.config.game).unwrap().options()["size"],
        6
    );
    // The printed config names the origins, and loads as the same config.
    let told = resolved.to_toml().replace(&path, "mine.toml");
    let from = told.find("[[mix]]").unwrap();
    let to = told.find("[policy]").unwrap();
    assert_snapshot!(told[from..to].trim(), @r#"
    [[mix]]  # mine.toml
    name = "snake"
    probe = ""
    share = 0.1
    from = 0
    until = 3

    [mix.options]
    size = 6

    [[mix]]  # mine.toml
    name = ""
    probe = ""
    share = 1.0
    from = 3
    until = 0
    "#);
    let (_dir, again) = file(&told);
    let again = load(&again, &[]).unwrap();
    assert_eq!(again, resolved.config);
}

#[test]
fn what_cannot_be_mixed_in_is_named() {
    assert_snapshot!(error(&["mix=[{probe=\"swaped\"}]"]), @r#"key `mix.probe`: found "swaped" (--set), wanted a probe of frozen-lake: holes, swapped, red, exact, symbols, wording"#);
    assert_snapshot!(error(&["mix=[{name=\"pong\"}]"]), @"unknown game `pong`; the games are frozen-lake, frozen-lake-firm, frozen-lake-slippery, frozen-lake-large, frozen-lake-big-slippery, frozen-lake-fixed, frozen-lake-author-firm, frozen-lake-author-slippery, snake, snake-standard, snake-poison-apple, snake-poison-apple-and-banana, snake-banana, snake-downhill, snake-greedy-enemy, snake-duel, snake-alone, snake-small, sokoban, sokoban-small, sokoban-textarena, sokoban-standard, rooms, rooms-goto-local, rooms-goto-maze, rooms-pickup-loc, rooms-pickup-dist, rooms-put-next-local, rooms-unlock-local, rooms-unlock-pickup, rooms-blocked-unlock-pickup, rooms-unlock-to-unlock, 2048, 2048-small, 2048-medium, 2048-standard");
    assert_snapshot!(error(&["mix=[{name=\"snake\", options={sise=3}}]"]), @"snake: unknown option `sise` (did you mean `size`?); the options are size, width, height, agents, enemies, apples, bananas, fires, apple_reward, banana_reward, fire_reward, death_reward, step_reward, step_limit, view, opponent, hill, swapped, symbols, wording");
    assert_snapshot!(error(&["mix=[{share=0.6}, {share=0.6}]"]), @"key `mix.share`: found 0.6 (--set), wanted less: in step 0 the shares of all games that are mixed in add up to 1.2, and 1 is the whole");
    assert_snapshot!(error(&["mix=[{share=2}]"]), @"key `mix.share`: found 2 (--set), wanted a number from 0 to 1");
    assert_snapshot!(error(&["mix=[{from=3, until=2}]"]), @"key `mix.until`: found 2 (--set), wanted 0, or above mix.from, which is 3");
    assert_snapshot!(error(&["mix=[{shares=0.6}]"]), @"key `mix` in --set: found [{ shares = 0.6 }], wanted one of `name`, `probe`, `share`, `from`, `until`, `options`");
    assert_snapshot!(error(&["mix=snake"]), @r#"key `mix` in --set: found "snake", wanted a list"#);
    // Consecutive shares may all be 1.
    assert!(
        load(
            "frozen-lake",
            &["mix=[{share=1, until=2}, {share=1, from=2}]"]
        )
        .is_ok()
    );
}

/// The lessons of a curriculum follow each other without a gap, and the last one is evaluated.
#[test]
fn the_curriculum_plays_one_lesson_at_a_time() {
    let config = load("frozen-lake-large", &[]).unwrap();
    let sizes = |step: usize| -> Vec<serde_json::Value> {
        let lessons = config.mix.iter().filter(|mix| mix.steps().contains(&step));
        let scenarios = lessons.map(|mix| mix.scenario(&config.game).unwrap());
        scenarios
            .map(|lake| lake.options()["size"].clone())
            .collect()
    };
    let starts = |number: usize| config.mix[number].steps().start;
    assert_eq!((starts(0), config.mix.len()), (0, 2));
    let (first, second) = (starts(1) - 1, starts(1));
    assert_eq!((sizes(0), sizes(first)), (vec![4.into()], vec![4.into()]));
    assert_eq!(sizes(second), [serde_json::Value::from(5)]);
    let end = config.mix[1].steps().end;
    assert!(sizes(end).is_empty() && end < config.train.steps);
    assert_eq!(config.game.options["size"].as_integer(), Some(6));
    assert!(config.mix.iter().all(|mix| mix.share == 1.0));
}

/// Settings of another learner cause a warning; a preset's own values do not.
#[test]
fn what_is_for_another_learner_is_told() {
    let notes = |request: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|&s| s.to_owned()).collect();
        Config::resolve(request, &settings)
            .unwrap()
            .notes
            .join("\n")
    };
    for preset in PRESETS {
        assert_eq!(notes(preset.name, &[]), "");
    }
    let words = [
        "train.learn=8",
        "lora.rank=4",
        "pqn.lambda=0.5",
        "train.lr=1e-3",
        "eval.temperature=0.0",
    ];
    assert_snapshot!(notes("snake-dqn", &words), @r#"
    eval.temperature (--set) has no effect with learner = "dqn"
    lora.rank (--set) has no effect with learner = "dqn"
    pqn.lambda (--set) has no effect with learner = "dqn"
    train.learn (--set) has no effect with learner = "dqn"
    "#);
    assert_snapshot!(notes("snake-pqn", &["dqn.updates=2", "value.gamma=0.9"]), @r#"dqn.updates (--set) has no effect with learner = "pqn""#);
    let model = ["--model model.dir=\"\"", "--model model.repo=a/b"];
    assert_snapshot!(notes("snake-pqn", &model), @r#"--model has no effect with learner = "pqn""#);
    assert_snapshot!(notes("snake", &["value.gamma=0.9", "pqn.lambda=0.5"]), @r#"
    pqn.lambda (--set) has no effect with learner = "ms-grpo"
    value.gamma (--set) has no effect with learner = "ms-grpo"
    "#);
}

#[test]
fn values_that_no_network_could_mean_are_refused() {
    for (setting, wanted) in [
        ("learner=\"ppo\"", "ms-grpo"),
        ("value.hidden=[]", "at least one width"),
        ("value.hidden=[0]", "from 1 to 8192"),
        ("value.channels=[4, 5000]", "from 1 to 1024"),
        ("value.gamma=1.5", "from 0 to 1"),
        ("value.episodes=0", "from 1 to"),
        ("value.batch=0", "from 1 to"),
        ("dqn.n_step=0", "from 1 to 1000"),
        ("dqn.start=60000", "at most dqn.capacity, which is 50000"),
        ("dqn.alpha=-0.5", "from 0 to 1"),
        ("pqn.passes=0", "from 1 to 1000"),
    ] {
        let told = error(&[setting]);
        assert!(told.contains(wanted), "{setting}: {told}");
    }
}

/// The presets are for the built-in model, which replies with one token.
#[test]
fn a_model_of_the_user_gets_a_reply_that_fits() {
    let dir = tempfile::tempdir().unwrap();
    let resolve = |vocab: usize, more: &[&str]| {
        let config = format!("{{\"vocab_size\": {vocab}}}");
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        let model = format!("model.dir={:?}", dir.path());
        let settings = more.iter().copied().chain([&*model]).map(str::to_owned);
        let resolved = Config::resolve("frozen-lake", &settings.collect::<Vec<_>>()).unwrap();
        let policy = &resolved.config.policy;
        let reply = (policy.reply, policy.max_new_tokens);
        (reply, resolved.notes.join("\n"), resolved.to_toml())
    };
    let (reply, notes, text) = resolve(49152, &[]);
    assert_eq!(reply, (ReplyForm::Tags, 64));
    assert_eq!(
        notes,
        "the preset frozen-lake is for the built-in model; another model gets policy.reply = \"tags\" and \
         policy.max_new_tokens = 64 instead"
    );
    assert!(
        text.contains("reply = \"tags\"  # chosen for this model\n"),
        "{text}"
    );
    // The user decided, or `lapwing pretrain` made the model.
    for (vocab, more, wanted) in [
        (49152, &["policy.reply=word"][..], (ReplyForm::Word, 1)),
        (49152, &["policy.max_new_tokens=5"], (ReplyForm::Word, 5)),
        (49152, &["policy.constrain=true"], (ReplyForm::Word, 1)),
        (640, &[], (ReplyForm::Word, 1)),
    ] {
        let (reply, notes, _) = resolve(vocab, more);
        assert_eq!((reply, &*notes), (wanted, ""), "{vocab} {more:?}");
    }
    // A preset whose replies are long keeps their length.
    let model = format!("model.dir={:?}", dir.path());
    let settings = ["policy.reply=think".to_owned(), model];
    let paper = Config::resolve("frozen-lake-paper", &settings).unwrap();
    assert_eq!(paper.config.policy.max_new_tokens, 256);
    let (reply, notes, _) = resolve(49152, &["policy.reply=tags"]);
    assert_eq!(reply, (ReplyForm::Tags, 64));
    assert!(notes.ends_with("another model gets policy.max_new_tokens = 64 instead"));
}
