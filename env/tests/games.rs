//! Properties of every game: with its default options, those below, its variants and its probes.

use std::collections::{HashMap, HashSet};
use std::hash::Hasher;

use lapwing_env::{
    GAMES, Game, Kind, OptionsError, Outcome, Scenario, find, find_variant, rng::Stream,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::pinned::Digest;

/// Options that are tested in addition to the defaults.
const TESTED: &[(&str, &str)] = &[
    ("frozen-lake", r#"{"slippery": true, "view": "full"}"#),
    ("frozen-lake", r#"{"width": 7, "height": 3, "frozen": 0.6}"#),
    (
        "frozen-lake",
        r#"{"map": ["FFS", "FHH", "FFG"], "slippery": true, "step_limit": 12}"#,
    ),
    (
        "frozen-lake",
        r#"{"size": 6, "largest": 8, "slippery": true, "step_limit": 16}"#,
    ),
    (
        "snake",
        r#"{"width": 5, "height": 4, "enemies": 3, "apples": 2, "bananas": 1, "fires": 1, "view": "full"}"#,
    ),
    (
        "snake",
        r#"{"size": 6, "enemies": 0, "apple_reward": -1, "step_reward": 0, "step_limit": 12}"#,
    ),
    (
        "snake",
        r#"{"size": 5, "agents": 2, "enemies": 0, "apples": 2, "step_limit": 8}"#,
    ),
    (
        "snake",
        r#"{"size": 4, "agents": 3, "enemies": 1, "apples": 3, "view": "full", "step_limit": 4}"#,
    ),
    ("snake", r#"{"size": 5, "apples": 2, "step_limit": 8}"#),
    (
        "sokoban",
        r#"{"width": 9, "height": 5, "boxes": 2, "step_limit": 25, "view": "full"}"#,
    ),
    (
        "sokoban",
        r#"{"boxes": 2, "goal": "off", "swapped": true, "symbols": "other", "wording": "other", "step_limit": 8}"#,
    ),
    ("rooms", r#"{"task": "unlock-local", "view": "full"}"#),
    (
        "rooms",
        r#"{"task": "goto-maze", "view": "full", "symbols": "other", "step_limit": 12}"#,
    ),
    (
        "rooms",
        r#"{"task": "put-next-local", "goal": "avoid", "swapped": true, "symbols": "other", "wording": "other", "step_limit": 8}"#,
    ),
    (
        "2048",
        r#"{"target": 32, "step_limit": 12, "view": "full"}"#,
    ),
    (
        "2048",
        r#"{"goal": "low", "up_cost": 0.25, "swapped": true, "symbols": "other", "wording": "other", "step_limit": 8}"#,
    ),
];

/// Returns every scenario to test with a name: the game's with a number (0 for its defaults, then the options above), that
/// of a variant, or the game's with that of a probe.
pub fn named() -> Vec<(String, &'static Kind, Box<dyn Scenario>)> {
    let mut all = Vec::new();
    for kind in GAMES {
        let mut add = |name: String, options: Value| {
            all.push((name, kind, configured(kind, &options)));
        };
        let tested = TESTED.iter().filter(|(name, _)| *name == kind.name);
        let numbered = std::iter::once("{}").chain(tested.map(|(_, options)| *options));
        for (number, options) in numbered.enumerate() {
            let options = serde_json::from_str(options).unwrap();
            add(format!("{}-{number}", kind.name), options);
        }
        for variant in kind.variants {
            add(variant.name.to_owned(), (variant.options)());
        }
        for probe in kind.probes {
            add(
                format!("{}-probe-{}", kind.name, probe.name),
                (probe.options)(),
            );
        }
    }
    all
}

/// Returns every scenario to test.
pub fn scenarios() -> Vec<(&'static Kind, Box<dyn Scenario>)> {
    let named = named().into_iter();
    named.map(|(_, kind, scenario)| (kind, scenario)).collect()
}

pub fn configured(kind: &Kind, options: &Value) -> Box<dyn Scenario> {
    (kind.configure)(options).unwrap_or_else(|error| panic!("{options}: {error}"))
}

/// Returns the error for bad options.
pub fn refusal(game: &str, options: Value) -> String {
    let refused: Result<_, OptionsError> = (find(game).unwrap().configure)(&options);
    match refused {
        Ok(scenario) => panic!("{options} was taken, as {}", scenario.options()),
        Err(error) => error.to_string(),
    }
}

/// Observations, actions and outcomes of one round, one per agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Round {
    pub seen: Vec<String>,
    pub actions: Vec<Option<usize>>,
    pub outcomes: Vec<Outcome>,
}

/// Returns the observations of all agents.
pub fn seen(scenario: &dyn Scenario, game: &dyn Game) -> Vec<String> {
    let agents = 0..scenario.agents();
    agents.map(|agent| game.observe(agent).unwrap()).collect()
}

/// Plays until the episodes of all agents are over, or to the step limit; `choose` gives each agent's action.
pub fn play(
    scenario: &dyn Scenario,
    game: &mut dyn Game,
    mut choose: impl FnMut(&dyn Game, usize) -> Option<usize>,
) -> Vec<Round> {
    let mut rounds: Vec<Round> = Vec::new();
    while rounds.len() < scenario.step_limit() && !rounds.last().is_some_and(all_over) {
        let seen = seen(scenario, game);
        let agents = 0..scenario.agents();
        let actions: Vec<Option<usize>> = agents.map(|agent| choose(game, agent)).collect();
        let outcomes = game.play(&actions).unwrap();
        assert_eq!(outcomes.len(), scenario.agents());
        rounds.push(Round {
            seen,
            actions,
            outcomes,
        });
    }
    rounds
}

pub fn all_over(round: &Round) -> bool {
    round.outcomes.iter().all(|outcome| outcome.over)
}

/// Returns a player of random actions, some of which are unreadable.
pub fn random(scenario: &dyn Scenario, seed: u64) -> impl FnMut(&dyn Game, usize) -> Option<usize> {
    let count = scenario.actions().len();
    let mut stream = Stream::new(seed, "random player");
    move |_, _| Some(stream.below(count + 1)).filter(|&action| action < count)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn the_same_seeds_give_the_same_game(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let run = || {
                let mut game = scenario.start(scene, luck).unwrap();
                let rounds = play(&*scenario, &mut *game, random(&*scenario, player));
                let described = |agent| {
                    (game.key(agent).unwrap(), game.succeeded(agent), game.best_actions(agent), game.optimum(agent))
                };
                let described: Vec<_> = (0..scenario.agents()).map(described).collect();
                (rounds, seen(&*scenario, &*game), described)
            };
            prop_assert_eq!(run(), run());
        }
    }

    #[test]
    fn luck_does_not_change_the_scene(scene: u64, luck: u64, other: u64) {
        for (_, scenario) in scenarios() {
            let first = |luck| {
                let game = scenario.start(scene, luck).unwrap();
                let keys: Vec<String> = (0..scenario.agents()).map(|agent| game.key(agent).unwrap()).collect();
                (seen(&*scenario, &*game), keys)
            };
            prop_assert_eq!(first(luck), first(other));
        }
    }

    #[test]
    fn rewards_keep_within_their_bounds(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let Some((lowest, highest)) = scenario.reward_bounds() else { continue };
            let mut over = vec![false; scenario.agents()];
            for round in play(&*scenario, &mut *scenario.start(scene, luck).unwrap(), random(&*scenario, player)) {
                for (outcome, _) in round.outcomes.iter().zip(&over).filter(|(_, over)| !**over) {
                    let reward = outcome.reward;
                    prop_assert!((lowest..=highest).contains(&reward), "{reward} not in {lowest}..={highest}");
                }
                over = round.outcomes.iter().map(|outcome| outcome.over).collect();
            }
        }
    }

    /// Any action of an agent whose episode is over is ignored, even one out of range.
    #[test]
    fn what_is_over_stays_over(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let mut game = scenario.start(scene, luck).unwrap();
            let mut random = random(&*scenario, player);
            let mut over = vec![false; scenario.agents()];
            for _ in 0..scenario.step_limit() {
                let choose = |agent: usize| if over[agent] { Some(usize::MAX) } else { random(&*game, agent) };
                let actions: Vec<Option<usize>> = (0..over.len()).map(choose).collect();
                let ended = |agent: usize| (over[agent], game.succeeded(agent), game.optimum(agent));
                let before: Vec<_> = (0..over.len()).map(ended).collect();
                let outcomes = game.play(&actions).unwrap();
                for (agent, &(over, success, optimum)) in before.iter().enumerate() {
                    if over {
                        prop_assert_eq!(outcomes[agent], Outcome { reward: 0.0, over: true });
                        prop_assert_eq!((game.succeeded(agent), game.optimum(agent)), (success, optimum));
                    }
                }
                over = outcomes.iter().map(|outcome| outcome.over).collect();
                for (agent, &over) in over.iter().enumerate() {
                    prop_assert_eq!(game.ending(agent).is_some(), over, "a game tells why it is over");
                }
            }
        }
    }

    #[test]
    fn after_the_end_nothing_changes(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let mut game = scenario.start(scene, luck).unwrap();
            let rounds = play(&*scenario, &mut *game, random(&*scenario, player));
            if rounds.last().is_some_and(all_over) {
                let agents = scenario.agents();
                let success = |game: &dyn Game| (0..agents).map(|agent| game.succeeded(agent)).collect::<Vec<bool>>();
                let before = (seen(&*scenario, &*game), success(&*game));
                for action in (0..scenario.actions().len()).map(Some).chain([None]) {
                    let outcomes = game.play(&vec![action; agents]).unwrap();
                    prop_assert_eq!(outcomes, vec![Outcome { reward: 0.0, over: true }; agents]);
                    prop_assert_eq!((seen(&*scenario, &*game), success(&*game)), before.clone());
                }
            }
        }
    }

    /// The referee applies the limit. A game that ended for it would look as if it had reached a last state.
    #[test]
    fn no_game_ends_because_of_the_step_limit(scene: u64, luck: u64, player: u64) {
        for (kind, scenario) in scenarios() {
            let mut options = scenario.options();
            options["step_limit"] = json!(scenario.step_limit() + 5);
            let longer = configured(kind, &options);
            let over = |under: &dyn Scenario| {
                let rounds = play(under, &mut *under.start(scene, luck).unwrap(), random(under, player));
                let over = |round: &Round| round.outcomes.iter().map(|outcome| outcome.over).collect::<Vec<bool>>();
                rounds[..rounds.len().min(scenario.step_limit())].iter().map(over).collect::<Vec<_>>()
            };
            prop_assert_eq!(over(&*scenario), over(&*longer), "{}", kind.name);
        }
    }

    #[test]
    fn the_scripted_player_always_has_an_action(scene: u64, luck: u64, player: u64) {
        for (_, scenario) in scenarios() {
            let mut random = random(&*scenario, player);
            let checked = |game: &dyn Game, agent: usize| {
                let Some(best) = game.best_actions(agent) else { return random(game, agent) };
                assert!(!best.is_empty() && best.iter().all(|&action| action < scenario.actions().len()), "{best:?}");
                assert!(best.is_sorted_by(|one, next| one < next), "{best:?}");
                random(game, agent)
            };
            play(&*scenario, &mut *scenario.start(scene, luck).unwrap(), checked);
        }
    }
}

