//! A language model with its games and its trained weights.

use lapwing_env::Scenario;
use lapwing_env::rng::Stream;
use lapwing_model::CompanionFiles;
use lapwing_play::config::PolicyConfig;
use lapwing_play::players::model::{ModelPlayer, Policy};
use lapwing_play::world::World;
use lapwing_play::{Episode, PlayError, Progress, Referee, Seat, seeds};
use lapwing_tensor::Parameters;

use crate::batch::Group;
use crate::communicator::{Communicator, Request};
use crate::config::TrainConfig;
use crate::critic::Head;

/// The most unsolved scenes to remember. If only the latest 256 are kept, most of them are too hard for the policy, and it
/// ends 0.05 lower (LOG.md, 2026-11-25).
const MOST_UNSOLVED: usize = 4096;

/// A language model, the games that it plays, and its trained weights.
pub struct LanguageLearner {
    /// The run's own game, then the games that are mixed into training.
    pub worlds: Vec<World>,
    /// The model, its adapter and the reference.
    pub policy: Policy,
    /// The trained weights and their optimiser state; `None` if the model only plays.
    pub parameters: Option<Parameters>,
    /// The critic, with `credit.method = "critic"`.
    pub critic: Option<Head>,
    /// World and scene of the groups to retry, oldest first. Empty without `train.retry`.
    pub unsolved: Vec<(usize, u64)>,
    /// The sampling temperature in training.
    pub temperature: f64,
    /// The files beside the weights, saved with them if all weights of the model are trained.
    pub companions: Option<CompanionFiles>,
    /// Projections of the last step's gradient, with `train.measure`. Not saved.
    pub gradient: Option<Vec<f64>>,
    /// The processes of the run.
    pub ranks: Box<dyn Communicator>,
    /// Tokens that updates have computed in this process.
    pub tokens_computed: u64,
}

impl LanguageLearner {
    /// The run's own game.
    pub fn world(&self) -> &World {
        &self.worlds[0]
    }

    /// Returns one of the worlds, its referee, and the policy as a player that samples replies at this temperature.
    ///
    /// # Panics
    /// If there is no such world.
    #[track_caller]
    pub fn seated(
        &mut self,
        policy: &PolicyConfig,
        world: usize,
        temperature: f64,
    ) -> (&dyn Scenario, Referee, ModelPlayer<'_>) {
        let world = &mut self.worlds[world];
        let referee = Referee::of(&*world.scenario, policy.format_penalty);
        let player = self
            .policy
            .player(&mut world.prompts, temperature, policy.max_new_tokens);
        (&*world.scenario, referee, player)
    }

    /// Returns the seats of a step, by world: `group_size` games on each of `groups` scenes, which are new or, with
    /// `train.retry`, unsolved.
    ///
    /// # Errors
    /// If the game fails.
    pub fn seats(
        &self,
        train: &TrainConfig,
        step: usize,
    ) -> Result<Vec<(usize, Vec<Seat>)>, PlayError> {
        let (worlds, mut unsolved) = (&self.worlds, self.unsolved.clone());
        let mut games: Vec<(usize, Vec<Seat>)> = Vec::new();
        games.extend((0..worlds.len()).map(|number| (number, Vec::new())));
        for group in 0..train.groups {
            let number = World::drawn(worlds, train.seed, step, group);
            let (world, seats) = (&worlds[number], &mut games[number].1);
            let draw = |attempt| seeds::derive(train.seed, "scene", &[step, group, attempt]);
            let mut random =
                Stream::new(seeds::derive(train.seed, "retry", &[step, group]), "retry");
            let scene = match random.chance(train.retry) {
                true => take_scene(&mut unsolved, number, &mut random),
                false => None,
            };
            let scene = match scene {
                Some(scene) => scene,
                None => world.scenes.training(&*world.scenario, draw)?,
            };
            for episode in 0..train.group_size {
                let member = if train.shared_luck { 0 } else { episode };
                seats.push(Seat {
                    scene,
                    luck: seeds::derive(train.seed, "luck", &[step, group, member]),
                    reply: seeds::derive(train.seed, "reply", &[step, group, episode]),
                });
            }
        }
        games.retain(|(_, seats)| !seats.is_empty());
        Ok(games)
    }

