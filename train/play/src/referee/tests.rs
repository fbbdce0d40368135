//! Tests of the referee with a counting game and players that reply with numbers.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::Value;

use super::*;
use crate::config::GameConfig;
use crate::player::{ActionRequest, Reply};

/// Two agents that count: the first ends after two rounds, the second never. `breaks`: the round in which the game
/// fails, as often as there are `accidents` left.
#[derive(Debug)]
struct Counting {
    actions: Vec<String>,
    breaks: usize,
    accidents: AtomicUsize,
}

struct Count {
    rounds: usize,
    breaks: usize,
}

impl Scenario for Counting {
    fn name(&self) -> &str {
        "counting"
    }
    fn rules(&self) -> String {
        "Count.".to_owned()
    }
    fn actions(&self) -> &[String] {
        &self.actions
    }
    fn agents(&self) -> usize {
        2
    }
    fn start(&self, _: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        let less = |left: usize| left.checked_sub(1);
        let breaks = match self.accidents.fetch_update(Relaxed, Relaxed, less) {
            Ok(_) => self.breaks,
            Err(_) => 0,
        };
        Ok(Box::new(Count { rounds: 0, breaks }))
    }
    fn step_limit(&self) -> usize {
        4
    }
    fn options(&self) -> Value {
        Value::Null
    }
}

impl Game for Count {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        Ok(format!("agent {agent}, round {}", self.rounds))
    }
    fn key(&self, _: usize) -> Result<String, GameError> {
        Ok(self.rounds.to_string())
    }
    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        self.rounds += 1;
        if self.rounds == self.breaks {
            return Err(GameError::new("counting", "lost count"));
        }
        let outcome = |(agent, action): (usize, &Option<usize>)| {
            let over = agent == 0 && self.rounds >= 2;
            let late = agent == 0 && self.rounds > 2;
            let reward = if late {
                0.0
            } else {
                action.map_or(-1.0, |a| a as f64)
            };
            Outcome { reward, over }
        };
        Ok(actions.iter().enumerate().map(outcome).collect())
    }
    fn succeeded(&self, agent: usize) -> bool {
        agent == 0 && self.rounds == 2
    }
}

/// Replies with its number, or in the given turn with an unreadable text; records the requests.
struct Says {
    number: usize,
    mumbles: usize,
    asked: Vec<(usize, usize, u64)>,
}

impl Says {
    fn new(number: usize, mumbles: usize) -> Says {
        Says {
            number,
            mumbles,
            asked: Vec::new(),
        }
    }
}

impl Player for Says {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, crate::PlayError> {
        let reply = |ask: &ActionRequest<'_>| {
            assert_eq!(
                ask.seen.observation,
                format!("agent {}, round {}", ask.agent, ask.turn)
            );
            self.asked.push((ask.episode, ask.turn, ask.seen.seed));
            let action = (ask.turn != self.mumbles).then_some(self.number);
            Reply {
                action,
                text: format!("{action:?}"),
                ..Reply::default()
            }
        };
        Ok(asks.iter().map(reply).collect())
    }
}

fn scenario(breaks: usize) -> Counting {
    let actions = ["zero", "one", "two"].map(str::to_owned).to_vec();
    Counting {
        actions,
        breaks,
        accidents: AtomicUsize::new(usize::MAX),
    }
}

const REFEREE: Referee = Referee {
    step_limit: 4,
    format_penalty: 0.5,
};
const SEATS: [Seat; 2] = [
    Seat {
        scene: 1,
        luck: 2,
        reply: 3,
    },
    Seat {
        scene: 4,
        luck: 5,
        reply: 6,
    },
];

#[test]
fn every_agent_has_its_own_player_episode_and_end() {
    let (mut one, mut two) = (Says::new(1, 1), Says::new(2, 9));
    let mut played = Vec::new();
    let episodes = REFEREE
        .play(
            &scenario(9),
            &SEATS,
            &mut [&mut one, &mut two],
            &mut |episodes| {
                played.push(Episode::played(episodes, 4));
            },
        )
        .unwrap();
    // Of four turns each: 4, 4 + 8 and so on, where an episode that has ended counts as a whole.
    assert_eq!(played, [1, 3, 3, 4]);
    for game in episodes.chunks(2) {
        let [first, second] = game else {
            panic!("two agents")
        };
        assert_eq!(
            (first.ending, second.ending),
            (Some(EpisodeEnd::Terminated), Some(EpisodeEnd::Truncated))
        );
        assert_eq!((first.success, second.success), (true, false));
        let rewards = |episode: &Episode| -> Vec<(f64, f64)> {
            episode
                .turns
                .iter()
                .map(|turn| (turn.reward, turn.shaping))
                .collect()
        };
        assert_eq!(rewards(first), [(1.0, 0.0), (-1.0, -0.5)]);
        assert_eq!(rewards(second), [(2.0, 0.0); 4]);
        assert_eq!((first.game_return(), first.composite_return()), (0.0, -0.5));
        assert_eq!(
            (&*first.last, &*second.last),
            ("agent 0, round 2", "agent 1, round 4")
        );
        assert_eq!(second.turns[3].text, "Some(2)");
        assert_eq!(second.turns[3].key, "3");
    }
    // No request follows the end, and every agent draws from its own seed.
    assert_eq!(one.asked, [(0, 0, 3), (2, 0, 6), (0, 1, 3), (2, 1, 6)]);
    assert_eq!(two.asked.len(), 8);
    assert!(two.asked.iter().all(|(_, _, seed)| ![3, 6].contains(seed)));
    // One player may take all sides.
    let mut both = Says::new(0, 9);
    REFEREE
        .play(&scenario(9), &SEATS, &mut [&mut both], &mut |_| ())
        .unwrap();
    assert_eq!(both.asked.len(), 12);
}

