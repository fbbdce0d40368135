//! Prompts of every game, in every form of reply, in the template of the built-in model and in that of a published chat
//! model; and prompts of custom templates.

use std::path::{Path, PathBuf};

use lapwing_env::{GAMES, Game, GameError, Scenario};
use lapwing_model::{ModelDirectory, TextFiles, Tokenizer};
use lapwing_play::config::PolicyConfig;
use lapwing_play::prompt::Prompts;
use lapwing_play::{AgentView, PromptWriter, ReplyForm, Turn, UnreadReason};
use lapwing_train::base::files::Files;

use crate::training::WordyLake;

const FORMS: [ReplyForm; 5] = [
    ReplyForm::Word,
    ReplyForm::Tags,
    ReplyForm::Think,
    ReplyForm::Plan,
    ReplyForm::Json,
];

fn framing(scenario: &dyn Scenario, reply: ReplyForm) -> PromptWriter {
    let policy = PolicyConfig {
        reply,
        ..PolicyConfig::default()
    };
    PromptWriter::new(scenario, &policy).unwrap()
}

#[test]
fn prompts_read_so() {
    let files = Files::open(None, None).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    let base = || files.template().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden/qwen2");
    let qwen = || TextFiles::trusted(golden.as_ref()).template().unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let observation = scenario.start(1, 1).unwrap().observe(0).unwrap();
        for (name, template, reply) in [
            ("base", base(), ReplyForm::Word),
            ("qwen2", qwen(), ReplyForm::Tags),
        ] {
            let prompts = Prompts::new(framing(&*scenario, reply), tokenizer.clone(), template);
            let prompt = prompts.text(&AgentView::first(&observation)).unwrap();
            insta::assert_snapshot!(format!("{}-{name}", kind.name), prompt);
        }
    }
}

/// The system message of every variant and every probe.
#[test]
fn the_instructions_of_variants_and_probes_read_so() {
    for kind in GAMES {
        let variants = kind
            .variants
            .iter()
            .map(|it| (it.name.to_owned(), (it.options)()));
        let probes = kind.probes.iter();
        let probes = probes.map(|it| (format!("{}, probe {}", kind.name, it.name), (it.options)()));
        let mut told = String::new();
        for (name, options) in variants.chain(probes) {
            let scenario = (kind.configure)(&options).unwrap();
            let framing = framing(&*scenario, ReplyForm::Tags);
            let messages = framing.messages(&AgentView::first("")).unwrap();
            told += &format!("--- {name}\n{}\n", messages[0].content);
        }
        insta::assert_snapshot!(format!("{}-variants-and-probes", kind.name), told);
    }
}

/// Prompts of one game differ only at the end, so rollout and update can share the rest.
#[test]
fn the_rules_are_a_shared_prefix_of_tokens() {
    let files = Files::open(None, None).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let template = files.template().unwrap();
        let framing = framing(&*scenario, ReplyForm::Word);
        let told = framing.messages(&AgentView::first("")).unwrap();
        let rules = tokenizer.encode(&told[0].content).unwrap();
        let mut prompts = Prompts::new(framing, tokenizer.clone(), template);
        let mut ids = |seed| {
            let observation = scenario.start(seed, seed).unwrap().observe(0).unwrap();
            prompts.ids(&AgentView::first(&observation)).unwrap()
        };
        let (one, other) = (ids(1), ids(2));
        let shared = one
            .iter()
            .zip(other.iter())
            .take_while(|(a, b)| a == b)
            .count();
        assert!(
            shared > rules.len(),
            "{}: {shared} of {} rule tokens",
            kind.name,
            rules.len()
        );
    }
}

/// The instructions for every form of reply. Other snapshots have the rules and the board.
fn formats(scenario: &dyn Scenario) -> String {
    let told = FORMS.map(|form| {
        let messages = framing(scenario, form)
            .messages(&AgentView::first(""))
            .unwrap();
        let system = messages[0].content.strip_prefix(&scenario.rules());
        format!("{form:?}: {}", system.unwrap().trim())
    });
    told.join("\n")
}

#[test]
fn every_form_of_reply_is_asked_for() {
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        insta::assert_snapshot!(format!("forms-{}", kind.name), formats(&*scenario));
    }
    insta::assert_snapshot!("forms-free-text", formats(&Talk));
}