/// Different states have different keys, and equal states have equal keys. Observations in words show whole states.
#[test]
fn keys_stand_for_observations_in_words_and_do_not_depend_on_the_view() {
    for (kind, scenario) in scenarios() {
        let Some(option) = kind.options.iter().find(|option| option.name == "view") else {
            continue;
        };
        let viewed = |view: &str| {
            let mut options = scenario.options();
            options["view"] = json!(view);
            configured(kind, &options)
        };
        let in_words = ["full", "coordinates", "relative"].into_iter();
        for view in in_words.filter(|view| option.wanted().contains(view)) {
            let (told, board) = (viewed(view), viewed("board"));
            let (mut states, mut keys) = (HashMap::new(), HashMap::new());
            let mut met_again = 0;
            for seed in 0..60 {
                let mut whole = told.start(seed, seed).unwrap();
                let mut pictured = board.start(seed, seed).unwrap();
                let mut random = random(&*scenario, seed);
                for _ in 0..scenario.step_limit() {
                    for agent in 0..scenario.agents() {
                        let (key, state) =
                            (whole.key(agent).unwrap(), whole.observe(agent).unwrap());
                        assert_eq!(pictured.key(agent).unwrap(), key);
                        assert!(!key.contains('\n') && key.len() < state.len(), "{key}");
                        let known = states.insert(key.clone(), state.clone());
                        met_again += usize::from(known.is_some());
                        assert!(known.is_none_or(|known| known == state), "{key}\n{state}");
                        let known = keys.insert(state.clone(), key.clone());
                        assert!(known.is_none_or(|known| known == key), "{key}\n{state}");
                    }
                    let agents = 0..scenario.agents();
                    let actions: Vec<_> = agents.map(|agent| random(&*whole, agent)).collect();
                    assert_eq!(whole.play(&actions), pictured.play(&actions));
                }
            }
            assert!(met_again > 0, "{}: no state twice", scenario.options());
        }
    }
}

