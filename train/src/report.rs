//! What a run tells: a JSON line a step for machines, lines and a table for people.

use serde::{Deserialize, Serialize};

use crate::progress::Progress;
use crate::rollout::Episode;
use crate::run_dir::{RunDir, RunError};

/// What one training step brought; a line of `metrics.jsonl`. Means are over the step's episodes unless they say else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Which step, from 1.
    pub step: usize,
    /// Mean composite return: the game's rewards and the shaping.
    pub return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the replies that could be read.
    pub valid_action_rate: f64,
    /// Mean over the learned tokens of the estimated KL against the model without its adapter, in nats.
    pub kl: f64,
    /// Share of the learned tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Mean over the sampled tokens of the entropy of what each was drawn from, in nats.
    pub entropy: f64,
    /// Norm of the gradient before it is cut.
    pub grad_norm: f64,
    /// Positions that separate sequences, prompt and reply for every turn of every episode, would have run.
    pub tokens_played: u64,
    /// Positions that really ran through the model: in rollout, reference and update.
    pub tokens_computed: u64,
    /// Seconds in which the episodes were played.
    pub seconds_rollout: f64,
    /// Seconds in which the adapter learned.
    pub seconds_update: f64,
    /// The loss, averaged over the optimiser updates of the step, each before it was made.
    pub loss: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
    /// Standard deviation of the composite return over the step's episodes.
    pub return_std: f64,
    /// Groups left out because all of their returns were equal.
    pub groups_skipped: usize,
    /// The learning rate.
    pub lr: f64,
}

impl StepMetrics {
    /// What the episodes of a step tell; what learning brought is left at zero.
    pub fn of_episodes(episodes: &[Episode]) -> StepMetrics {
        let returns: Vec<f64> = episodes.iter().map(Episode::composite_return).collect();
        let eval = EvalMetrics::of_episodes("", episodes);
        let entropies: Vec<f64> = episodes
            .iter()
            .flat_map(|e| &e.steps)
            .flat_map(|s| &s.entropies)
            .map(|e| f64::from(*e))
            .collect();
        let (return_mean, return_std) = mean_and_spread(&returns);
        StepMetrics {
            return_mean,
            return_std,
            success_rate: eval.success_rate,
            valid_action_rate: eval.valid_action_rate,
            episode_length_mean: eval.episode_length_mean,
            entropy: mean_and_spread(&entropies).0,
            tokens_played: episodes.iter().map(|e| e.tokens() as u64).sum(),
            ..StepMetrics::default()
        }
    }

    /// In a line for people.
    pub fn summary(&self) -> String {
        format!(
            "return {:.3}  success {:.2}  valid {:.2}  length {:.1}  kl {:.4}  entropy {:.3}  grad {:.3}  {:.2} s",
            self.return_mean,
            self.success_rate,
            self.valid_action_rate,
            self.episode_length_mean,
            self.kl,
            self.entropy,
            self.grad_norm,
            self.seconds_rollout + self.seconds_update
        )
    }
}

/// How a player did on the scenes of the examination.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalMetrics {
    /// The game.
    pub game: String,
    /// Episodes played.
    pub episodes: usize,
    /// Mean of the game's own returns, without shaping.
    pub return_mean: f64,
    /// Share of the episodes that succeeded.
    pub success_rate: f64,
    /// Share of the replies that could be read.
    pub valid_action_rate: f64,
    /// Mean number of turns.
    pub episode_length_mean: f64,
}

impl EvalMetrics {
    /// How these episodes went.
    pub fn of_episodes(game: &str, episodes: &[Episode]) -> EvalMetrics {
        let count = episodes.len() as f64;
        let turns = episodes.iter().map(|e| e.steps.len()).sum::<usize>() as f64;
        let read = |e: &Episode| e.steps.iter().filter(|s| s.action.is_some()).count();
        EvalMetrics {
            game: game.to_owned(),
            episodes: episodes.len(),
            return_mean: episodes.iter().map(Episode::game_return).sum::<f64>() / count,
            success_rate: episodes.iter().filter(|e| e.success).count() as f64 / count,
            valid_action_rate: episodes.iter().map(read).sum::<usize>() as f64 / turns,
            episode_length_mean: turns / count,
        }
    }
}

/// Mean and standard deviation (of the whole, not of a sample).
fn mean_and_spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// An examination as a line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalLine {
    /// Training steps done before it.
    pub step: usize,
    /// How it went.
    pub eval: EvalMetrics,
}

/// Writes down and shows what a training run does.
#[derive(Debug)]
pub struct Report {
    run: RunDir,
    progress: Progress,
    steps: usize,
    evaluations: Vec<EvalLine>,
}

impl Report {
    /// Of a run of so many steps, kept in this directory.
    pub fn new(run: RunDir, progress: Progress, steps: usize) -> Report {
        Report {
            run,
            progress,
            steps,
            evaluations: Vec::new(),
        }
    }

