//! Sokoban, rooms and 2048 in every variant and probe: what the prompts say, and how the scripted player fares.

use lapwing_env::{Game, Kind, Scenario, find};
use serde_json::Value;

use crate::games::{configured, play, random};

const WORLDS: &[&str] = &["sokoban", "rooms", "2048"];

/// Every variant and probe with its name and its scenario; of a game without variants the game itself.
fn named() -> Vec<(String, &'static Kind, Box<dyn Scenario>)> {
    let mut all = Vec::new();
    for kind in WORLDS.iter().map(|name| find(name).unwrap()) {
        let mut add = |name: &str, options: &str| {
            let options: Value = serde_json::from_str(options).unwrap();
            all.push((name.to_owned(), kind, configured(kind, &options)));
        };
        add(kind.name, "{}");
        for variant in kind.variants {
            add(variant.name, variant.options);
        }
        for probe in kind.probes {
            add(&format!("{}+{}", kind.name, probe.name), probe.options);
        }
    }
    all
}

/// The rules and the beginning of an episode of the scripted player, and where it ends.
#[test]
fn beginnings() {
    for (name, _, scenario) in named() {
        let mut game = scenario.start(1, 2).unwrap();
        let mut text = format!("options: {}\n\n{}\n", scenario.options(), scenario.rules());
        let rounds = play(&*scenario, &mut *game, scripted);
        for round in &rounds[..rounds.len().min(5)] {
            let word = &scenario.actions()[round.actions[0].unwrap()];
            let reward = round.outcomes[0].reward;
            text += &format!("\n{}\n> {word}   reward {reward}\n", round.seen[0]);
        }
        let (seen, success) = (game.observe(0).unwrap(), game.succeeded(0));
        text += &format!(
            "\nafter {} steps:\n{seen}\nsuccess: {success}\n",
            rounds.len()
        );
        insta::assert_snapshot!(name, text);
    }
}

fn scripted(game: &dyn Game, agent: usize) -> Option<usize> {
    Some(game.best_actions(agent).unwrap()[0])
}

/// Rules are changed and said, or said in another way: never one without the other's text.
#[test]
fn probes_change_the_prompt_and_tell_of_habits() {
    for (name, kind, scenario) in named() {
        let usual = configured(kind, &serde_json::json!({}));
        let told = |scenario: &dyn Scenario| {
            (
                scenario.rules(),
                scenario.start(4, 0).unwrap().observe(0).unwrap(),
            )
        };
        let habit = scenario.start(4, 0).unwrap().habit(0);
        if name.contains('+') {
            assert_ne!(told(&*scenario), told(&*usual), "{name}");
            let habit = habit.expect(&name);
            assert!(
                !habit.is_empty() && habit.is_sorted_by(|one, next| one < next),
                "{name}"
            );
        } else {
            assert_eq!(habit, None, "{name}");
        }
    }
}

/// A copy begins as the original stands, goes on by its own luck, and leaves the original alone.
#[test]
fn copies_go_their_own_way() {
    for (name, _, scenario) in named() {
        let mut game = scenario.start(7, 7).unwrap();
        let mut player = random(&*scenario, 3);
        (0..6).for_each(|_| drop(game.play(&[player(&*game, 0)]).unwrap()));
        let standing = (
            game.observe(0).unwrap(),
            game.key(0).unwrap(),
            game.best_actions(0),
        );
        let run = |luck| {
            let mut copy = game.fork(luck).expect(&name);
            assert_eq!(
                (
                    copy.observe(0).unwrap(),
                    copy.key(0).unwrap(),
                    copy.best_actions(0)
                ),
                standing
            );
            let mut player = random(&*scenario, 8);
            let rounds = (0..6)
                .map(|_| copy.play(&[player(&*copy, 0)]).unwrap())
                .collect::<Vec<_>>();
            (rounds, copy.key(0).unwrap())
        };
        assert_eq!(run(1), run(1), "{name}");
        assert_eq!(
            (
                game.observe(0).unwrap(),
                game.key(0).unwrap(),
                game.best_actions(0)
            ),
            standing
        );
    }
}

/// Mean return, share of successes and mean length over scenes 0 and up, with luck as the scene.
pub fn measured(
    scenario: &dyn Scenario,
    episodes: u64,
    mut player: impl FnMut(&dyn Game, usize) -> Option<usize>,
) -> (f64, f64, f64) {
    let (mut total, mut successes, mut steps) = (0.0, 0.0, 0.0);
    for scene in 0..episodes {
        let mut game = scenario.start(scene, scene).unwrap();
        let rounds = play(scenario, &mut *game, &mut player);
        total += rounds
            .iter()
            .map(|round| round.outcomes[0].reward)
            .sum::<f64>();
        successes += f64::from(u8::from(game.succeeded(0)));
        steps += rounds.len() as f64;
    }
    let episodes = episodes as f64;
    (total / episodes, successes / episodes, steps / episodes)
}

/// The figures in the pages of the games: `LAPWING_EPISODES=500 cargo test -p lapwing-env no_worse_than_chance -- --nocapture`.
#[test]
fn the_scripted_player_is_no_worse_than_chance() {
    let episodes = std::env::var("LAPWING_EPISODES")
        .ok()
        .and_then(|given| given.parse().ok());
    for (name, _, scenario) in named() {
        if name == "2048-standard" && episodes.is_none() {
            continue; // Half a minute.
        }
        let episodes = episodes.unwrap_or(20);
        let of_script = measured(&*scenario, episodes, scripted);
        let of_chance = measured(&*scenario, episodes, random(&*scenario, 1));
        println!(
            "{name}: scripted {of_script:.3?}, random {of_chance:.3?} (return, success, steps)"
        );
        assert!(
            of_script.0 >= of_chance.0,
            "{name}: {of_script:?} against {of_chance:?}"
        );
    }
}