/// A thing that one move leads to is what that move meets, and where none is there is nothing.
#[test]
fn the_relative_view_tells_what_each_move_meets() {
    for (game, mut options) in [
        ("frozen-lake", json!({ "frozen": 0.6 })),
        ("frozen-lake", json!({ "frozen": 0.6, "swapped": true })),
        ("snake", json!({ "size": 4, "enemies": 0 })),
        ("snake", json!({ "size": 4, "enemies": 0, "swapped": true })),
    ] {
        options["view"] = json!("relative");
        let scenario = configured(find(game).unwrap(), &options);
        let mut met = HashSet::new();
        for seed in 0..60 {
            let mut game = scenario.start(seed, seed).unwrap();
            let mut random = random(&*scenario, seed);
            let mut over = false;
            while !over {
                let seen = game.observe(0).unwrap();
                for (action, name) in scenario.actions().iter().enumerate() {
                    let lines = seen.lines().filter_map(|line| line.split_once(": "));
                    let mut beside =
                        lines.filter(|(_, ways)| ways.split(", ").any(|way| way == name));
                    let thing = beside.next().map_or("nothing", |(thing, _)| thing);
                    let mut tried = game.fork(seed).unwrap();
                    let outcome = tried.play(&[Some(action)]).unwrap()[0];
                    let wanted = match thing {
                        "nothing" => !outcome.over && outcome.reward <= 0.0,
                        "Holes" | "Walls" | "Your body" => outcome.over && outcome.reward <= 0.0,
                        "Goal" | "Apples" => outcome.reward > 0.0,
                        _ => false,
                    };
                    assert!(wanted, "{seen}\n{name}: {thing}, {outcome:?}");
                    met.insert(thing.to_owned());
                }
                let action = random(&*game, 0);
                over = game.play(&[action]).unwrap()[0].over;
            }
        }
        let things = if game == "snake" { 4 } else { 3 };
        assert_eq!(met.len(), things, "{game}: {met:?}");
    }
}

