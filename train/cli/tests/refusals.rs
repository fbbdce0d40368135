//! What the program says to what it cannot do, and the code it ends with.

use std::fs;
use std::path::Path;

use insta::assert_snapshot;

use crate::program::{lapwing, run, said};

/// What it says to these arguments; it must end with this code, say nothing on standard output and leave nothing behind.
fn refusal(code: i32, arguments: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    let said = run(directory.path(), arguments);
    assert_eq!((said.code, said.out.as_str()), (code, ""), "{}", said.err);
    assert!(is_empty(directory.path()), "left something behind");
    said.err
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn what_is_typed_wrong_ends_with_2() {
    assert_snapshot!(refusal(2, &["train", "frozen-lak"]), @"error: unknown preset `frozen-lak` (did you mean `frozen-lake`?); the presets and games are frozen-lake, frozen-lake-slippery, frozen-lake-large, frozen-lake-curriculum, snake, frozen-lake-paper, snake-paper, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn, sokoban, rooms, 2048; lapwing games lists variants, and the name of a file ends in .toml");
    assert_snapshot!(refusal(2, &["train", "--set", "train.group_sise=8"]), @"error: unknown key `train.group_sise` in --set (did you mean `train.group_size`?); the keys of [train] are aaw_temperature, aggregation, beta, betas, clip_high, clip_low, correction, entropy_band, entropy_gain, episode_clip, filter, group_size, groups, kl, learn, lr, max_grad_norm, measure, minibatches, passes, ratio, sampling, seed, shared_luck, steps, tokens_per_batch, turn_clip, warmup, weight_decay, weights");
    assert_snapshot!(refusal(2, &["eval", "--set", "eval.temperature=warm"]), @r#"error: key `eval.temperature` in --set: found "warm", wanted a number"#);
    assert_snapshot!(refusal(2, &["train", "--set", "train.learn=0"]), @"error: key `train.learn`: found 0, wanted at least 1");
    assert_snapshot!(refusal(2, &["play", "pong"]), @"error: unknown preset `pong`; the presets and games are frozen-lake, frozen-lake-slippery, frozen-lake-large, frozen-lake-curriculum, snake, frozen-lake-paper, snake-paper, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn, sokoban, rooms, 2048; lapwing games lists variants, and the name of a file ends in .toml");
    assert_snapshot!(refusal(2, &["play", "frozen-lake", "--human", "--set", "game.options.size=1"]), @"error: frozen-lake: option `size` is 1, but must be from 2 to 64");
    assert_snapshot!(refusal(2, &["train", "--set", "game.options.frozen=nan"]), @"error: key `game.options.frozen`: found nan, wanted a finite number");
    assert_snapshot!(refusal(2, &["train", "--set", "game.options.frozen=inf"]), @"error: key `game.options.frozen`: found inf, wanted a finite number");
    assert_snapshot!(refusal(2, &["train", "--set", "game.options.map=2026-11-21"]), @r#"error: frozen-lake: option `map` is "2026-11-21", but must be a list"#);
    assert_snapshot!(refusal(2, &["train", "--set", "policy.chat_template_kwargs.heat=nan"]), @"error: key `policy.chat_template_kwargs.heat`: found nan, wanted a finite number");
    assert_snapshot!(refusal(2, &["train", "--set", "train.kl=k1"]), @r#"error: key `train.kl` in --set: found "k1", wanted `k2` or `k3`: the gradient of k1 in the loss is zero on average, and k2 has the gradient that k1 in the reward would have"#);
    assert_snapshot!(refusal(2, &["trian"]), @"
    error: unrecognized subcommand 'trian'

      tip: a similar subcommand exists: 'train'

    Usage: lapwing [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal(2, &["pretrain", "--out", "base", "--skill", "2"]), @"
    error: invalid value '2' for '--skill <P>': wanted a number from 0 to 1

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal(2, &["pretrain", "--out", "base", "pong"]), @"error: unknown preset `pong`; the presets and games are frozen-lake, frozen-lake-slippery, frozen-lake-large, frozen-lake-curriculum, snake, frozen-lake-paper, snake-paper, frozen-lake-dqn, frozen-lake-pqn, frozen-lake-slippery-pqn, snake-dqn, snake-pqn, sokoban, rooms, 2048; lapwing games lists variants, and the name of a file ends in .toml");
    assert_snapshot!(refusal(2, &["train", "--steps", "many"]), @"
    error: invalid value 'many' for '--steps <N>': wanted a whole number from 0 to 9223372036854775807

    For more information, try '--help'.
    ");
    assert_snapshot!(refusal(2, &["train", "--seed", "18446744073709551615"]), @"
    error: invalid value '18446744073709551615' for '--seed <N>': wanted a whole number from 0 to 9223372036854775807

    For more information, try '--help'.
    ");
}

#[test]
fn files_at_fault_end_with_1() {
    assert_snapshot!(refusal(1, &["train", "mine.toml"]), @"error: cannot read the config mine.toml: No such file or directory (os error 2)");
    assert_snapshot!(refusal(1, &["train", "--model", "no/such/model"]), @r#"
    the preset frozen-lake is for the built-in model: it has policy.reply = "word" and policy.max_new_tokens = 1
    error: there is no model directory DIR/no/such/model: wanted one with config.json, *.safetensors and tokenizer.json (--model, model.dir)
    "#);
    assert_snapshot!(refusal(1, &["eval", "--adapter", "no/such/adapter"]), @"error: there is no adapter directory no/such/adapter: wanted one with adapter_config.json and adapter_model.safetensors");
    let told = refusal(1, &["adapters", "--adapter-index", "99"]);
    // Whatever this machine has.
    let (before, rest) = told.split_once("0 (").unwrap();
    let (_, after) = rest.rsplit_once(") (").unwrap();
    assert_snapshot!(format!("{before}0 (NAME) ({after}"), @"error: there is no device 99, wanted one of 0 (NAME) (--adapter-index N chooses one; `lapwing adapters` lists them)");
}

#[test]
fn a_run_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("metrics.jsonl"), "precious").unwrap();
    let said = run(directory.path(), &["train", "--out", "kept"]);
    assert_eq!(said.code, 1);
    assert_snapshot!(said.err, @"error: kept exists and is not empty: choose another directory with --out, or remove it");
    assert_eq!(
        fs::read_to_string(kept.join("metrics.jsonl")).unwrap(),
        "precious"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let said = run(
        directory.path(),
        &["train", "--steps", "1", "--out", "file/run"],
    );
    assert_eq!(said.code, 1);
    // What was loaded, and what it needs, was said before.
    let last = said.err.lines().last().unwrap();
    #[cfg(unix)]
    assert_snapshot!(last, @"error: cannot write file/run: Not a directory (os error 20); a part of its path is a file: choose another place with --out");
}

/// The variables hide every driver of Vulkan and of OpenGL; on other systems there is no such thing.
#[cfg(target_os = "linux")]
#[test]
fn without_an_adapter_the_cure_is_named() {
    let told = |arguments: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        let mut command = lapwing(directory.path(), arguments);
        command
            .env("VK_DRIVER_FILES", "/nowhere.json")
            .env("VK_ICD_FILENAMES", "/nowhere.json")
            .env("__EGL_VENDOR_LIBRARY_FILENAMES", "/nowhere.json");
        let said = said(directory.path(), command.output().unwrap());
        assert_eq!((said.code, said.out.as_str()), (1, ""));
        assert!(is_empty(directory.path()), "left something behind");
        said.err
    };
    let text = told(&["adapters"]);
    assert_snapshot!(text, @"error: no GPU found: Vulkan did not start (Unable to find a Vulkan driver); install a Vulkan driver (on Debian or Ubuntu without a GPU: apt-get install mesa-vulkan-drivers libvulkan1), or, if one is installed, allow the process more memory (ulimit -v, the container's limit)");
    for arguments in [&["train"][..], &["eval"], &["play", "frozen-lake"]] {
        assert_eq!(told(arguments), text);
    }
}
