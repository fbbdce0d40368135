//! The lessons of an update: which states of which games have questions, and how much each counts.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use lapwing_env::rng::Stream;
use lapwing_env::{Game, Scenario};
use lapwing_model::{ChatTemplate, Message, Tokenizer};
use lapwing_play::AgentView;
use lapwing_play::prompt::Prompts;
use lapwing_play::scenes::Scenes;
use lapwing_play::seeds;
use lapwing_train::Error;

use super::questions::{BoardState, Question, round};
use super::{PretrainOptions, vocabulary};

/// Lessons about the game of an update, and about its other game. With an eighth of them, three times as many updates read less.
const LESSONS: [usize; 2] = [640, 160];
/// The most walks for these lessons. A game can have fewer states than they need.
const WALKS: usize = 40;
/// Share of the updates with the first game alone. A model that reads some boards learns to read others much faster.
const ALONE: f64 = 0.6;
/// Rounds of a walk: enough to get anywhere. A dozen stay near the start, and so did what a model could read.
const ROUNDS: usize = 120;
/// Share of a walk's states that have lessons. Neighbouring states teach much the same.
const ASKED: f64 = 0.05;
/// Questions after the board, for each state.
const QUESTIONS: usize = 6;
/// Questions in the system message, the same for all states of a game in an update, which therefore share its tokens.
const INSTRUCTIONS: usize = 2;
/// Share of a game's loss that belongs to prompts which ask for an action.
const PLAY: f64 = 0.1;

/// A prompt, its equally likely answers, and its share of the loss.
pub(super) struct Lesson {
    pub topic: &'static str,
    pub prompt: Arc<[u32]>,
    pub answers: Vec<Vec<u32>>,
    pub share: f64,
}

/// The topic of prompts that ask for an action.
const ACTION: &str = "action";

/// Draws the lessons of an update.
pub(super) fn lessons(
    how: &PretrainOptions,
    step: usize,
    games: &mut [PretrainGame<'_>],
) -> Result<Vec<Lesson>, Error> {
    let main = how.games.len();
    let mut random = Stream::new(seeds::derive(how.seed, "other", &[step]), "pretraining");
    let is_alone = step < (how.steps as f64 * ALONE) as usize;
    let mut chosen = vec![(if is_alone { 0 } else { step % main }, LESSONS[0])];
    if !how.others.is_empty() && !is_alone && random.chance(0.5) {
        chosen.push((main + random.below(how.others.len()), LESSONS[1]));
    }
    let mut lessons = Vec::new();
    for (number, count) in &chosen {
        for mut lesson in games[*number].lessons(how.seed, step, *count)? {
            lesson.share /= chosen.len() as f64;
            lessons.push(lesson);
        }
    }
    Ok(lessons)
}

/// Gives each lesson its share of the loss; they add up to 1. The lessons of a topic together have as much as they are many. Among
/// them all answers have the same, since a rare one, such as a hole beside the player, is what a player must see.
fn share(lessons: &mut [Lesson]) {
    let mut topics: BTreeMap<&str, BTreeMap<&[Vec<u32>], usize>> = BTreeMap::new();
    for lesson in &*lessons {
        let answers = topics.entry(lesson.topic).or_default();
        *answers.entry(&lesson.answers).or_default() += 1;
    }
    let count = |topic: &str| topics.get(topic).map_or(0, |it| it.values().sum::<usize>());
    let questions = lessons.len() - count(ACTION);
    let share = |lesson: &Lesson| {
        let answers = &topics[lesson.topic];
        let topic = match lesson.topic {
            ACTION => PLAY,
            topic => (1.0 - PLAY) * count(topic) as f64 / questions as f64,
        };
        topic / (answers.len() * answers[&lesson.answers[..]]) as f64
    };
    let shares: Vec<f64> = lessons.iter().map(share).collect();
    for (lesson, share) in lessons.iter_mut().zip(shares) {
        lesson.share = share;
    }
}

/// A game whose prompts ask for single-word replies.
pub(super) struct PretrainGame<'a> {
    scenario: &'a dyn Scenario,
    scenes: Scenes,
    actions: Vec<Vec<u32>>,
    prompts: Prompts,
}

