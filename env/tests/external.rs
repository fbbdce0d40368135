//! A game outside of the list: it has two agents, uses all defaults, and its process ends.

use lapwing_env::{Game, GameError, Outcome, Scenario};
use serde_json::{Value, json};

use crate::games::{play, random};

/// An agent that stops is out. After `lifetime` rounds the process has ended.
#[derive(Debug)]
struct Relay {
    lifetime: usize,
    actions: [String; 2],
}

impl Relay {
    fn new(lifetime: usize) -> Relay {
        Relay {
            lifetime,
            actions: ["go", "stop"].map(str::to_owned),
        }
    }
}

impl Scenario for Relay {
    fn name(&self) -> &str {
        "relay"
    }

    fn rules(&self) -> String {
        "Play.".to_owned()
    }

    fn actions(&self) -> &[String] {
        &self.actions
    }

    fn agents(&self) -> usize {
        2
    }

    fn start(&self, _: u64, _: u64) -> Result<Box<dyn Game>, GameError> {
        if self.lifetime == 0 {
            return Err(gone());
        }
        Ok(Box::new(RelayGame {
            rounds_left: self.lifetime,
            out: [false; 2],
        }))
    }

    fn step_limit(&self) -> usize {
        5
    }

    fn options(&self) -> Value {
        json!({ "lifetime": self.lifetime })
    }
}

struct RelayGame {
    rounds_left: usize,
    out: [bool; 2],
}

fn gone() -> GameError {
    GameError::new("relay", "its process has ended with code 1")
}

impl Game for RelayGame {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        if self.rounds_left == 0 {
            return Err(gone());
        }
        Ok(format!("agent {agent}, {} rounds left", self.rounds_left))
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        self.rounds_left = self.rounds_left.checked_sub(1).ok_or_else(gone)?;
        for (out, action) in self.out.iter_mut().zip(actions) {
            *out |= *action == Some(1);
        }
        let outcome = |over| Outcome { reward: 0.0, over };
        Ok(self.out.map(outcome).to_vec())
    }

    fn succeeded(&self, agent: usize) -> bool {
        !self.out[agent]
    }
}

#[test]
fn a_game_has_defaults() {
    let relay: Box<dyn Scenario> = Box::new(Relay::new(9));
    assert_eq!(relay.reward_bounds(), None);
    let mut game = relay.start(0, 0).unwrap();
    for agent in 0..relay.agents() {
        assert_eq!(game.key(agent), game.observe(agent));
        assert_eq!(game.best_actions(agent), None);
        assert_eq!(game.optimum(agent), None);
    }
    assert_ne!(game.key(0), game.key(1));
    let rounds = play(&*relay, &mut *game, |_, agent| Some(agent));
    assert_eq!(rounds.len(), relay.step_limit());
    assert_eq!((game.succeeded(0), game.succeeded(1)), (true, false));
}

#[test]
fn a_game_whose_process_ended_fails_from_then_on() {
    let relay = Relay::new(3);
    let mut game = relay.start(0, 0).unwrap();
    let mut random = random(&relay, 1);
    for _ in 0..3 {
        let actions = [random(&*game, 0), random(&*game, 1)];
        game.play(&actions).unwrap();
    }
    let errors: [GameError; 3] = [
        game.observe(0).unwrap_err(),
        game.key(1).unwrap_err(),
        game.play(&[None, None]).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error, gone());
    }
    let error: Box<dyn std::error::Error + Send + Sync> =
        Relay::new(0).start(0, 0).map(drop).unwrap_err().into();
    assert_eq!(
        error.to_string(),
        "relay: its process has ended with code 1"
    );
}