    /// Where the run is kept.
    pub fn run(&self) -> &RunDir {
        &self.run
    }

    /// Where progress is shown.
    pub fn display(&self) -> &Progress {
        &self.progress
    }

    /// Begins a phase, such as `rollout` of 100 `episodes`.
    pub fn phase(&self, name: &'static str, total: usize, unit: &'static str) {
        self.progress.phase(name, total, unit);
    }

    /// So many units of the phase are done by now.
    pub fn progress(&self, done: usize) {
        self.progress.progress(done);
    }

    /// Notes a step.
    ///
    /// # Errors
    /// If a metric is not a finite number, or the line cannot be written.
    pub fn step(&mut self, metrics: &StepMetrics) -> Result<(), RunError> {
        self.run.log(metrics.step, metrics)?;
        self.progress
            .steps(metrics.step, self.steps, &metrics.summary());
        Ok(())
    }

    /// Notes an examination.
    ///
    /// # Errors
    /// If a metric is not a finite number, or the line cannot be written.
    pub fn evaluation(&mut self, step: usize, eval: &EvalMetrics) -> Result<(), RunError> {
        let line = EvalLine {
            step,
            eval: eval.clone(),
        };
        self.run.log(step, &line)?;
        self.evaluations.push(line);
        self.progress.line(&format!(
            "step {step}/{}  evaluation on {} episodes: success {:.3}, return {:.3}",
            self.steps, eval.episodes, eval.success_rate, eval.return_mean
        ));
        Ok(())
    }

    /// The examinations so far, the first before any training.
    pub fn evaluations(&self) -> &[EvalLine] {
        &self.evaluations
    }
}

/// Players beside each other. The spread of the success rate is its standard error.
pub fn comparison(players: &[(&str, &EvalMetrics)]) -> String {
    let width = players
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = format!(
        "{:width$}  success        return  length  valid  episodes\n",
        ""
    );
    for (name, player) in players {
        let (success, episodes) = (player.success_rate, player.episodes);
        let error = (success * (1.0 - success) / episodes as f64).sqrt();
        text += &format!(
            "{name:width$}  {success:.3} ± {error:.3}  {:>6.3}  {:>6.1}  {:>5.2}  {episodes:>8}\n",
            player.return_mean, player.episode_length_mean, player.valid_action_rate
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn eval(success_rate: f64) -> EvalMetrics {
        EvalMetrics {
            game: "frozen-lake".to_owned(),
            episodes: 200,
            return_mean: success_rate,
            success_rate,
            valid_action_rate: 1.0,
            episode_length_mean: 7.25,
        }
    }

    fn step() -> StepMetrics {
        StepMetrics {
            step: 3,
            return_mean: 0.25,
            success_rate: 0.25,
            valid_action_rate: 0.99,
            kl: 0.001,
            clip_fraction: 0.0,
            entropy: 1.2,
            grad_norm: 0.5,
            tokens_played: 100_000,
            tokens_computed: 9_000,
            seconds_rollout: 0.1,
            seconds_update: 0.05,
            loss: -0.01,
            episode_length_mean: 8.5,
            return_std: 0.43,
            groups_skipped: 1,
            lr: 0.001,
        }
    }

    #[test]
    fn the_lines_of_a_run_read_so() {
        let dir = tempfile::tempdir().unwrap();
        let config = crate::Config::load("frozen-lake", &[]).unwrap();
        let run = RunDir::create(dir.path(), &config).unwrap();
        let mut report = Report::new(run, Progress::hidden(), 200);
        report.evaluation(0, &eval(0.125)).unwrap();
        report.step(&step()).unwrap();
        assert_snapshot!(std::fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap(), @r#"
        {"step":0,"eval":{"game":"frozen-lake","episodes":200,"return_mean":0.125,"success_rate":0.125,"valid_action_rate":1.0,"episode_length_mean":7.25}}
        {"step":3,"return_mean":0.25,"success_rate":0.25,"valid_action_rate":0.99,"kl":0.001,"clip_fraction":0.0,"entropy":1.2,"grad_norm":0.5,"tokens_played":100000,"tokens_computed":9000,"seconds_rollout":0.1,"seconds_update":0.05,"loss":-0.01,"episode_length_mean":8.5,"return_std":0.43,"groups_skipped":1,"lr":0.001}
        "#);
    }

    #[test]
    fn a_step_and_a_comparison_read_so() {
        assert_snapshot!(step().summary(), @"return 0.250  success 0.25  valid 0.99  length 8.5  kl 0.0010  entropy 1.200  grad 0.500  0.15 s");
        let (random, best) = (eval(0.055), eval(1.0));
        assert_snapshot!(comparison(&[("random player", &random), ("best player", &best)]), @"
                       success        return  length  valid  episodes
        random player  0.055 ± 0.016   0.055     7.2   1.00       200
        best player    1.000 ± 0.000   1.000     7.2   1.00       200
        ");
    }
}
