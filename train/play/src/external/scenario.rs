//! An external environment as a scenario.
//!
//! The scene is the seed of the reset. Most environments take one seed only. If an environment takes a second (`luck`),
//! the same scene can be played with other chance events; otherwise chance follows from the scene, too. A session plays
//! one episode after another, because environments can be slow to create and a server may allow few.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapwing_env::{
    DeclaredOptions, Game, GameError, OptionsError, Outcome, Scenario, refused, wrong,
};
use lapwing_model::read_text;
use serde_json::Value;

use super::Address;
use super::options::ExternalOptions;
use super::process::{GameProcess, ProcessSession};
use super::protocol::{self, EnvironmentSession, SessionError, StepResult};
use super::socket::SocketSession;
use super::template::{ExternalTemplate, LONGEST_SOURCE};

/// A configured external environment, shared with its episodes.
#[derive(Debug)]
pub(super) struct ExternalScenario(Arc<ExternalEnvironment>);

#[derive(Debug)]
struct ExternalEnvironment {
    name: String,
    address: Address,
    options: ExternalOptions,
    template: ExternalTemplate,
    rules: String,
    actions: Vec<String>,
    open: Mutex<OpenSessions>,
}

#[derive(Debug, Default)]
struct OpenSessions {
    /// sessions that no episode uses
    free: Vec<Box<dyn EnvironmentSession>>,
    process: Option<Arc<GameProcess>>,
    /// the number of sessions opened
    begun: u64,
}

/// The only action of an environment that takes any text.
const SAY: &str = "say";

/// Makes a scenario. Nothing starts or connects before the first episode.
///
/// # Errors
/// If an option is wrong, or the template is unreadable.
pub(crate) fn configure(
    name: &str,
    address: Address,
    given: &Value,
) -> Result<Box<dyn Scenario>, OptionsError> {
    let mut options = ExternalOptions::checked(name, given)?;
    let wrong = |problem: String| wrong(&shortened(name), "template", problem);
    let given = shortened(options.template.as_deref().unwrap_or_default());
    if let Some(template) = &mut options.template {
        *template = text_of(template).map_err(wrong)?;
    }
    let of_file = |problem: String| {
        wrong(format!(
            "is \"{given}\", which is not a template: {problem}"
        ))
    };
    let template = ExternalTemplate::parse(options.template.as_deref()).map_err(of_file)?;
    let rules = template.rules().map_err(of_file)?;
    let success = &options.success;
    template.check_success(success).map_err(|problem| {
        let wanted = format!("an expression ({problem})");
        refused(name, "success", success, &wanted)
    })?;
    let actions = options.actions.clone();
    Ok(Box::new(ExternalScenario(Arc::new(ExternalEnvironment {
        name: name.to_owned(),
        address,
        template,
        rules,
        actions: actions.unwrap_or_else(|| vec![SAY.to_owned()]),
        options,
        open: Mutex::default(),
    }))))
}

/// Returns the text of a template: the content of the named file, or the given text. The config then holds the text, so
/// a run does not depend on the file.
fn text_of(given: &str) -> Result<String, String> {
    const BLOCK: &str = "{%";
    if given.contains(BLOCK) {
        return Ok(given.to_owned());
    }
    let text = read_text(Path::new(given), LONGEST_SOURCE);
    let text = text.map_err(|error| format!("is {error}"))?;
    match text.contains(BLOCK) {
        true => Ok(text),
        false => Err(format!(
            "is {given:?}, a file without a block: wanted one with rules, observation or action"
        )),
    }
}

impl Scenario for ExternalScenario {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn rules(&self) -> String {
        self.0.rules.clone()
    }

    fn actions(&self) -> &[String] {
        &self.0.actions
    }

    fn takes_text(&self) -> bool {
        self.0.options.actions.is_none()
    }

    fn start(&self, scene: u64, luck: u64) -> Result<Box<dyn Game>, GameError> {
        let shared = &self.0;
        let luck = shared.options.luck.as_deref().map(|field| (field, luck));
        let begun = shared.begin(&protocol::reset(scene, luck));
        let (session, answer) = begun.map_err(|problem| shared.error(problem))?;
        let text = shared.text(&answer, 0).map_err(|e| shared.error(e))?;
        Ok(Box::new(ExternalGame {
            shared: shared.clone(),
            session: Some(session),
            failed: None,
            text,
            total: 0.0,
            step: 0,
            over: false,
            truncated: false,
            success: false,
            said: String::new(),
        }))
    }

    fn reward_bounds(&self) -> Option<(f64, f64)> {
        self.0.options.reward_bounds.map(<(f64, f64)>::from)
    }

    fn step_limit(&self) -> usize {
        self.0.options.step_limit
    }

    fn options(&self) -> Value {
        self.0.options.in_force(None)
    }
}

