//! The episodes of a run that are shown on its page: some of them, whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

use lapwing_play::sample::{Purpose, Sample, SampleTurn};
use lapwing_train::record::Record;

/// How many are shown of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// evaluations: the first, the last, and some between
    evaluations: usize,
    /// episodes of each of these
    of_evaluation: usize,
    /// training steps
    steps: usize,
    /// episodes of each of these, all of one group
    of_step: usize,
}

impl Limits {
    /// A page of many runs shows less of each, or it would be too large to send.
    pub fn of(runs: usize) -> Limits {
        match runs {
            0..=4 => Limits {
                evaluations: 6,
                of_evaluation: 6,
                steps: 4,
                of_step: 8,
            },
            _ => Limits {
                evaluations: 2,
                of_evaluation: 3,
                steps: 1,
                of_step: 4,
            },
        }
    }
}

/// Characters of a text that are shown; of a longer one the middle is left out.
const LONGEST_TEXT: usize = 6000;

/// What is shown of the episodes of a run.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Episodes {
    /// those that are shown, in the order in which they were played
    pub shown: Vec<Shown>,
    /// pairs of them on the same scene, in the first evaluation and in the last
    pub pairs: Vec<[usize; 2]>,
    /// parts of prompts, each once
    pub prompts: Vec<String>,
    /// how many the file has
    pub total: usize,
    /// lines that are no episode
    pub damaged: usize,
}

/// An episode, its prompts replaced by what they are made of.
#[derive(Debug, PartialEq, Serialize)]
pub struct Shown {
    #[serde(flatten)]
    sample: Sample,
    /// For each turn: what stands before the observation and after it, or one part that is the whole prompt.
    prompt_parts: Vec<Vec<usize>>,
}

/// What an episode is chosen by.
#[derive(Debug, Deserialize)]
struct Head {
    step: usize,
    purpose: Purpose,
    scene: String,
    agent: usize,
}

/// An episode that was not read yet.
#[derive(Debug)]
struct Place {
    head: Head,
    offset: u64,
}

impl Episodes {
    /// Goes through the file, which may be far larger than the memory, and reads what is shown.
    pub fn read(path: &Path, limits: Limits) -> io::Result<Episodes> {
        let mut file = BufReader::new(File::open(path)?);
        let mut episodes = Episodes::default();
        let mut places = Vec::new();
        let (mut line, mut offset) = (Vec::new(), 0);
        while file.read_until(b'\n', &mut line)? > 0 {
            // A last line that is not finished is being written.
            if line.ends_with(b"\n") {
                match serde_json::from_slice(&line) {
                    Ok(head) => places.push(Place { head, offset }),
                    Err(_) => episodes.damaged += 1,
                }
            }
            offset += line.len() as u64;
            line.clear();
        }
        episodes.total = places.len();
        for place in chosen(&places, limits) {
            file.seek(SeekFrom::Start(place.offset))?;
            line.clear();
            file.read_until(b'\n', &mut line)?;
            match serde_json::from_slice(&line) {
                Ok(Record::Episode(sample)) => episodes.show(sample),
                _ => episodes.damaged += 1,
            }
        }
        episodes.pair();
        Ok(episodes)
    }

    fn show(&mut self, mut sample: Sample) {
        let prompt_parts = sample
            .turns
            .iter_mut()
            .map(|turn| self.parts(turn))
            .collect();
        for turn in &mut sample.turns {
            turn.reply = shortened(&turn.reply);
            turn.observation = shortened(&turn.observation);
        }
        sample.last = shortened(&sample.last);
        self.shown.push(Shown {
            sample,
            prompt_parts,
        });
    }

    /// Takes the prompt out of a turn: most differ in the observation alone.
    fn parts(&mut self, turn: &mut SampleTurn) -> Vec<usize> {
        let prompt = std::mem::take(&mut turn.prompt);
        let parts = match prompt.rsplit_once(&turn.observation) {
            Some((before, after)) if turn.observation.len() <= LONGEST_TEXT => vec![before, after],
            _ => vec![&*prompt],
        };
        let mut number = |part: &str| {
            let part = shortened(part);
            let known = self.prompts.iter().position(|known| *known == part);
            known.unwrap_or_else(|| {
                self.prompts.push(part);
                self.prompts.len() - 1
            })
        };
        parts.into_iter().map(&mut number).collect()
    }

    fn pair(&mut self) {
        let of = |shown: &Shown| (shown.sample.purpose, shown.sample.step);
        let steps = self.shown.iter().map(of);
        let examined: Vec<usize> = steps
            .filter(|(purpose, _)| *purpose == Purpose::Evaluation)
            .map(|(_, step)| step)
            .collect();
        let (Some(first), Some(last)) = (examined.iter().min(), examined.iter().max()) else {
            return;
        };
        if first == last {
            return;
        }
        let find = |step: usize, like: &Sample| {
            self.shown.iter().position(|shown| {
                of(shown) == (Purpose::Evaluation, step)
                    && shown.sample.scene == like.scene
                    && shown.sample.agent == like.agent
            })
        };
        for (before, shown) in self.shown.iter().enumerate() {
            if of(shown) == (Purpose::Evaluation, *first)
                && let Some(after) = find(*last, &shown.sample)
            {
                self.pairs.push([before, after]);
            }
        }
    }
}

/// Those that are shown: of evaluations the first episodes, which are on the same scenes each time; of training steps those
/// of one group, which differ in nothing but what the model did.
fn chosen(places: &[Place], limits: Limits) -> Vec<&Place> {
    let of = |purpose: Purpose, limit: usize| {
        let mut steps: Vec<usize> = places
            .iter()
            .filter(|place| place.head.purpose == purpose)
            .map(|place| place.head.step)
            .collect();
        steps.sort_unstable();
        steps.dedup();
        spread(&steps, limit)
    };
    let (examined, trained) = (
        of(Purpose::Evaluation, limits.evaluations),
        of(Purpose::Training, limits.steps),
    );
    let mut taken = Vec::new();
    let mut count = std::collections::HashMap::new();
    for place in places {
        let head = &place.head;
        let (steps, limit) = match head.purpose {
            Purpose::Evaluation => (&examined, limits.of_evaluation),
            Purpose::Training => (&trained, limits.of_step),
        };
        if steps.contains(&head.step) {
            let place_of = (&head.scene, head.agent);
            let (group, count) = count
                .entry((head.purpose == Purpose::Training, head.step))
                .or_insert((place_of, 0));
            let fits = head.purpose == Purpose::Evaluation || *group == place_of;
            if fits && *count < limit {
                *count += 1;
                taken.push(place);
            }
        }
    }
    taken
}

/// At most `limit` of these, the first and, if there is room for two, the last among them.
fn spread(all: &[usize], limit: usize) -> Vec<usize> {
    match all.len() {
        count if count <= limit => all.to_vec(),
        _ if limit == 1 => all[..1].to_vec(),
        count => (0..limit)
            .map(|i| all[i * (count - 1) / (limit - 1)])
            .collect(),
    }
}

/// A text without its middle if it is too long.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= LONGEST_TEXT {
        return text.to_owned();
    }
    let half = LONGEST_TEXT / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{begin}\n[... {} characters ...]\n{end}", count - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_are_among_the_chosen() {
        let all: Vec<usize> = (0..100).map(|i| i * 7).collect();
        assert_eq!(spread(&all, 4), [0, 231, 462, 693]);
        assert_eq!(spread(&all[..3], 4), [0, 7, 14]);
        assert_eq!(spread(&all, 1), [0]);
        assert_eq!(spread(&[], 4), [0; 0]);
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
