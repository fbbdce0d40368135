//! Tests with real children and real servers: working ones, and ones that hang, flood, crash or send invalid messages.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use lapwing_env::{Game, GameError, OptionsError, Scenario};
use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

#[cfg(unix)]
mod children;
mod servers;

/// A scenario whose errors begin with `game: ` instead of its name.
fn told(error: &GameError) -> String {
    error.problem.clone()
}

fn configured(name: &str, options: &Value) -> Result<Box<dyn Scenario>, OptionsError> {
    configure(name, Address::parse(&name.into()).unwrap(), options)
}

fn scenario(name: &str, options: Value) -> Box<dyn Scenario> {
    let mut all = json!({ "actions": ["stay", "go"], "timeout": 20 });
    all.as_object_mut()
        .unwrap()
        .extend(options.as_object().unwrap().clone());
    configured(name, &all).unwrap()
}

/// Returns the error of the first steps of the first episode.
fn failure(scenario: &dyn Scenario) -> String {
    let mut game = match scenario.start(5, 0) {
        Ok(game) => game,
        Err(error) => return told(&error),
    };
    // A child that writes without end may be ahead by a line or two before the error.
    for _ in 0..1000 {
        if let Err(error) = game.play(&[Some(1)]) {
            // From then on it writes nothing else.
            assert_eq!(game.observe(0).unwrap_err(), error);
            assert_eq!(game.play(&[None]).unwrap_err(), error);
            return told(&error);
        }
    }
    panic!("it plays");
}

#[test]
fn a_name_is_a_command_or_an_address() {
    for (name, wanted) in [
        ("exec:python3 a.py", "[\"python3\", \"a.py\"]"),
        (
            "exec: a 'b c' d\\ e \"\"",
            "[\"a\", \"b c\", \"d e\", \"\"]",
        ),
        // No shell interprets it.
        (
            "exec:a $HOME | b > c",
            "[\"a\", \"$HOME\", \"|\", \"b\", \">\", \"c\"]",
        ),
    ] {
        let Address::Process(words) = Address::parse(&name.into()).unwrap() else {
            panic!("{name}");
        };
        assert_eq!(format!("{words:?}"), wanted);
    }
    for name in ["ws://localhost:8000/ws", "ws://[::1]:8000/ws", "ws://host"] {
        assert_eq!(
            Address::parse(&name.into()),
            Ok(Address::Socket(name.to_owned()))
        );
    }
    let wrong = |name: &str| Address::parse(&name.into()).unwrap_err();
    assert_eq!(wrong("exec:"), "exec:COMMAND, such as exec:python3 game.py");
    assert_eq!(wrong("exec:''"), wrong("exec:"));
    assert_eq!(wrong("exec:a 'b"), "a command whose quotes are closed");
    assert_eq!(wrong("ws://"), "ws://HOST:PORT/ws");
    assert_eq!(wrong("ws://a b/ws"), "ws://HOST:PORT/ws");
    assert!(wrong("wss://host/ws").contains("not encrypted"));
    for port in ["99999", "0", ""] {
        let told = wrong(&format!("ws://host:{port}/ws"));
        assert!(told.starts_with("ws://HOST:PORT/ws"), "{told}");
    }
    assert!(wrong("ws://me:secret@host:80/ws").contains("no user name or password is sent"));
    for scheme in ["ws", "wss"] {
        let config = crate::config::GameConfig {
            name: (&*format!("{scheme}://me:secret@host/ws")).into(),
            ..crate::config::GameConfig::default()
        };
        let told = config.scenario().unwrap_err().to_string();
        assert!(
            told.contains("\"ws://...@host/ws\"") && !told.contains("secret"),
            "{told}"
        );
    }
    let is_external = |name: &str| GameName::from(name).is_external();
    assert!(!is_external("frozen-lake") && !is_external("http://a/ws") && is_external("exec:a"));
}

#[test]
fn a_run_is_named_after_its_command() {
    for (name, short) in [
        (
            "exec:python3 shim.py FrozenLake-v1",
            "python3-shim.py-FrozenLake-v1",
        ),
        ("ws://localhost:8000/ws", "ws-localhost-8000-ws"),
        ("./lift.py", "lift.py"),
        ("frozen-lake-slippery", "frozen-lake-slippery"),
        ("exec:../..", "environment"),
        ("exec:\u{1b}[2J/é", "2J"),
    ] {
        assert_eq!(GameName::from(name).short(), short);
    }
    let long = GameName::from(&*format!("exec:{}", "a/".repeat(200)));
    assert!(long.short().len() <= 60);
}