impl ExternalEnvironment {
    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, problem: String) -> GameError {
        GameError::new(shortened(&self.name), problem)
    }

    fn text(&self, answer: &StepResult, step: usize) -> Result<String, String> {
        let text = self.template.observation(answer, step);
        text.map_err(|problem| self.of_template(&problem))
    }

    fn of_template(&self, problem: &str) -> String {
        match &self.options.template {
            Some(_) => format!("the template: {problem}"),
            None => format!(
                "the default template: {problem}; a template of your own (game.options.template) may help"
            ),
        }
    }

    /// Starts an episode in a free session or a new one.
    fn begin(&self, reset: &Value) -> Result<(Box<dyn EnvironmentSession>, StepResult), String> {
        loop {
            let free = self.lock().free.pop();
            let was_open = free.is_some();
            let mut session = match free {
                Some(session) => session,
                None => self.open()?,
            };
            match session.ask(reset.clone()) {
                Ok(answer) if answer.done => {
                    return Err("the episode is over (`done`) before its first step".to_owned());
                }
                Ok(answer) => return Ok((session, answer)),
                // The server closed an idle session.
                Err(SessionError::Closed(_)) if was_open => (),
                Err(fault) => return Err(fault.problem()),
            }
        }
    }

    fn open(&self) -> Result<Box<dyn EnvironmentSession>, String> {
        let patience = Duration::from_secs_f64(self.options.timeout);
        let words = match &self.address {
            Address::Socket(url) => return Ok(Box::new(SocketSession::open(url, patience)?)),
            Address::Process(words) => words,
        };
        let mut open = self.lock();
        let process = match open.process.take().filter(|process| process.runs()) {
            Some(process) => process,
            None => Arc::new(GameProcess::start(words, patience)?),
        };
        open.process = Some(process.clone());
        open.begun += 1;
        let number = open.begun;
        Ok(Box::new(ProcessSession { process, number }))
    }
}

/// Shortens a name for an error, because it may be a long command line.
fn shortened(name: &str) -> String {
    const SHOWN: usize = 60;
    let escaped: String = name.escape_debug().collect();
    match escaped.chars().count() > SHOWN {
        true => escaped.chars().take(SHOWN).chain("...".chars()).collect(),
        false => escaped,
    }
}

struct ExternalGame {
    shared: Arc<ExternalEnvironment>,
    /// `None` after a failure
    session: Option<Box<dyn EnvironmentSession>>,
    /// why the episode failed
    failed: Option<GameError>,
    text: String,
    /// the sum of the rewards
    total: f64,
    step: usize,
    over: bool,
    truncated: bool,
    success: bool,
    /// the agent's text in this turn
    said: String,
}

impl ExternalGame {
    fn advance(&mut self, action: Option<usize>) -> Result<Outcome, String> {
        let shared = self.shared.clone();
        let template = &shared.template;
        let word = action.map(|action| (action, &*shared.actions[action]));
        let said = std::mem::take(&mut self.said);
        let data = template.action(word, &said, self.step);
        self.step += 1;
        let Some(data) = data.map_err(|problem| shared.of_template(&problem))? else {
            // Nothing is sent for an unreadable reply: the environment does not change.
            let (reward, over) = (0.0, false);
            return Ok(Outcome { reward, over });
        };
        let session = self.session.as_mut().expect("there until it fails");
        let answered = session.ask(protocol::step(data));
        let answer = answered.map_err(SessionError::problem)?;
        let reward = answer.reward.unwrap_or(0.0);
        if let Some([low, high]) = shared.options.reward_bounds
            && !(low..=high).contains(&reward)
        {
            return Err(format!(
                "a reward is {reward}, outside of {low} to {high} (game.options.reward_bounds)"
            ));
        }
        self.text = shared.text(&answer, self.step)?;
        self.total += reward;
        (self.over, self.truncated) = (answer.done, answer.truncated);
        let success = template.succeeded(&shared.options.success, &answer, self.total, self.step);
        self.success = success.map_err(|problem| format!("option `success`: {problem}"))?;
        let over = self.over;
        Ok(Outcome { reward, over })
    }
}

impl Game for ExternalGame {
    fn observe(&self, agent: usize) -> Result<String, GameError> {
        assert_eq!(agent, 0, "there is one agent");
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(self.text.clone()),
        }
    }

    fn play(&mut self, actions: &[Option<usize>]) -> Result<Vec<Outcome>, GameError> {
        let &[action] = actions else {
            panic!("{} actions for one agent", actions.len());
        };
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.over {
            let over = true;
            return Ok(vec![Outcome { reward: 0.0, over }]);
        }
        let outcome = self.advance(action).map_err(|problem| {
            let error = self.shared.error(problem);
            // A failed session plays no further episode.
            self.session = None;
            self.failed = Some(error.clone());
            error
        })?;
        Ok(vec![outcome])
    }

    fn is_truncated(&self) -> bool {
        self.truncated
    }

    fn succeeded(&self, _agent: usize) -> bool {
        self.success
    }

    fn hear(&mut self, _agent: usize, text: &str) {
        self.said = text.to_owned();
    }
}

impl Drop for ExternalGame {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.shared.lock().free.push(session);
        }
    }
}
