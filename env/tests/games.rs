//! What must hold of every game in the list, with its default options and with the variants named here.

use lapwing_env::{GAMES, Game, Kind, OptionsError, Scenario, Turn, find, rng::Stream};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Options worth testing beside the defaults.
const VARIANTS: &[(&str, &str)] = &[
    ("frozen-lake", r#"{"slippery": true, "view": "full"}"#),
    ("frozen-lake", r#"{"width": 7, "height": 3, "frozen": 0.6}"#),
    (
        "frozen-lake",
        r#"{"map": ["FFS", "FHH", "FFG"], "slippery": true, "step_limit": 12}"#,
    ),
    (
        "snake",
        r#"{"width": 5, "height": 4, "enemies": 3, "apples": 2, "bananas": 1, "fires": 1, "view": "full"}"#,
    ),
    (
        "snake",
        r#"{"size": 6, "enemies": 0, "apple_reward": -1, "step_reward": 0, "step_limit": 12}"#,
    ),
];

/// Every scenario to test.
pub fn scenarios() -> Vec<(&'static Kind, Box<dyn Scenario>)> {
    let mut all = Vec::new();
    for kind in GAMES {
        all.push((kind, configured(kind, &json!({}))));
        for (_, options) in VARIANTS.iter().filter(|(name, _)| *name == kind.name) {
            all.push((
                kind,
                configured(kind, &serde_json::from_str(options).unwrap()),
            ));
        }
    }
    all
}

pub fn configured(kind: &Kind, options: &Value) -> Box<dyn Scenario> {
    (kind.configure)(options).unwrap_or_else(|error| panic!("{options}: {error}"))
}

/// The error that options are refused with.
pub fn refusal(game: &str, options: Value) -> String {
    let refused: Result<_, OptionsError> = (find(game).unwrap().configure)(&options);
    match refused {
        Ok(scenario) => panic!("{options} was taken, as {}", scenario.options()),
        Err(error) => error.to_string(),
    }
}

/// Plays to the end or the step limit; `choose` gives each action. Tells what was seen, done and got.
pub fn play(
    scenario: &dyn Scenario,
    game: &mut dyn Game,
    mut choose: impl FnMut(&dyn Game) -> Option<usize>,
) -> Vec<(String, Option<usize>, Turn)> {
    let mut steps: Vec<(String, Option<usize>, Turn)> = Vec::new();
    while steps.len() < scenario.step_limit() && !steps.last().is_some_and(|(.., turn)| turn.over) {
        let seen = game.observe();
        let action = choose(game);
        steps.push((seen, action, game.play(action)));
    }
    steps
}

/// A player of random actions, with some that could not be read.
pub fn random(scenario: &dyn Scenario, seed: u64) -> impl FnMut(&dyn Game) -> Option<usize> {
    let count = scenario.actions().len();
    let mut stream = Stream::new(seed, "random player");
    move |_| Some(stream.below(count + 1)).filter(|&action| action < count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn the_same_seeds_give_the_same_game(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let run = || {
                let mut game = scenario.start(scene, luck);
                let steps = play(&*scenario, &mut *game, random(&*scenario, player));
                (steps, game.observe(), game.succeeded(), game.best_actions())
            };
            prop_assert_eq!(run(), run());
        }
    }

    #[test]
    fn luck_does_not_change_the_scene(scene: u64, luck: u64, other: u64) {
        for (_, scenario) in scenarios() {
            prop_assert_eq!(scenario.start(scene, luck).observe(), scenario.start(scene, other).observe());
        }
    }

    #[test]
    fn rewards_keep_within_their_bounds(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let (lowest, highest) = scenario.reward_bounds();
            for (.., turn) in play(&*scenario, &mut *scenario.start(scene, luck), random(&*scenario, player)) {
                prop_assert!((lowest..=highest).contains(&turn.reward), "{} not in {lowest}..={highest}", turn.reward);
            }
        }
    }

    #[test]
    fn after_the_end_nothing_changes(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let mut game = scenario.start(scene, luck);
            let steps = play(&*scenario, &mut *game, random(&*scenario, player));
            prop_assert!(steps.len() <= scenario.step_limit());
            if steps.last().is_some_and(|(.., turn)| turn.over) {
                let seen = (game.observe(), game.succeeded());
                for action in (0..scenario.actions().len()).map(Some).chain([None]) {
                    prop_assert_eq!(game.play(action), Turn { reward: 0.0, over: true });
                    prop_assert_eq!((game.observe(), game.succeeded()), seen.clone());
                }
            }
        }
    }

    #[test]
    fn the_scripted_player_always_has_an_action(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let mut random = random(&*scenario, player);
            let checked = |game: &dyn Game| {
                let best = game.best_actions();
                assert!(!best.is_empty() && best.iter().all(|&action| action < scenario.actions().len()), "{best:?}");
                assert!(best.is_sorted_by(|one, next| one < next), "{best:?}");
                random(game)
            };
            play(&*scenario, &mut *scenario.start(scene, luck), checked);
        }
    }
}

