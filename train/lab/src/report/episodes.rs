//! The episodes of a run that its report page shows.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::lines::read_lines;
use lapwing_play::sample::{EpisodePurpose, KeptEpisode, KeptTurn};
use lapwing_train::record::Record;

/// The maximum number of episodes of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpisodeLimits {
    /// Evaluations: the first, the last, and some between.
    evaluations: usize,
    episodes_per_evaluation: usize,
    steps: usize,
    /// Episodes of a training step, all of one group.
    episodes_per_step: usize,
}

impl EpisodeLimits {
    /// Returns the limits for a page of this many runs: fewer episodes of each, to keep the page small.
    pub(crate) fn of(runs: usize) -> EpisodeLimits {
        let either = |few, many| if runs <= 4 { few } else { many };
        EpisodeLimits {
            evaluations: either(6, 2),
            episodes_per_evaluation: either(6, 3),
            steps: either(4, 1),
            episodes_per_step: either(8, 4),
        }
    }
}

/// Longer texts are shown without their middle.
const MAX_TEXT_CHARS: usize = 6000;

#[derive(Debug, Default, Serialize)]
pub(crate) struct ShownEpisodes {
    /// In the order of the file.
    pub(crate) shown: Vec<ShownEpisode>,
    /// Pairs of indices of episodes on the same scene, in the first evaluation and in the last.
    pub(crate) pairs: Vec<[usize; 2]>,
    /// Parts of prompts, without repetitions.
    pub(crate) prompts: Vec<String>,
    /// The number of episodes in the file.
    pub(crate) total: usize,
    pub(crate) damaged: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct ShownEpisode {
    #[serde(flatten)]
    sample: KeptEpisode,
    /// For each turn, the indices of its prompt's parts: before and after the observation, or the complete prompt.
    prompt_parts: Vec<Vec<usize>>,
}

/// The fields by which episodes are selected.
#[derive(Debug, Deserialize)]
struct EpisodeHeader {
    step: usize,
    purpose: EpisodePurpose,
    scene: String,
    agent: usize,
    /// The position of the line in the file.
    #[serde(skip)]
    position: u64,
}

impl ShownEpisodes {
    /// Selects episodes by their headers, then reads only these: the file may be larger than memory.
    pub(crate) fn read(path: &Path, limits: EpisodeLimits) -> io::Result<ShownEpisodes> {
        let mut episodes = ShownEpisodes::default();
        let mut headers = Vec::new();
        episodes.damaged = read_lines(path, |line, position| {
            let header = serde_json::from_slice(line).ok()?;
            headers.push(EpisodeHeader { position, ..header });
            Some(())
        })?;
        episodes.total = headers.len();
        let (mut file, mut line) = (lapwing_model::reader(path)?, Vec::new());
        for header in selected(&headers, limits) {
            file.seek(SeekFrom::Start(header.position))?;
            line.clear();
            file.read_until(b'\n', &mut line)?;
            match serde_json::from_slice(&line) {
                Ok(Record::Episode(sample)) => episodes.add(sample),
                _ => episodes.damaged += 1,
            }
        }
        episodes.pair();
        Ok(episodes)
    }

    fn add(&mut self, mut sample: KeptEpisode) {
        let turns = sample.turns.iter_mut();
        let prompt_parts = turns.map(|turn| self.take_prompt(turn)).collect();
        for turn in &mut sample.turns {
            turn.reply = shortened(&turn.reply);
            turn.observation = shortened(&turn.observation);
        }
        sample.last = shortened(&sample.last);
        self.shown.push(ShownEpisode {
            sample,
            prompt_parts,
        });
    }

    /// Moves the prompt of a turn to the shared parts: most prompts differ only in the observation.
    fn take_prompt(&mut self, turn: &mut KeptTurn) -> Vec<usize> {
        let prompt = std::mem::take(&mut turn.prompt);
        let parts = match prompt.rsplit_once(&turn.observation) {
            Some((before, after)) if turn.observation.len() <= MAX_TEXT_CHARS => {
                vec![before, after]
            }
            _ => vec![&*prompt],
        };
        let mut index = |part: &str| {
            let part = shortened(part);
            let known = self.prompts.iter().position(|known| *known == part);
            known.unwrap_or_else(|| {
                self.prompts.push(part);
                self.prompts.len() - 1
            })
        };
        parts.into_iter().map(&mut index).collect()
    }