    /// Remembers the scenes of these groups on which an episode did not succeed, and forgets the others. Also forgets a scene
    /// if the episodes of a retry had equal returns: another retry would most likely have no gradient either.
    pub(crate) fn remember_unsolved(&mut self, groups: &[Group]) {
        let scene = |group: &Group| (group.world, group.scene);
        let played: Vec<(usize, u64)> = groups.iter().map(scene).collect();
        let retried: Vec<(usize, u64)> = self
            .unsolved
            .extract_if(.., |it| played.contains(it))
            .collect();
        for group in groups {
            let failed = group.episodes.iter().any(|episode| !episode.success);
            let is_new = !retried.contains(&scene(group));
            // Agents of a game have a group each on the same scene.
            let is_known = self.unsolved.contains(&scene(group));
            if failed && (is_new || group.has_advantages()) && !is_known {
                self.unsolved.push(scene(group));
            }
        }
        let surplus = self.unsolved.len().saturating_sub(MOST_UNSOLVED);
        self.unsolved.drain(..surplus);
    }

    /// Plays a game of one of the worlds for each seat, with the policy on all sides. All ranks take part.
    ///
    /// # Errors
    /// If the game, the model or the device fails.
    ///
    /// # Panics
    /// If there is no such world.
    #[track_caller]
    pub fn play(
        &mut self,
        policy: &PolicyConfig,
        world: usize,
        seats: &[Seat],
        temperature: f64,
        progress: &dyn Progress,
    ) -> Result<Vec<Episode>, PlayError> {
        let request = Request::Play {
            world,
            seats: seats.into(),
            temperature,
        };
        self.ranks.request(&request, &[]);
        let (share, size) = (&seats[self.ranks.share(seats.len())], self.ranks.size());
        // The other ranks are about as far.
        let limit = self.worlds[world].scenario.step_limit();
        let played = |episodes: &[Episode]| Episode::played(episodes, limit);
        let mut watch = |episodes: &[Episode]| progress.done(played(episodes) * size);
        let mut episodes = self.play_here(policy, world, share, temperature, &mut watch)?;
        let mut join = |played: Vec<Episode>, _| episodes.extend(played);
        self.ranks.answers(&mut join);
        let allowed = &self.worlds[world].prompts.allowed;
        let turns = episodes.iter_mut().flat_map(|episode| &mut episode.turns);
        let sampled = turns.filter_map(|turn| turn.sampled.as_mut());
        sampled.for_each(|reply| reply.allowed = allowed.clone());
        if let Some(text) = Episode::accidents(&episodes) {
            progress.note(&text);
        }
        Ok(episodes)
    }

    /// Plays in this process.
    pub(crate) fn play_here(
        &mut self,
        policy: &PolicyConfig,
        world: usize,
        seats: &[Seat],
        temperature: f64,
        watch: &mut dyn FnMut(&[Episode]),
    ) -> Result<Vec<Episode>, PlayError> {
        let (scenario, referee, mut player) = self.seated(policy, world, temperature);
        referee.play(scenario, seats, &mut [&mut player], watch)
    }

    /// Optimiser updates made so far, those of the critic included.
    pub fn updates(&self) -> u64 {
        let critic = self.critic.as_ref().map(|critic| &critic.parameters);
        let all = [self.parameters.as_ref(), critic];
        all.into_iter().flatten().map(Parameters::steps).sum()
    }
}

/// Draws one of the scenes of this world, and removes it.
fn take_scene(scenes: &mut Vec<(usize, u64)>, world: usize, random: &mut Stream) -> Option<u64> {
    let places = (0..scenes.len()).filter(|place| scenes[*place].0 == world);
    let places: Vec<usize> = places.collect();
    let drawn = (!places.is_empty()).then(|| places[random.below(places.len())]);
    drawn.map(|place| scenes.remove(place).1)
}