#[test]
fn names_and_action_words_are_distinct_plain_words() {
    let plain = |word: &str| {
        !word.is_empty()
            && word
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-')
    };
    for (place, kind) in GAMES.iter().enumerate() {
        assert!(
            plain(kind.name) && GAMES[..place].iter().all(|other| other.name != kind.name),
            "{}",
            kind.name
        );
        assert!(kind.summary.ends_with('.'), "{}", kind.summary);
    }
    for (kind, scenario) in scenarios() {
        let words = scenario.actions();
        for (place, word) in words.iter().enumerate() {
            assert!(
                plain(word) && !words[..place].contains(word),
                "{}: {words:?}",
                kind.name
            );
        }
    }
}

#[test]
fn an_action_out_of_the_list_is_a_mistake_that_names_the_game() {
    for (kind, scenario) in scenarios() {
        let count = scenario.actions().len();
        let play = || scenario.start(0, 0).play(Some(count));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).unwrap_err();
        let wanted = format!("{}: there is no action {count}, only {count}", kind.name);
        assert_eq!(panic.downcast_ref::<String>(), Some(&wanted));
    }
}

/// The rules are read anew at every step, so their length is paid for.
#[test]
fn rules_are_short() {
    for (kind, scenario) in scenarios() {
        let words = scenario.rules().split_whitespace().count();
        assert!(
            (10..=80).contains(&words),
            "{}: {words} words: {}",
            kind.name,
            scenario.rules()
        );
    }
}

#[test]
fn the_options_in_force_configure_the_same_scenario() {
    for (kind, scenario) in scenarios() {
        let options = scenario.options();
        let again = configured(kind, &options);
        assert_eq!(again.options(), options);
        assert_eq!(format!("{again:?}"), format!("{scenario:?}"));
        assert!(!options.to_string().contains("null"), "{options}");
    }
}

#[test]
fn options_that_are_no_options_are_refused() {
    for kind in GAMES {
        for options in [
            json!(null),
            json!([1]),
            json!("4x4"),
            json!({"no such option": 1}),
            json!({"step_limit": "many"}),
        ] {
            let error = refusal(kind.name, options);
            assert!(
                error.starts_with(kind.name) && !error.ends_with('.'),
                "{error}"
            );
        }
    }
}

#[test]
fn an_unknown_game_is_answered_with_those_there_are() {
    insta::assert_snapshot!(find("frozenlake").unwrap_err(), @"unknown game `frozenlake` (did you mean `frozen-lake`?); the games are frozen-lake, snake");
    insta::assert_snapshot!(find("chess").unwrap_err(), @"unknown game `chess`; the games are frozen-lake, snake");
}

/// The rules and an episode of the scripted player (with one unread action), for each game and variant.
#[test]
fn transcripts() {
    let mut numbers = std::collections::HashMap::new();
    for (kind, scenario) in scenarios() {
        let number = numbers
            .entry(kind.name)
            .and_modify(|number| *number += 1)
            .or_insert(0);
        let mut game = scenario.start(3, 5);
        let mut steps = 0;
        let player = |game: &dyn Game| {
            steps += 1;
            if steps == 2 {
                None
            } else {
                Some(game.best_actions()[0])
            }
        };
        let mut text = format!("options: {}\n\n{}\n", scenario.options(), scenario.rules());
        for (seen, action, turn) in play(&*scenario, &mut *game, player) {
            let word = action.map_or("(not readable)", |action| scenario.actions()[action]);
            text += &format!("\n{seen}\n> {word}   reward {}\n", turn.reward);
        }
        text += &format!("\n{}\nsuccess: {}\n", game.observe(), game.succeeded());
        insta::assert_snapshot!(format!("{}-{number}", kind.name), text);
    }
}
