//! Snake through the public interface.

use serde_json::json;

use crate::games::{configured, named, play, random, refusal};
use lapwing_env::{Game, Outcome, find};

#[test]
fn a_bad_option_is_refused() {
    let refused = |options| refusal("snake", options);
    insta::assert_snapshot!(refused(json!({ "aples": 4 })), @"snake: unknown option `aples` (did you mean `apples`?); the options are size, width, height, agents, enemies, apples, bananas, fires, apple_reward, banana_reward, fire_reward, death_reward, step_reward, step_limit, view, opponent, hill, swapped, symbols, wording");
    insta::assert_snapshot!(refused(json!({ "size": 1 })), @"snake: option `size` is 1, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "width": 100 })), @"snake: option `width` is 100, but must be an integer from 2 to 64");
    insta::assert_snapshot!(refused(json!({ "enemies": 9 })), @"snake: option `enemies` is 9, but must be an integer from 0 to 8");
    insta::assert_snapshot!(refused(json!({ "agents": 0 })), @"snake: option `agents` is 0, but must be an integer from 1 to 9");
    insta::assert_snapshot!(refused(json!({ "agents": 10 })), @"snake: option `agents` is 10, but must be an integer from 1 to 9");
    insta::assert_snapshot!(refused(json!({ "agents": 9 })), @"snake: option `agents` is 9, but must be at most 8 with `enemies` = 1, 9 snakes in all");
    insta::assert_snapshot!(refused(json!({ "agents": 4, "enemies": 6 })), @"snake: option `agents` is 4, but must be at most 3 with `enemies` = 6, 9 snakes in all");
    insta::assert_snapshot!(refused(json!({ "size": 2, "agents": 5, "enemies": 0 })), @"snake: option `agents` is 5, but must be at most 4 (free cells of 4)");
    insta::assert_snapshot!(refused(json!({ "size": 6, "width": 5, "height": 4 })), @"snake: option `size` is 6, but must be left out beside `width` and `height`");
    insta::assert_snapshot!(refused(json!({ "step_reward": f64::NAN })), @"snake: option `step_reward` is null, but must be a number from -1000 to 1000");
    insta::assert_snapshot!(refused(json!({ "size": 2, "enemies": 4, "apples": 0 })), @"snake: option `enemies` is 4, but must be at most 3 (free cells of 4)");
    insta::assert_snapshot!(refused(json!({ "size": 3, "apples": 8 })), @"snake: option `apples` is 8, but must be at most 7 (free cells of 9)");
    insta::assert_snapshot!(refused(json!({ "size": 3, "apples": 2, "bananas": 3, "fires": 3 })), @"snake: option `fires` is 3, but must be at most 2 (free cells of 9)");
    insta::assert_snapshot!(refused(json!({ "apples": 1.5 })), @"snake: option `apples` is 1.5, but must be an integer from 0 to 4096");
    insta::assert_snapshot!(refused(json!({ "apples": 99 })), @"snake: option `apples` is 99, but must be at most 98 (free cells of 100)");
    insta::assert_snapshot!(refused(json!({ "apples": u64::MAX })), @"snake: option `apples` is 18446744073709551615, but must be an integer from 0 to 4096");
    insta::assert_snapshot!(refused(json!({ "death_reward": -1e9 })), @"snake: option `death_reward` is -1000000000.0, but must be a number from -1000 to 1000");
    insta::assert_snapshot!(refused(json!({ "step_reward": "none" })), @r#"snake: option `step_reward` is "none", but must be a number from -1000 to 1000"#);
    insta::assert_snapshot!(refused(json!({ "step_limit": 0 })), @"snake: option `step_limit` is 0, but must be an integer from 1 to 100000");
    insta::assert_snapshot!(refused(json!({ "opponent": "kind" })), @r#"snake: option `opponent` is "kind", but must be `random` or `greedy`"#);
    insta::assert_snapshot!(refused(json!({ "opponent": "greedy", "enemies": 0 })), @r#"snake: option `opponent` is "greedy", but must be left out beside `enemies` = 0"#);
    insta::assert_snapshot!(refused(json!({ "hill": "down", "fires": 2 })), @r#"snake: option `hill` is "down", but must be "none" with `fires` = 2"#);
    insta::assert_snapshot!(refused(json!({ "hill": "flat" })), @r#"snake: option `hill` is "flat", but must be one of `none`, `down`, `up`, `left`, `right`"#);
    insta::assert_snapshot!(refused(json!({ "swapped": 1 })), @"snake: option `swapped` is 1, but must be true or false");
    insta::assert_snapshot!(refused(json!({ "view": true })), @"snake: option `view` is true, but must be one of `board`, `coordinates`, `relative`, `full`");
}

#[test]
fn the_rules_tell_the_variant() {
    let rules = |options| configured(find("snake").unwrap(), &options).rules();
    insta::assert_snapshot!(rules(json!({})), @"You are snake 1. All snakes move at once. Key: 1 your head, 2 enemy head, T body, A apple, _ empty. Each apple gives 1 point and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
    insta::assert_snapshot!(rules(json!({ "apple_reward": -1 })), @"You are snake 1. All snakes move at once. Key: 1 your head, 2 enemy head, T body, A apple, _ empty. Each apple is poisonous, costs 1 point and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
    insta::assert_snapshot!(rules(json!({ "enemies": 0, "bananas": 2, "banana_reward": 5, "view": "full" })), @"You are snake 1. Each apple gives 1 point and makes you longer. Each banana gives 5 points and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
    insta::assert_snapshot!(rules(json!({ "agents": 2, "enemies": 0 })), @"You are snake 1. All snakes move at once. Key: 1 your head, 2 enemy head, T body, A apple, _ empty. Each apple gives 1 point and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
    insta::assert_snapshot!(rules(json!({ "agents": 2, "enemies": 2 })), @"You are snake 1. All snakes move at once. Key: 1 your head, 2 to 4 enemy heads, T body, A apple, _ empty. Each apple gives 1 point and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
    insta::assert_snapshot!(rules(json!({ "enemies": 3, "fires": 2, "apple_reward": 0 })), @"You are snake 1. All snakes move at once. Key: 1 your head, 2 to 4 enemy heads, T body, A apple, F fire, _ empty. Each apple gives nothing and makes you longer. Each fire costs 1 point and makes you longer. You die if you hit a wall, a snake or your own body. Get as many points as you can.");
}

/// Returns the place of the agent's head in a picture.
fn head(board: &str) -> Option<usize> {
    board.find('1')
}

#[test]
fn an_unread_action_neither_moves_nor_kills_the_agent() {
    let scenario = configured(
        find("snake").unwrap(),
        &json!({ "size": 4, "enemies": 3, "apples": 2 }),
    );
    for seed in 0..200 {
        let mut game = scenario.start(seed, seed).unwrap();
        let start = head(&game.observe(0).unwrap());
        for round in play(&*scenario, &mut *game, |_, _| None) {
            assert_eq!(head(&round.seen[0]), start);
            assert_eq!(round.outcomes[0].reward, -0.01);
        }
        assert_eq!(head(&game.observe(0).unwrap()), start);
    }
}

#[test]
fn without_enemies_the_game_goes_on_until_the_agent_dies() {
    let scenario = configured(
        find("snake").unwrap(),
        &json!({ "enemies": 0, "step_limit": 10_000 }),
    );
    for seed in 0..50 {
        let mut game = scenario.start(seed, seed).unwrap();
        let rounds = play(&*scenario, &mut *game, random(&*scenario, seed));
        let died = Outcome {
            reward: -2.01,
            over: true,
        };
        assert_eq!(rounds.last().unwrap().outcomes, [died]);
        assert!(!game.succeeded(0));
    }
}

#[test]
fn nine_agents_fit_and_see_themselves_as_one() {
    let options = json!({ "size": 4, "agents": 9, "enemies": 0, "apples": 7 });
    let scenario = configured(find("snake").unwrap(), &options);
    let heads = |board: &str| -> Vec<usize> {
        let heads = "123456789".chars();
        heads.map(|head| board.find(head).unwrap()).collect()
    };
    for seed in 0..20 {
        let game = scenario.start(seed, seed).unwrap();
        let first = heads(&game.observe(0).unwrap());
        for agent in 1..9 {
            let seen = heads(&game.observe(agent).unwrap());
            let mut expected = first.clone();
            let own = expected.remove(agent);
            expected.insert(0, own);
            assert_eq!(seen, expected);
        }
    }
}

#[test]
fn every_mix_of_agents_and_enemies_plays() {
    for agents in 1..=9 {
        for enemies in 0..=9 - agents {
            let options = json!({ "size": 5, "agents": agents, "enemies": enemies, "apples": 3 });
            let scenario = configured(find("snake").unwrap(), &options);
            let (lowest, highest) = scenario.reward_bounds().unwrap();
            for seed in 0..10 {
                let mut game = scenario.start(seed, seed).unwrap();
                let rounds = play(&*scenario, &mut *game, random(&*scenario, seed));
                let outcomes = rounds.iter().flat_map(|round| &round.outcomes);
                for outcome in outcomes {
                    let possible = (lowest..=highest).contains(&outcome.reward);
                    assert!(
                        possible || (outcome.over && outcome.reward == 0.0),
                        "{outcome:?}"
                    );
                }
            }
        }
    }
}

/// On the small board the scripted player mostly succeeds, and the random player rarely.
#[test]
fn on_small_boards_there_is_something_to_learn() {
    for (size, apples, enemies) in [(5, 2, 0), (5, 2, 1), (6, 3, 0), (6, 3, 1)] {
        let options = json!({ "size": size, "apples": apples, "enemies": enemies });
        let scenario = configured(find("snake").unwrap(), &options);
        let mut random = random(&*scenario, 1);
        let mut successes = [0; 2];
        for seed in 0..300 {
            let scripted = |game: &dyn Game| Some(game.best_actions(0).unwrap()[0]);
            for (player, successes) in successes.iter_mut().enumerate() {
                let mut game = scenario.start(seed, seed).unwrap();
                play(&*scenario, &mut *game, |game, agent| match player {
                    0 => scripted(game),
                    _ => random(game, agent),
                });
                *successes += i32::from(game.succeeded(0));
            }
        }
        let [scripted, random] = successes;
        assert!(
            scripted > 210 && random < 60,
            "{options}: {scripted} and {random} of 300"
        );
    }
}

#[test]
fn the_number_of_apples_stays_the_same() {
    let scenario = configured(find("snake").unwrap(), &json!({ "size": 5, "apples": 4 }));
    for seed in 0..100 {
        let mut game = scenario.start(seed, seed).unwrap();
        let greedy = |game: &dyn Game, agent| Some(game.best_actions(agent).unwrap()[0]);
        for round in play(&*scenario, &mut *game, greedy) {
            assert_eq!(round.seen[0].matches('A').count(), 4, "{}", round.seen[0]);
        }
    }
}

/// In every variant and probe the number of each food stays the same, and a head moves at most one cell.
#[test]
fn things_stay_as_many_and_heads_go_cell_by_cell() {
    for (name, kind, scenario) in named() {
        if kind.name != "snake" || scenario.options()["size"] != json!(10) {
            continue;
        }
        // The picture has characters with spaces or line ends between them; a full view has text above it.
        let cells = |seen: &str| -> Vec<char> {
            let board = seen.rsplit("State:\n").next().unwrap();
            board.chars().step_by(2).collect()
        };
        for seed in 0..20 {
            let mut game = scenario.start(seed, seed).unwrap();
            let rounds = play(&*scenario, &mut *game, random(&*scenario, seed));
            let boards: Vec<Vec<char>> = rounds.iter().map(|it| cells(&it.seen[0])).collect();
            for pair in boards.windows(2) {
                for thing in ['A', 'B', 'F', '+'] {
                    let count = |board: &[char]| board.iter().filter(|it| **it == thing).count();
                    assert_eq!(count(&pair[0]), count(&pair[1]), "{name} {thing}");
                }
                let head = |board: &[char]| board.iter().position(|it| "1@".contains(*it));
                if let (Some(from), Some(to)) = (head(&pair[0]), head(&pair[1])) {
                    let steps = (from % 10).abs_diff(to % 10) + (from / 10).abs_diff(to / 10);
                    assert!(steps <= 1, "{name}: from {from} to {to}");
                }
            }
        }
    }
}

/// The picture drawn from the planes is that of the observation.
#[test]
fn planes_show_what_the_board_shows() {
    let options =
        json!({ "width": 5, "height": 4, "agents": 2, "enemies": 1, "apples": 2, "fires": 1 });
    let scenario = configured(find("snake").unwrap(), &options);
    let names = [
        "own head",
        "own body",
        "other head",
        "other body",
        "apple",
        "fire",
    ];
    let mut met = [false; 6];
    for seed in 0..40 {
        let mut game = scenario.start(seed, seed).unwrap();
        let mut choose = random(&*scenario, seed);
        for _ in 0..12 {
            for agent in 0..2 {
                let planes = game.planes(agent).unwrap().unwrap();
                assert_eq!(planes.names, names);
                assert_eq!((planes.height, planes.width), (4, 5));
                let mut drawn = ["_"; 20];
                for one in planes.ones {
                    drawn[one % 20] = ["1", "T", "E", "T", "A", "F"][one / 20];
                    met[one / 20] = true;
                }
                let board = game.observe(agent).unwrap();
                let board = board.replace(['2', '3'], "E");
                let seen: Vec<&str> = board.split_whitespace().collect();
                assert_eq!(drawn[..], seen);
                let head = seen.iter().position(|sign| *sign == "1");
                assert_eq!(planes.at, head.map(|head| (head / 5, head % 5)));
            }
            let actions: Vec<_> = (0..2).map(|agent| choose(&*game, agent)).collect();
            game.play(&actions).unwrap();
        }
    }
    assert_eq!(met, [true; 6]);
}