    fn pair(&mut self) {
        let samples = self.shown.iter().map(|shown| &shown.sample).enumerate();
        let evaluated = samples.filter(|(_, s)| s.purpose == EpisodePurpose::Evaluation);
        let evaluated: Vec<(usize, &KeptEpisode)> = evaluated.collect();
        let steps = || evaluated.iter().map(|(_, sample)| sample.step);
        let (first, last) = (steps().min(), steps().max());
        if first == last {
            return;
        }
        let at = |step| evaluated.iter().filter(move |(_, s)| Some(s.step) == step);
        let pair = |(before, sample): &(usize, &KeptEpisode)| {
            let seat = (&sample.scene, sample.agent);
            let (after, _) = at(last).find(|(_, other)| (&other.scene, other.agent) == seat)?;
            Some([*before, *after])
        };
        self.pairs = at(first).filter_map(pair).collect();
    }
}

/// Selects the first episodes of evaluations, which all have the same scenes, and the episodes of one group of training
/// steps.
fn selected(headers: &[EpisodeHeader], limits: EpisodeLimits) -> Vec<&EpisodeHeader> {
    let steps = |purpose: EpisodePurpose, limit: usize| {
        let of_purpose = headers.iter().filter(|header| header.purpose == purpose);
        let steps: BTreeSet<usize> = of_purpose.map(|header| header.step).collect();
        spaced(&steps.into_iter().collect::<Vec<_>>(), limit)
    };
    let evaluations = steps(EpisodePurpose::Evaluation, limits.evaluations);
    let training = steps(EpisodePurpose::Training, limits.steps);
    let mut selected = Vec::new();
    let mut counts = HashMap::new();
    for header in headers {
        let is_training = header.purpose == EpisodePurpose::Training;
        let (steps, limit) = match is_training {
            true => (&training, limits.episodes_per_step),
            false => (&evaluations, limits.episodes_per_evaluation),
        };
        if steps.contains(&header.step) {
            let scene = (&header.scene, header.agent);
            let of_step = counts.entry((is_training, header.step));
            let (group, count) = of_step.or_insert((scene, 0));
            if (!is_training || *group == scene) && *count < limit {
                *count += 1;
                selected.push(header);
            }
        }
    }
    selected
}

/// Returns at most `limit` equally spaced items, with the first and, if `limit` is at least 2, the last.
fn spaced(all: &[usize], limit: usize) -> Vec<usize> {
    match all.len() {
        count if count <= limit => all.to_vec(),
        _ if limit == 1 => all[..1].to_vec(),
        count => (0..limit)
            .map(|i| all[i * (count - 1) / (limit - 1)])
            .collect(),
    }
}

/// Replaces the middle of a text that is too long.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_TEXT_CHARS {
        return text.to_owned();
    }
    let half = MAX_TEXT_CHARS / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{begin}\n[... {} characters ...]\n{end}", count - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_are_selected() {
        let all: Vec<usize> = (0..100).map(|i| i * 7).collect();
        assert_eq!(spaced(&all, 4), [0, 231, 462, 693]);
        assert_eq!(spaced(&all[..3], 4), [0, 7, 14]);
        assert_eq!(spaced(&all, 1), [0]);
        assert_eq!(spaced(&[], 4), [0; 0]);
    }

    #[test]
    fn long_texts_lose_their_middle() {
        let text = format!("{}{}", "a".repeat(4000), "ö".repeat(4000));
        let short = shortened(&text);
        assert!(
            short.starts_with("aaa") && short.ends_with("ööö"),
            "{short}"
        );
        assert!(short.contains("\n[... 2000 characters ...]\n"), "{short}");
        assert_eq!(shortened("right"), "right");
    }
}
