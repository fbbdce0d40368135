//! Tests of play with the built-in model: the referee, and players of every kind in one game.

use lapwing_play::PlayError;
use lapwing_play::evaluate::play_against;
use lapwing_play::metrics::PlayMetrics;
use lapwing_play::players::scripted::{RandomPlayer, ScriptedPlayer};
use lapwing_play::{ActionRequest, Episode, EpisodeEnd, Player, Referee, Reply, Seat};
use lapwing_tensor::check::gpu;
use lapwing_train::state::{RunPurpose, State};

use crate::training::{config, seats, state};

/// At such a temperature nearly all replies are unreadable: the player does not move, the turn counts, the penalty
/// applies, and the step limit ends the episode.
#[test]
fn the_referee_deals_with_replies_that_cannot_be_read() {
    let mut state = state(config(&["policy.format_penalty=0.25"]));
    let episodes = state
        .learner
        .play(&state.config.policy, 0, &seats(6), 1000.0, &())
        .unwrap();
    let limit = state.world().scenario.step_limit();
    let mut unread = 0;
    for episode in &episodes {
        assert!(episode.turns.len() <= limit);
        let truncated = episode.ending == Some(EpisodeEnd::Truncated);
        assert!(!truncated || episode.turns.len() == limit && !episode.success);
        for (i, turn) in episode.turns.iter().enumerate() {
            let next = episode
                .turns
                .get(i + 1)
                .map_or(&episode.last, |next| &next.observation);
            if turn.action.is_none() {
                unread += 1;
                assert_eq!((turn.reward, turn.shaping), (0.0, -0.25));
                assert_eq!(*next, turn.observation);
            } else {
                assert_eq!(turn.shaping, 0.0);
            }
        }
        let unread = episode
            .turns
            .iter()
            .filter(|turn| turn.action.is_none())
            .count();
        let penalties = episode.game_return() - episode.composite_return();
        assert!((penalties - 0.25 * unread as f64).abs() < 1e-9);
    }
    assert!(unread > 50, "{unread} of at most {} replies", 6 * limit);
    assert!(
        episodes
            .iter()
            .any(|episode| episode.ending == Some(EpisodeEnd::Truncated))
    );
}

/// An episode that the rules end is not truncated, even in the last turn that the limit allows.
#[test]
fn a_goal_in_the_last_step_is_not_a_truncation() {
    // A trained agent is not needed: on a lake of one move, some of many episodes make it at once.
    let config = config(&["game.options.map=[\"SG\"]", "game.options.step_limit=1"]);
    let seat = |i| Seat {
        scene: 0,
        luck: 0,
        reply: i,
    };
    let seats: Vec<Seat> = (0..40).map(seat).collect();
    let mut state = state(config);
    let episodes = state
        .learner
        .play(&state.config.policy, 0, &seats, 1.0, &())
        .unwrap();
    assert!(
        episodes.iter().any(|episode| episode.success),
        "forty tries at one move in four"
    );
    for episode in episodes {
        let ending = if episode.success {
            EpisodeEnd::Terminated
        } else {
            EpisodeEnd::Truncated
        };
        assert_eq!(episode.ending, Some(ending));
        assert_eq!(episode.success, episode.composite_return() == 1.0);
    }
}

/// Two policies play one game, each with its own observation and reward. One of them samples at a high temperature, so
/// its replies differ from the other's.
#[test]
fn two_models_play_snake_against_each_other() {
    let changes = [
        "game.name=snake",
        "game.options.agents=2",
        "game.options.enemies=0",
        "game.options.size=6",
    ];
    let load = || State::new(&gpu(), None, config(&changes), RunPurpose::Play, &()).unwrap();
    let (mut one, mut other) = (load(), load());
    let (_, _, mut confused) = other.seated(0, 1000.0);
    let (scenario, _, mut sober) = one.seated(0, 1.0);
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: 0.1,
    };
    let play = |players: &mut [&mut dyn Player]| {
        referee
            .play(scenario, &seats(8), players, &mut |_| ())
            .unwrap()
    };
    let episodes = play(&mut [&mut sober, &mut confused]);
    assert_eq!(episodes.len(), 16);
    let of = |agent: usize| -> Vec<&Episode> { episodes.iter().skip(agent).step_by(2).collect() };
    let valid = |episodes: &[&Episode]| {
        let turns = || episodes.iter().flat_map(|episode| &episode.turns);
        turns().filter(|turn| turn.action.is_some()).count() as f64 / turns().count() as f64
    };
    assert!(
        valid(&of(0)) > 0.9 && valid(&of(1)) < 0.5,
        "{} and {}",
        valid(&of(0)),
        valid(&of(1))
    );
    for (first, second) in of(0).into_iter().zip(of(1)) {
        assert_ne!(first.turns[0].observation, second.turns[0].observation);
        assert!(first.ending.is_some() && second.ending.is_some());
        assert!(
            first
                .turns
                .iter()
                .chain(&second.turns)
                .all(|turn| turn.sampled.is_some())
        );
    }
    let returns = |agent| -> Vec<f64> { of(agent).iter().map(|e| e.game_return()).collect() };
    assert_ne!(returns(0), returns(1));
    // Scripted and random players can play beside a model, too.
    let mixed = play(&mut [&mut RandomPlayer::default(), &mut ScriptedPlayer::default()]);
    assert!(
        mixed
            .iter()
            .all(|episode| episode.turns.iter().all(|turn| turn.sampled.is_none()))
    );
}

/// An agent whose replies are all unreadable cannot die in Snake, and must not look good.
#[test]
fn silence_is_no_good_player_of_snake() {
    struct Silent;
    impl Player for Silent {
        fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
            Ok(vec![Reply::default(); asks.len()])
        }
    }
    let scenario = (lapwing_env::find("snake").unwrap().configure)(&serde_json::json!({})).unwrap();
    let referee = Referee {
        step_limit: scenario.step_limit(),
        format_penalty: 1.0,
    };
    let played = |player: &mut dyn Player| {
        let seats = seats(100);
        let episodes = play_against(&*scenario, &referee, &seats, player, &mut [], &()).unwrap();
        PlayMetrics::of(scenario.actions(), &episodes)
    };
    let (silent, random) = (played(&mut Silent), played(&mut RandomPlayer::default()));
    assert!(
        silent.return_mean > random.return_mean,
        "{silent:?} and {random:?}"
    );
    assert!(
        silent.composite_return_mean < random.composite_return_mean - 5.0,
        "{silent:?} and {random:?}"
    );
    assert_eq!(silent.valid_action_rate, 0.0);
    assert_eq!(random.return_mean, random.composite_return_mean);
}