/// Planes have the same shape in all games of a scenario, and equal states have equal planes.
#[test]
fn planes_have_one_shape_and_follow_from_the_state() {
    let mut with_planes = HashSet::new();
    for (kind, scenario) in scenarios() {
        let (mut shape, mut states) = (None, HashMap::new());
        for seed in 0..30 {
            let mut game = scenario.start(seed, seed).unwrap();
            let mut random = random(&*scenario, seed);
            for _ in 0..scenario.step_limit() {
                for agent in 0..scenario.agents() {
                    let Some(planes) = game.planes(agent).unwrap() else {
                        continue;
                    };
                    with_planes.insert(kind.name);
                    let own = (planes.names.clone(), planes.height, planes.width);
                    let cells = own.0.len() * own.1 * own.2;
                    assert_eq!(*shape.get_or_insert_with(|| own.clone()), own);
                    assert!(planes.ones.is_sorted_by(|one, next| one < next));
                    assert!(planes.ones.last().is_none_or(|&last| last < cells));
                    let key = game.key(agent).unwrap();
                    let known = states.insert(key, planes.clone());
                    assert!(known.is_none_or(|known| known == planes), "{planes:?}");
                }
                let agents = 0..scenario.agents();
                let actions: Vec<_> = agents.map(|agent| random(&*game, agent)).collect();
                game.play(&actions).unwrap();
            }
        }
    }
    assert_eq!(with_planes, HashSet::from(["frozen-lake", "snake"]));
}

