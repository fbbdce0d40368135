//! Rooms through the public interface.

use serde_json::json;

use crate::games::{configured, play, random, refusal};
use lapwing_env::{Game, find};

#[test]
fn a_bad_option_is_refused() {
    let refused = [
        json!({ "tsk": "goto-local" }),
        json!({ "task": "GoToLocal" }),
        json!({ "task": 3 }),
        json!({ "goal": "undo" }),
        json!({ "swapped": "yes" }),
        json!({ "symbols": "emoji" }),
        json!({ "step_limit": 0 }),
        json!({ "step_limit": 100_001 }),
        json!({ "step_limit": null }),
        json!({ "view": "room" }),
    ];
    let refused = refused.map(|options| refusal("rooms", options));
    insta::assert_snapshot!(refused.join("\n"));
}

/// The reward of success depends on the number of steps and the step limit in force.
#[test]
fn quick_success_brings_more() {
    let kind = find("rooms").unwrap();
    for (options, limit) in [
        (json!({ "task": "pickup-dist" }), 20.0),
        (json!({ "task": "pickup-dist", "step_limit": 50 }), 50.0),
    ] {
        let scenario = configured(kind, &options);
        for scene in 0..30 {
            let mut game = scenario.start(scene, 0).unwrap();
            let best = |game: &dyn Game, agent| Some(game.best_actions(agent).unwrap()[0]);
            let rounds = play(&*scenario, &mut *game, best);
            assert!(game.succeeded(0), "{scene}");
            let worth = 1.0 - 0.9 * rounds.len() as f64 / limit;
            assert_eq!(rounds.last().unwrap().outcomes[0].reward, worth);
        }
    }
}

/// With `goal = "avoid"` the scripted player never does the mission, and doing it costs what it would bring.
#[test]
fn a_forbidden_mission_costs_its_reward() {
    let kind = find("rooms").unwrap();
    let usual = configured(kind, &json!({}));
    let avoid = configured(kind, &json!({ "goal": "avoid" }));
    for scene in 0..50 {
        let (mut one, mut other) = (
            usual.start(scene, 0).unwrap(),
            avoid.start(scene, 0).unwrap(),
        );
        let mut player = random(&*usual, scene);
        for _ in 0..usual.step_limit() {
            let action = [player(&*one, 0)];
            let (did, undid) = (
                one.play(&action).unwrap()[0],
                other.play(&action).unwrap()[0],
            );
            assert_eq!((did.reward, did.over), (-undid.reward, undid.over));
        }
        assert_ne!(one.succeeded(0), other.succeeded(0));

        let mut game = avoid.start(scene, 0).unwrap();
        let mut stream = random(&*avoid, scene);
        let rounds = play(&*avoid, &mut *game, |game, agent| {
            let best = game.best_actions(agent).unwrap();
            Some(best[stream(game, agent).unwrap_or(0) % best.len()])
        });
        assert!(game.succeeded(0) && rounds.len() == avoid.step_limit());
    }
}