impl PretrainGame<'_> {
    pub fn new<'a>(
        scenario: &'a dyn Scenario,
        tokenizer: &Tokenizer,
        template: &Arc<ChatTemplate>,
    ) -> Result<PretrainGame<'a>, Error> {
        let prompts = vocabulary::word_prompts(scenario)?;
        let actions = scenario.actions().iter().map(|it| tokenizer.encode(it));
        Ok(PretrainGame {
            scenario,
            scenes: Scenes::of(scenario)?,
            actions: actions.collect::<Result<_, _>>()?,
            prompts: Prompts::new(prompts, tokenizer.clone(), template.clone()),
        })
    }

    /// Returns about this many lessons about the states of random walks. Their shares add up to 1.
    fn lessons(&mut self, seed: u64, step: usize, count: usize) -> Result<Vec<Lesson>, Error> {
        let mut lessons = Vec::new();
        let mut seen = HashSet::new();
        let mut instructions = Vec::new();
        for walk in 0..WALKS {
            let seed = seeds::derive(seed, "walk", &[step, walk]);
            let mut random = Stream::new(seed, "pretraining");
            let mut game = self.scenario.start(self.scene(seed)?, seed)?;
            for round in 0..ROUNDS {
                if lessons.len() >= count {
                    break;
                }
                let state = BoardState::new(&*game, self.scenario)?;
                if instructions.is_empty() {
                    let draw = |_| state.question(&mut random);
                    instructions = (0..INSTRUCTIONS).map(draw).collect();
                }
                if random.chance(ASKED) && seen.insert(state.observation.clone()) {
                    lessons.push(self.action(&state.observation)?);
                    let luck = seeds::derive(seed, "outcome", &[round]);
                    for question in &instructions {
                        lessons.extend(self.lesson(&state, question, false, luck)?);
                    }
                    for _ in 0..QUESTIONS {
                        let question = state.question(&mut random);
                        lessons.extend(self.lesson(&state, &question, true, luck)?);
                    }
                }
                let Some(actions) = self.survived(&*game, &mut random)? else {
                    break;
                };
                game.play(&actions)?;
            }
        }
        share(&mut lessons);
        Ok(lessons)
    }

    /// Returns a training scene.
    fn scene(&self, seed: u64) -> Result<u64, Error> {
        let draw = |attempt| seeds::derive(seed, "scene", &[attempt]);
        Ok(self.scenes.training(self.scenario, draw)?)
    }

    /// Returns the lesson that any action may follow this observation.
    fn action(&mut self, observation: &str) -> Result<Lesson, Error> {
        Ok(Lesson {
            topic: ACTION,
            prompt: self.prompts.ids(&AgentView::first(observation))?,
            answers: self.actions.clone(),
            share: 0.0,
        })
    }

    /// Returns the lesson of a question that stands after the board or else in the system message.
    fn lesson(
        &self,
        state: &BoardState<'_>,
        question: &Question,
        is_after: bool,
        luck: u64,
    ) -> Result<Option<Lesson>, Error> {
        let answers = state.answers(question, luck)?;
        if answers.is_empty() {
            return Ok(None);
        }
        let (rules, seen) = (self.scenario.rules(), &state.observation);
        let asked = state.ask(question);
        let (system, user) = match is_after {
            true => (
                "Answer the question.".to_owned(),
                format!("{seen}\n{asked}"),
            ),
            false => {
                let actions = self.scenario.actions().join(", ");
                (
                    format!("Reply with one word: {actions}.\n{asked}"),
                    seen.clone(),
                )
            }
        };
        let system = Message::new("system", format!("{rules}\n{system}"));
        let messages = [system, Message::new("user", user)];
        let prompt = self.prompts.template().render(&messages, true)?;
        let tokenizer = self.prompts.tokenizer();
        let answers = answers.iter().map(|it| tokenizer.encode(it));
        Ok(Some(Lesson {
            topic: question.topic(),
            prompt: tokenizer.encode(&prompt)?.into(),
            answers: answers.collect::<Result<_, _>>()?,
            share: 0.0,
        }))
    }

    /// Draws the actions of a round that does not end the first agent's episode, so that a walk gets far. `None` if every
    /// action of this agent may end it.
    fn survived(
        &self,
        game: &dyn Game,
        random: &mut Stream,
    ) -> Result<Option<Vec<Option<usize>>>, Error> {
        let mut order: Vec<usize> = (0..self.actions.len()).collect();
        random.shuffle(&mut order);
        for action in order {
            let actions = round(self.scenario, action, random);
            let Some(mut tried) = game.fork(random.below(1 << 30) as u64) else {
                return Ok(Some(actions));
            };
            if !tried.play(&actions)?[0].over {
                return Ok(Some(actions));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No text says which action is good: all have the same share of the loss.
    #[test]
    fn all_actions_are_equally_likely() {
        let how = PretrainOptions::default();
        let files = lapwing_train::base::files::Files::open(None, None).unwrap();
        let tokenizer = files.tokenizer().unwrap();
        let template = files.template().unwrap().into();
        let scenario = how.games[0].scenario().unwrap();
        let mut game = PretrainGame::new(&*scenario, tokenizer, &template).unwrap();
        let lessons = game.lessons(1, 0, 40).unwrap();
        let asked = lessons.iter().filter(|it| it.topic == ACTION);
        let asked: Vec<&Lesson> = asked.collect();
        assert!(!asked.is_empty() && asked.iter().all(|it| it.answers == game.actions));
        let share = |some: &mut dyn Iterator<Item = &Lesson>| some.map(|it| it.share).sum::<f64>();
        assert!((share(&mut asked.into_iter()) - PLAY).abs() < 1e-9);
        assert!((share(&mut lessons.iter()) - 1.0).abs() < 1e-9);
    }

    /// A rare answer has the share of a frequent one, and a topic that of its number of lessons.
    #[test]
    fn all_answers_to_a_question_have_the_same_share() {
        let lesson = |topic, answer| Lesson {
            topic,
            prompt: Arc::from([0]),
            answers: vec![vec![answer]],
            share: 0.0,
        };
        let left = [1, 1, 1, 2].map(|answer| lesson("left", answer));
        let others = [lesson("count", 3), lesson(ACTION, 4)];
        let mut lessons: Vec<Lesson> = left.into_iter().chain(others).collect();
        share(&mut lessons);
        let rest = 1.0 - PLAY;
        let (frequent, rare) = (rest * 0.8 / 6.0, rest * 0.8 / 2.0);
        let wanted = [frequent, frequent, frequent, rare, rest * 0.2, PLAY];
        for (lesson, wanted) in lessons.iter().zip(wanted) {
            assert!((lesson.share - wanted).abs() < 1e-12, "{}", lesson.topic);
        }
    }

    /// Evaluation scenes are held out from the base, too.
    #[test]
    fn the_evaluations_scenes_are_not_pretrained_on() {
        let how = PretrainOptions::default();
        for game in &how.games {
            let scenario = game.scenario().unwrap();
            let files = lapwing_train::base::files::Files::open(None, None).unwrap();
            let (tokenizer, template) =
                (files.tokenizer().unwrap(), files.template().unwrap().into());
            let game = PretrainGame::new(&*scenario, tokenizer, &template).unwrap();
            let key = |scene| scenario.start(scene, 0).unwrap().key(0).unwrap();
            let evaluated = game.scenes.evaluation(&*scenario, 1, 200).unwrap();
            let evaluated: HashSet<String> = evaluated.iter().map(|seat| key(seat.scene)).collect();
            for step in 0..400 {
                let scene = game.scene(step).unwrap();
                assert!(!evaluated.contains(&key(scene)), "{}", scenario.name());
            }
        }
    }
}