#[test]
fn what_is_wrong_with_an_option_is_told() {
    let home = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = home.path().join("a.jinja");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = |options: Value| {
        let error = configured("exec:game", &options).unwrap_err().to_string();
        error.replace(home.path().to_str().unwrap(), "DIR")
    };
    let told = [
        wrong(json!({})),
        wrong(json!({ "action": ["a"] })),
        wrong(json!({ "actions": "a" })),
        wrong(json!({ "actions": [] })),
        wrong(json!({ "actions": ["a", "a"] })),
        wrong(json!({ "actions": ["Left"] })),
        wrong(json!({ "actions": ["a"], "luck": "seed" })),
        wrong(json!({ "actions": ["a"], "reward_bounds": [1, 0] })),
        wrong(json!({ "actions": ["a"], "step_limit": 0 })),
        wrong(json!({ "actions": ["a"], "timeout": 0 })),
        wrong(json!({ "actions": ["a"], "success": "done and" })),
        wrong(json!({ "template": "nowhere.jinja" })),
        wrong(json!({ "template": file("Act.") })),
        wrong(json!({ "template": "{% block action %}{% if %}{% endblock %}" })),
        wrong(json!({ "template": file("{% block rules %}") })),
        wrong(json!({ "template": "{% block rule %}{% endblock %}" })),
        wrong(json!({ "template": "{% block observation %}{{ observaton }}{% endblock %}" })),
        wrong(json!({ "actions": ["a"], "success": "doen and return > 0" })),
        wrong(
            json!({ "template": file("{% block rules %}{% for i in range(9999) %}{% for i in range(9999) %}{% endfor %}{% endfor %}{% endblock %}") }),
        ),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_template_says_only_what_it_does_differently() {
    let state = |observation: Value| protocol::StepResult {
        observation,
        reward: None,
        done: false,
        truncated: false,
    };
    let usual = template::ExternalTemplate::parse(None).unwrap();
    let text = |observation: Value| usual.observation(&state(observation), 0).unwrap();
    assert_eq!(text(json!("a\n  b\n")), "a\n  b");
    assert_eq!(text(json!({ "text": "<here>", "raw": 3 })), "<here>");
    assert_eq!(text(json!({ "prompt": "say it" })), "say it");
    assert_eq!(
        text(json!({ "a": "<", "b": [1] })),
        "{\n  \"a\": \"<\",\n  \"b\": [\n    1\n  ]\n}"
    );
    assert_eq!(text(json!(7)), "7");
    assert_eq!(text(json!(null)), "null");
    let action = |action| usual.action(action, "", 0).unwrap().map(Value::Object);
    assert_eq!(action(Some((1, "go"))), Some(json!({ "action": 1 })));
    assert_eq!(action(None), None);

    let own = "{% macro at(o) %}at {{ o.x }}{% endmacro %}
{% block observation %}{{ at(observation) }} after {{ step }}: {{ super() }}{% endblock %}
{% block action %}
{\"move\": {{ (action or \"wait\") | tojson }}, \"said\": {{ text | tojson }}}
{% endblock %}";
    let own = template::ExternalTemplate::parse(Some(own)).unwrap();
    assert_eq!(own.rules(), usual.rules());
    let seen = own.observation(&state(json!({ "x": 3 })), 2).unwrap();
    assert_eq!(seen, "at 3 after 2: {\n  \"x\": 3\n}");
    let made = own.action(None, "\"<é>\"\n", 0).unwrap().map(Value::Object);
    assert_eq!(made, Some(json!({ "move": "wait", "said": "\"<é>\"\n" })));

    let broken = |block: &str| {
        let own = format!("{{% block action %}}{block}{{% endblock %}}");
        let own = template::ExternalTemplate::parse(Some(&own)).unwrap();
        own.action(Some((0, "go")), "", 0).unwrap_err()
    };
    assert!(broken("{a}").starts_with("its block `action` makes \"{a}\", which is not JSON ("));
    assert_eq!(
        broken("[1]"),
        "its block `action` makes \"[1]\", which is no JSON object"
    );
    assert!(broken("{{ 1 / 0 }}").starts_with("its block `action` fails: line 1: "));
    assert!(
        broken("{% for i in range(40) %}{{ 'x' * 100000 }}{% endfor %}")
            .ends_with("the text is longer than 1 MiB")
    );
}

#[test]
fn messages_are_what_they_say() {
    let reset = protocol::reset(u64::MAX, Some(("luck", 1 << 31)));
    let sent = reset.to_string();
    assert_eq!(
        sent,
        r#"{"type":"reset","data":{"seed":2147483647,"luck":0}}"#
    );
    let read = |text: &str| protocol::read(text.as_bytes());
    let answer = read(
        r#"{"type":"observation","data":{"observation":{},"reward":true,"done":false,"metadata":1}}"#,
    );
    let answer = answer.unwrap().content.unwrap();
    assert_eq!((answer.reward, answer.done), (Some(1.0), false));
    let answer = read(r#"{"type":"observation","data":{"observation":1,"done":true}}"#);
    assert_eq!(answer.unwrap().content.unwrap().reward, None);
    let error = read(r#"{"type":"error","data":{"message":"full","code":"CAPACITY_REACHED"}}"#);
    let error = error.unwrap().content.unwrap_err();
    assert!(error.contains("MAX_CONCURRENT_ENVS"), "{error}");
    let long = protocol::quoted(&b"\x1b[2J\xff".repeat(1000));
    assert!(
        long.starts_with(r#""\u{1b}[2J"#) && long.ends_with("... (5000 bytes)"),
        "{long}"
    );
    assert!(long.len() < 2000);
    // 201 characters of four bytes, and 201 bytes of which each becomes a character of three.
    for bytes in ["\u{10000}".repeat(201).into_bytes(), vec![0xff; 201]] {
        let shown = protocol::quoted(&bytes);
        assert!(
            shown.ends_with(&format!("... ({} bytes)", bytes.len())),
            "{shown}"
        );
    }
}

proptest! {
    /// Every message is parsed, or quoted in one line without control characters.
    #[test]
    fn nothing_that_is_written_breaks_the_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
        data in "[ -~]{0,40}",
    ) {
        let message = format!("{{\"type\":\"observation\",\"data\":{data}}}");
        for written in [&bytes[..], message.as_bytes()] {
            if let Err(problem) = protocol::read(written) {
                prop_assert!(problem.len() < 3000 && !problem.contains(char::is_control), "{problem}");
            }
        }
    }
}