/// An invalid result, as an external game may return it.
#[test]
fn a_game_that_answers_nonsense_is_named() {
    let outcome = |reward| Outcome {
        reward,
        over: false,
    };
    let told = |outcomes: &[Outcome]| check(&scenario(9), outcomes).unwrap_err().to_string();
    assert_eq!(
        told(&[outcome(1.0)]),
        "counting: it has 2 agents, and gave 1 outcomes"
    );
    for (reward, shown) in [
        (f64::NAN, "NaN"),
        (f64::INFINITY, "inf"),
        (-1e308, "-1e308"),
    ] {
        assert_eq!(
            told(&[outcome(1.0), outcome(reward)]),
            format!("counting: a reward is {shown}, and must be a number from -1e9 to 1e9")
        );
    }
    check(&scenario(9), &[outcome(-1e9); 2]).unwrap();
}

#[test]
fn a_game_that_fails_is_named() {
    let played = REFEREE.play(
        &scenario(3),
        &SEATS,
        &mut [&mut Says::new(0, 9)],
        &mut |_| (),
    );
    assert_eq!(played.unwrap_err().to_string(), "counting: lost count");
}

/// A failed game is played a second time; all others are unaffected.
#[test]
fn a_game_that_fails_once_is_played_again() {
    let play = |scenario: &Counting| {
        let (mut one, mut two) = (Says::new(1, 1), Says::new(2, 9));
        REFEREE.play(scenario, &SEATS, &mut [&mut one, &mut two], &mut |_| ())
    };
    let whole = play(&scenario(9)).unwrap();
    let unlucky = Counting {
        accidents: AtomicUsize::new(1),
        ..scenario(2)
    };
    let mut episodes = play(&unlucky).unwrap();
    assert_eq!(
        Episode::accidents(&episodes).unwrap(),
        "2 of 4 episodes were played a second time: counting: lost count"
    );
    assert!(episodes[2].failure.is_none(), "the other game went well");
    episodes.iter_mut().for_each(|e| e.failure = None);
    assert_eq!(episodes, whole);
    assert_eq!(Episode::accidents(&episodes), None);
}

/// A player that leaves before its third turn.
struct Leaves(usize);

impl Player for Leaves {
    fn act(&mut self, asks: &[ActionRequest<'_>]) -> Result<Vec<Reply>, PlayError> {
        self.0 += 1;
        match self.0 {
            3 => Err(PlayError::Left),
            _ => Ok(vec![Reply::default(); asks.len()]),
        }
    }
}

#[test]
fn what_was_played_is_kept_when_a_player_leaves() {
    let scenario = Counting {
        actions: vec!["one".to_owned()],
        breaks: 0,
        accidents: AtomicUsize::new(0),
    };
    let referee = Referee {
        step_limit: 4,
        format_penalty: 1.0,
    };
    let seat = Seat::of(0);
    let played = referee.play(&scenario, &[seat], &mut [&mut Leaves(0)], &mut |_| ());
    let episodes = played.unwrap();
    assert_eq!(episodes.iter().map(|e| e.turns.len()).sum::<usize>(), 4);
    let endings: Vec<_> = episodes.iter().map(|e| e.ending).collect();
    assert_eq!(endings, [Some(EpisodeEnd::Terminated), None]);
}

#[test]
#[should_panic(expected = "counting: the actions [\"one\", \"one\"] are not distinct words")]
fn a_game_with_equal_actions_is_refused() {
    let actions = vec!["one".to_owned(); 2];
    GameConfig::of(&Counting {
        actions,
        ..scenario(9)
    });
}

#[test]
#[should_panic(expected = "counting: the options null are not an object without nulls")]
fn a_game_without_options_is_refused() {
    GameConfig::of(&scenario(9));
}
