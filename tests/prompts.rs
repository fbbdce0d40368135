//! What the model reads: the prompt of every game, in both forms of reply, under the template of the built-in base and
//! under that of a published chat model.

use lapwing::agent::Prompts;
use lapwing::base::Files;
use lapwing::config::Reply;
use lapwing_env::GAMES;
use lapwing_model::ChatTemplate;

#[test]
fn prompts_read_so() {
    let base = Files::open(None).unwrap().template().unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden/qwen2");
    let qwen = ChatTemplate::load(golden.as_ref()).unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let observation = scenario.start(1, 1).observe();
        for (name, template, reply) in [("base", &base, Reply::Word), ("qwen2", &qwen, Reply::Tags)]
        {
            let prompt = Prompts::new(&*scenario, reply)
                .text(template, &observation)
                .unwrap();
            insta::assert_snapshot!(format!("{}-{name}", kind.name), prompt);
        }
    }
}

/// Prompts of one game differ at the end only: what the rollout and the update share.
#[test]
fn the_rules_are_a_shared_prefix_of_tokens() {
    let files = Files::open(None).unwrap();
    let template = files.template().unwrap();
    let tokenizer = files.tokenizer().unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let prompts = Prompts::new(&*scenario, Reply::Word);
        let rules = tokenizer.encode(&prompts.rules().content).unwrap();
        let ids = |seed| {
            let observation = scenario.start(seed, seed).observe();
            let text = prompts.text(&template, &observation).unwrap();
            tokenizer.encode(&text).unwrap()
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
