//! What the model reads: the prompt of every game, in both forms of reply, under the template of the built-in base and
//! under that of a published chat model.

use lapwing_env::{GAMES, Scenario};
use lapwing_model::ChatTemplate;
use lapwing_train::base::files::Files;
use lapwing_train::play::prompt::Prompts;
use lapwing_train::play::{Form, Framing, Seen};
use lapwing_train::run::config::Policy;

fn framing(scenario: &dyn Scenario, reply: Form) -> Framing {
    let policy = Policy {
        reply,
        ..Policy::default()
    };
    Framing::new(scenario, &policy).unwrap()
}

#[test]
fn prompts_read_so() {
    let files = Files::open(None).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    let base = || files.template().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden/qwen2");
    let qwen = || ChatTemplate::load(golden.as_ref()).unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let observation = scenario.start(1, 1).unwrap().observe(0).unwrap();
        for (name, template, reply) in [("base", base(), Form::Word), ("qwen2", qwen(), Form::Tags)]
        {
            let prompts = Prompts::new(framing(&*scenario, reply), tokenizer.clone(), template);
            let prompt = prompts.text(&Seen::first(&observation)).unwrap();
            insta::assert_snapshot!(format!("{}-{name}", kind.name), prompt);
        }
    }
}

/// Prompts of one game differ at the end only: what the rollout and the update share.
#[test]
fn the_rules_are_a_shared_prefix_of_tokens() {
    let files = Files::open(None).unwrap();
    let tokenizer = files.tokenizer().unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let template = files.template().unwrap();
        let framing = framing(&*scenario, Form::Word);
        let told = framing.messages(&Seen::first("")).unwrap();
        let rules = tokenizer.encode(&told[0].content).unwrap();
        let mut prompts = Prompts::new(framing, tokenizer.clone(), template);
        let mut ids = |seed| {
            let observation = scenario.start(seed, seed).unwrap().observe(0).unwrap();
            prompts.ids(&Seen::first(&observation)).unwrap()
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