/// A game that takes any text.
#[derive(Debug)]
struct Talk;

impl Scenario for Talk {
    fn name(&self) -> &str {
        "talk"
    }

    fn rules(&self) -> String {
        "Talk.".to_owned()
    }

    fn actions(&self) -> &[String] {
        static SAY: std::sync::LazyLock<[String; 1]> =
            std::sync::LazyLock::new(|| ["say".to_owned()]);
        &*SAY
    }

    fn takes_text(&self) -> bool {
        true
    }

    fn start(&self, _: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        Err(GameError::new("talk", "nobody is there"))
    }

    fn step_limit(&self) -> usize {
        1
    }

    fn options(&self) -> serde_json::Value {
        serde_json::json!({})
    }
}

#[test]
fn free_text_is_handed_on_as_it_was_said() {
    let reply =
        framing(&Talk, ReplyForm::Tags).read("Hm. <action>[Up], q</action>".to_owned(), false);
    assert_eq!(
        (reply.action, reply.said.as_deref()),
        (Some(0), Some("[Up], q"))
    );
    let reply = framing(&Talk, ReplyForm::Tags).read("Hm.".to_owned(), true);
    assert_eq!(
        (reply.unread, reply.said),
        (Some(UnreadReason::CutOff), None)
    );
}

#[test]
fn only_words_can_be_constrained() {
    let files = Files::open(None, None).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    let policy = PolicyConfig {
        constrain: true,
        ..PolicyConfig::default()
    };
    let check = |scenario: &dyn Scenario, tokenizer: &Tokenizer| {
        let framing = framing(scenario, ReplyForm::Word);
        let template = files.template().unwrap();
        let mut prompts = Prompts::new(framing, tokenizer.clone(), template);
        prompts.check_replies(&policy)
    };
    let longest = check(&*lake(), tokenizer).unwrap();
    assert_eq!(longest, Some((1, "up".to_owned())));
    let longest = check(&WordyLake::new(), tokenizer).unwrap();
    assert_eq!(longest, Some((3, "left up down".to_owned())));
    insta::assert_snapshot!(check(&Talk, tokenizer).unwrap_err(), @"key `policy.constrain`: found true, wanted false, because the game takes any text: --set policy.constrain=false");

    // A model without a token that ends a reply.
    let dir = tempfile::tempdir().unwrap();
    let base = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/base");
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let file = std::fs::read(format!("{base}/{name}")).unwrap();
        std::fs::write(dir.path().join(name), file).unwrap();
    }
    let config = dir.path().join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("eos_token_id", "no_token_id")).unwrap();
    let model = ModelDirectory::open(dir.path()).unwrap();
    let endless = TextFiles::trusted(dir.path())
        .tokenizer(model.config())
        .unwrap();
    check(&*lake(), &endless).unwrap();
    insta::assert_snapshot!(check(&WordyLake::new(), &endless).unwrap_err(), @"key `policy.constrain`: found true, wanted false, because an action begins with another, and the model has no token that ends a reply (eos_token_id): --set policy.constrain=false");
}

fn lake() -> Box<dyn Scenario> {
    let slippery = serde_json::json!({ "slippery": true });
    (lapwing_env::find("frozen-lake").unwrap().configure)(&slippery).unwrap()
}

/// The lake with these template files.
fn worded(templates: Vec<PathBuf>, reply: ReplyForm) -> Result<PromptWriter, String> {
    let policy = PolicyConfig {
        reply,
        templates,
        ..PolicyConfig::default()
    };
    PromptWriter::new(&*lake(), &policy).map_err(|error| error.to_string())
}

fn german() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/prompts/frozen-lake-german.jinja")
}

/// The template of the docs: in its own form of reply, and in the other forms with the default text.
#[test]
fn the_lake_is_put_in_german() {
    let messages = |form| {
        let framing = worded(vec![german()], form).unwrap();
        framing.messages(&AgentView::first("P _\nO G")).unwrap()
    };
    let told = messages(ReplyForm::Word);
    insta::assert_snapshot!(
        "german",
        format!("{}\n---\n{}", told[0].content, told[1].content)
    );
    let usual = framing(&*lake(), ReplyForm::Json)
        .messages(&AgentView::first(""))
        .unwrap();
    let format = usual[0].content.lines().last().unwrap();
    assert!(messages(ReplyForm::Json)[0].content.ends_with(format));
}

