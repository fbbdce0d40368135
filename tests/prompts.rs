//! What the model reads: the prompt of every game, in both forms of reply, under the template of the built-in base and
//! under that of a published chat model.

use lapwing::agent::{Agent, Prompts};
use lapwing::base;
use lapwing::config::Reply;
use lapwing_env::GAMES;
use lapwing_model::ChatTemplate;
use lapwing_tensor::testing::gpu;

#[test]
fn prompts_read_so() {
    let base = base::load_agent(&gpu(), None).unwrap();
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/golden/qwen2");
    let template = ChatTemplate::load(golden.as_ref()).unwrap();
    let qwen = Agent {
        template,
        ..base::load_agent(&gpu(), None).unwrap()
    };
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let observation = scenario.start(1, 1).observe();
        for (name, agent, reply) in [("base", &base, Reply::Word), ("qwen2", &qwen, Reply::Tags)] {
            let prompt = Prompts::new(&*scenario, reply)
                .text(agent, &observation)
                .unwrap();
            insta::assert_snapshot!(format!("{}-{name}", kind.name), prompt);
        }
    }
}

/// Prompts of one game differ at the end only: what the rollout and the update share.
#[test]
fn the_rules_are_a_shared_prefix_of_tokens() {
    let agent = base::load_agent(&gpu(), None).unwrap();
    for kind in GAMES {
        let scenario = (kind.configure)(&serde_json::json!({})).unwrap();
        let mut prompts = Prompts::new(&*scenario, Reply::Word);
        let rules = agent.tokenizer.encode(&prompts.rules().content).unwrap();
        let mut ids = |seed| {
            prompts
                .ids(&agent, &scenario.start(seed, seed).observe())
                .unwrap()
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