#[test]
fn names_and_action_words_are_distinct_plain_words() {
    // A name can have digits as in 2048, an action two words as in "turn left".
    let plain = |word: &str, other: fn(char) -> bool| {
        let letter = |letter: char| letter.is_ascii_lowercase() || letter == '-' || other(letter);
        !word.is_empty() && word.trim() == word && word.chars().all(letter)
    };
    for (place, kind) in GAMES.iter().enumerate() {
        assert!(
            plain(kind.name, |letter| letter.is_ascii_digit())
                && GAMES[..place].iter().all(|other| other.name != kind.name),
            "{}",
            kind.name
        );
        assert!(kind.summary.ends_with('.'), "{}", kind.summary);
    }
    for (kind, scenario) in scenarios() {
        assert_eq!(scenario.name(), kind.name);
        let words = scenario.actions();
        for (place, word) in words.iter().enumerate() {
            assert!(
                plain(word, |letter| letter == ' ') && !words[..place].contains(word),
                "{}: {words:?}",
                kind.name
            );
        }
    }
}

#[test]
fn bad_actions_panic_with_the_name_of_the_game() {
    for (kind, scenario) in scenarios() {
        let panic = |actions: &[Option<usize>]| {
            let play = || scenario.start(0, 0).unwrap().play(actions);
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(play)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        let (agents, count) = (scenario.agents(), scenario.actions().len());
        let wanted = format!("{}: there is no action {count}, only {count}", kind.name);
        let mut one_wrong = vec![None; agents];
        one_wrong[agents - 1] = Some(count);
        assert_eq!(panic(&one_wrong), wanted);
        for given in [0, agents + 1] {
            let wanted = format!("{}: {given} actions for {agents} agents", kind.name);
            assert_eq!(panic(&vec![Some(0); given]), wanted);
        }
    }
}

/// The rules are part of every prompt, so their length costs tokens.
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
fn the_options_given_are_in_force() {
    let parsed = |(name, options): &(&'static str, &str)| {
        (*name, serde_json::from_str::<Value>(options).unwrap())
    };
    let mut all: Vec<(&str, Value)> = TESTED.iter().map(parsed).collect();
    for kind in GAMES {
        all.extend(kind.variants.iter().map(|it| (kind.name, (it.options)())));
        all.extend(kind.probes.iter().map(|it| (kind.name, (it.options)())));
    }
    for (name, given) in all {
        let in_force = configured(find(name).unwrap(), &given).options();
        for (option, value) in given.as_object().unwrap() {
            assert!(
                same(&in_force[option], value),
                "{name}: {option} in {in_force}"
            );
        }
    }
}

/// Whether two values are equal, with numbers written with or without a point.
fn same(one: &Value, other: &Value) -> bool {
    one == other || (one.is_number() && one.as_f64() == other.as_f64())
}

/// Every value of an option is either in force or refused with the option's name.
#[test]
fn no_option_is_ignored_whatever_its_value() {
    let values = [
        json!(true),
        json!("text"),
        json!([]),
        json!([1]),
        json!({}),
        json!(-3),
        json!(2.5),
        json!(u64::MAX),
        json!(1e300),
        json!(-1e300),
    ];
    let mut taken = Vec::new();
    for kind in GAMES {
        for option in kind.options.iter().map(|option| option.name) {
            let with = |value: &Value| (kind.configure)(&json!({ option: value }));
            let refused = format!("{}: option `{option}` ", kind.name);
            for value in &values {
                match with(value) {
                    Err(error) => assert!(error.to_string().starts_with(&refused), "{error}"),
                    Ok(scenario) => {
                        let in_force = &scenario.options()[option];
                        assert!(same(in_force, value), "{value} became {in_force}");
                        taken.push(format!("{} {option} {value}", kind.name));
                    }
                }
            }
            // A NaN becomes null on its way into JSON.
            for null in [json!(null), json!(f64::NAN)] {
                let error = with(&null).expect_err(option).to_string();
                let wanted = format!("{refused}is null, but must be ");
                assert!(error.starts_with(&wanted), "{error}");
            }
        }
    }
    insta::assert_snapshot!(taken.join("\n"), @r"
    frozen-lake slippery true
    frozen-lake swapped true
    snake apple_reward -3
    snake apple_reward 2.5
    snake banana_reward -3
    snake banana_reward 2.5
    snake fire_reward -3
    snake fire_reward 2.5
    snake death_reward -3
    snake death_reward 2.5
    snake step_reward -3
    snake step_reward 2.5
    snake swapped true
    sokoban step_reward -3
    sokoban box_reward 2.5
    sokoban done_reward 2.5
    sokoban swapped true
    rooms swapped true
    2048 up_cost 2.5
    2048 swapped true
    ");
}

#[test]
fn options_that_are_no_options_are_refused() {
    for kind in GAMES {
        for options in [
            json!(null),
            json!([1]),
            json!("4x4"),
            json!({"no such option": 1}),
        ] {
            let error = refusal(kind.name, options);
            assert!(
                error.starts_with(kind.name) && !error.ends_with('.'),
                "{error}"
            );
        }
    }
}

/// Variants and probes have unique names and set their options.
#[test]
fn variants_and_probes_are_found_by_names_of_their_own() {
    let mut names = HashSet::new();
    for kind in GAMES {
        assert!(names.insert(kind.name));
        assert_eq!(find_variant(kind.name).unwrap().1, json!({}));
        for variant in kind.variants {
            let (of, options) = find_variant(variant.name).unwrap();
            assert!(names.insert(variant.name), "{} twice", variant.name);
            assert_eq!(of.name, kind.name);
            assert_eq!(options, (variant.options)());
            assert!(
                variant.name.starts_with(&format!("{}-", kind.name)),
                "{}",
                variant.name
            );
            assert!(variant.summary.ends_with('.'), "{}", variant.summary);
        }
        let mut probes = HashSet::new();
        for probe in kind.probes {
            assert!(probes.insert(probe.name), "{} twice", probe.name);
            let found = (kind.probe(probe.name).unwrap().options)();
            assert_eq!(found, (probe.options)());
            assert!(found.as_object().is_some_and(|set| !set.is_empty()));
            assert!(probe.summary.ends_with('.'), "{}", probe.summary);
        }
        assert!(kind.probe("no such probe").is_none());
    }
}

/// A probe changes the rules or the observations.
#[test]
fn a_probe_changes_the_text_that_an_agent_reads() {
    for kind in GAMES {
        let usual = configured(kind, &json!({}));
        for probe in kind.probes {
            let probed = configured(kind, &(probe.options)());
            let texts = |scenario: &dyn Scenario| {
                let game = scenario.start(1, 1).unwrap();
                (scenario.rules(), game.observe(0).unwrap())
            };
            assert_ne!(
                texts(&*usual),
                texts(&*probed),
                "{} {}",
                kind.name,
                probe.name
            );
        }
    }
}

/// Only a changed meaning has a habit; other words and signs do not change the meaning.
#[test]
fn habits_are_known_where_the_meaning_has_changed() {
    for kind in GAMES {
        let usual = ("the usual game", json!({}), false);
        let probes = kind.probes.iter().map(|probe| {
            let options = (probe.options)();
            let same_meaning = |name: &String| name == "wording" || name == "symbols";
            let changed = !options.as_object().unwrap().keys().all(same_meaning);
            (probe.name, options, changed)
        });
        for (name, options, changed) in std::iter::once(usual).chain(probes) {
            let scenario = configured(kind, &options);
            let mut random = random(&*scenario, 7);
            let checked = |game: &dyn Game, agent: usize| {
                let expected = changed && game.best_actions(agent).is_some();
                let habit = game.habit(agent);
                assert_eq!(habit.is_some(), expected, "{} {name}", kind.name);
                if let Some(habit) = habit {
                    let words = scenario.actions().len();
                    assert!(!habit.is_empty() && habit.iter().all(|&action| action < words));
                    assert!(habit.is_sorted_by(|one, next| one < next), "{habit:?}");
                }
                random(game, agent)
            };
            play(&*scenario, &mut *scenario.start(2, 3).unwrap(), checked);
        }
    }
}

#[test]
fn a_fork_continues_with_its_own_luck_and_leaves_the_game_unchanged() {
    for (name, _, scenario) in named() {
        for seed in 0..20 {
            let start = || scenario.start(seed, seed).unwrap();
            let (mut game, mut twin) = (start(), start());
            let mut before = random(&*scenario, seed);
            for _ in 0..scenario.step_limit().min(3) {
                let agents = 0..scenario.agents();
                let actions: Vec<_> = agents.map(|agent| before(&*game, agent)).collect();
                assert_eq!(game.play(&actions), twin.play(&actions));
            }
            let Some(mut fork) = game.fork(5) else {
                continue;
            };
            let mut again = game.fork(5).unwrap();
            let state = |game: &dyn Game| {
                let described = |agent| {
                    let (key, best) = (game.key(agent).unwrap(), game.best_actions(agent));
                    let end = (game.succeeded(agent), game.ending(agent));
                    (key, best, game.optimum(agent), end)
                };
                let described: Vec<_> = (0..scenario.agents()).map(described).collect();
                (described, seen(&*scenario, game))
            };
            let here = state(&*game);
            assert_eq!(state(&*fork), here, "{name}");
            let go_on = |game: &mut dyn Game| play(&*scenario, game, random(&*scenario, seed));
            assert_eq!(go_on(&mut *fork), go_on(&mut *again), "{name}");
            assert_eq!(state(&*game), here, "{name}");
            assert_eq!(go_on(&mut *game), go_on(&mut *twin), "{name}");
        }
    }
}

#[test]
fn the_error_for_an_unknown_game_lists_all() {
    let variants = |kind: &Kind| kind.variants.iter().map(|it| it.name).collect::<Vec<_>>();
    let names = |kind: &Kind| [vec![kind.name], variants(kind)].concat();
    let all = GAMES.iter().flat_map(names).collect::<Vec<_>>().join(", ");
    for (name, suggestion) in [
        ("frozenlake", " (did you mean `frozen-lake`?)"),
        ("sanke", " (did you mean `snake`?)"),
        ("snake-downhil", " (did you mean `snake-downhill`?)"),
        ("chess", ""),
    ] {
        let error = find_variant(name).unwrap_err().to_string();
        let wanted = format!("unknown game `{name}`{suggestion}; the games are {all}");
        assert_eq!(error, wanted);
        if name != "snake-downhil" {
            assert_eq!(find(name).unwrap_err().to_string(), wanted);
        }
    }
    let variant = find("snake-downhill").unwrap_err().to_string();
    assert!(
        variant.starts_with("`snake-downhill` is a variant of snake"),
        "{variant}"
    );
}

/// The most rounds that a transcript shows. The digest in its last line covers all.
const SHOWN: usize = 30;

/// The rules and an episode of the scripted player, or else of a random one, with one unreadable action, for each game,
/// variant and probe.
#[test]
fn transcripts() {
    for (name, _, scenario) in named() {
        let mut game = scenario.start(3, 5).unwrap();
        let mut asked = vec![0; scenario.agents()];
        let mut random = random(&*scenario, 3);
        let player = |game: &dyn Game, agent: usize| {
            asked[agent] += 1;
            match asked[agent] {
                2 => None,
                _ => match game.best_actions(agent) {
                    Some(best) => Some(best[0]),
                    None => random(game, agent),
                },
            }
        };
        // A single agent needs no number.
        let alone = scenario.agents() == 1;
        let whose = |agent| {
            if alone {
                String::new()
            } else {
                format!("agent {agent}:\n")
            }
        };
        let mut text = format!("options: {}\n\n{}\n", scenario.options(), scenario.rules());
        let mut over = vec![false; scenario.agents()];
        let (mut all, mut returns) = (text.clone(), vec![0.0; scenario.agents()]);
        let rounds = play(&*scenario, &mut *game, player);
        for (number, round) in rounds.iter().enumerate() {
            let seen = round.seen.iter().enumerate();
            for (agent, seen) in seen.filter(|(agent, _)| !over[*agent]) {
                let word = round.actions[agent]
                    .map_or("(not readable)", |action| &scenario.actions()[action]);
                let reward = round.outcomes[agent].reward;
                returns[agent] += reward;
                all += &format!("\n{}{seen}\n> {word}   reward {reward}\n", whose(agent));
            }
            over = round.outcomes.iter().map(|outcome| outcome.over).collect();
            if number < SHOWN {
                text.clone_from(&all);
            }
        }
        let mut ends = String::new();
        for (agent, sum) in returns.into_iter().enumerate() {
            let (seen, success) = (game.observe(agent).unwrap(), game.succeeded(agent));
            ends += &format!(
                "\n{}{seen}\nsuccess: {success}, return: {sum}\n",
                whose(agent)
            );
        }
        all += &ends;
        if rounds.len() > SHOWN {
            text += &format!("\n[{} more rounds]\n", rounds.len() - SHOWN);
        }
        let mut digest = Digest::default();
        digest.write(all.as_bytes());
        let (count, digest) = (rounds.len(), digest.finish());
        text +=
            &format!("{ends}\nrounds: {count}, digest of the whole transcript: {digest:016x}\n");
        insta::assert_snapshot!(name, text);
    }
}