/// Each of several templates is drawn, and an episode keeps its own, also in repeated turns.
#[test]
fn wordings_are_drawn_by_episode() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain.jinja");
    std::fs::write(&plain, "{% extends \"usual\" %}").unwrap();
    let framing = worded(vec![german(), plain], ReplyForm::Word).unwrap();
    assert_eq!(framing.wordings(), 2);
    let past = [Turn::default()];
    let mut in_german = 0;
    for seed in 0..100 {
        let seen = |past| AgentView {
            observation: "P G",
            past,
            seed,
        };
        let first = framing.messages(&seen(&[])).unwrap();
        assert_eq!(
            framing.messages(&seen(&past)).unwrap(),
            first,
            "seed {seed}"
        );
        in_german += usize::from(first[0].content.starts_with("Du gehst"));
    }
    // Half, with a standard deviation of 5.
    assert!((25..=75).contains(&in_german), "{in_german} of 100");
}

/// The latest turns, observations and replies, stand between the rules and the current observation.
#[test]
fn history_tells_the_latest_turns_again() {
    let turn = |observation: &str, text: &str| Turn {
        observation: observation.to_owned(),
        text: text.to_owned(),
        ..Turn::default()
    };
    let past = [
        turn("one", "left"),
        turn("two", "right"),
        turn("three", "jump"),
    ];
    let told = |history, past: &[Turn]| -> Vec<String> {
        let policy = PolicyConfig {
            history,
            ..PolicyConfig::default()
        };
        let framing = PromptWriter::new(&*lake(), &policy).unwrap();
        let seen = AgentView {
            past,
            ..AgentView::first("now")
        };
        let messages = framing.messages(&seen).unwrap().into_iter().skip(1);
        messages
            .map(|m| format!("{}: {}", m.role, m.content))
            .collect()
    };
    assert_eq!(told(0, &past), ["user: now"]);
    let two = [
        "user: two",
        "assistant: right",
        "user: three",
        "assistant: jump",
        "user: now",
    ];
    assert_eq!(told(2, &past), two);
    assert_eq!(told(9, &past).len(), 7);
    assert_eq!(told(9, &[]), ["user: now"]);
}

/// Faulty templates are reported before any play, with the file and the line.
#[test]
fn templates_that_are_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |text: Option<&str>| {
        let path = dir.path().join("mine.jinja");
        match text {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => assert!(!path.exists()),
        }
        let told = worded(vec![path], ReplyForm::Word).unwrap_err();
        told.replace(dir.path().to_str().unwrap(), "DIR")
    };
    insta::assert_snapshot!(refused(None), @"the prompt template DIR/mine.jinja: cannot be read: No such file or directory (os error 2) (policy.templates)");
    insta::assert_snapshot!(refused(Some("{% extends \"usual\" %}\n{% block rules %}\n{{ rules }\n{% endblock %}")), @"the prompt template DIR/mine.jinja: line 3: syntax error: unexpected `}`, expected end of variable block");
    insta::assert_snapshot!(refused(Some("{% extends \"usual\" %}{% block rule %}{% endblock %}")), @r#"the prompt template DIR/mine.jinja: there is no block `rule`; they are system, user, rules, actions, observation, format"#);
    insta::assert_snapshot!(refused(Some("{% extends \"usual\" %}\n{% block rules %}{{ ruls }}{% endblock %}")), @"the prompt template DIR/mine.jinja: line 2: undefined value; the variables are game, rules, actions, takes_text, reply, observation");
    insta::assert_snapshot!(refused(Some("{% extends \"common\" %}")), @r#"the prompt template DIR/mine.jinja: line 1: template not found: template "common" does not exist; the only template that others may extend is "usual""#);
    insta::assert_snapshot!(refused(Some("You are on a lake.")), @r#"the prompt template DIR/mine.jinja: unknown block: block 'system' not found; begin with {% extends "usual" %}, which has all that is left out"#);
    let endless = "{% extends \"usual\" %}{% block rules %}{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{% endblock %}";
    insta::assert_snapshot!(refused(Some(endless)), @"the prompt template DIR/mine.jinja: line 1: it does not come to an end (stopped after 1000000 instructions); is there a loop in a loop?");
}
