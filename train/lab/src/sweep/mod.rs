//! Sweeps: the runs of several settings with several seeds, and the comparison of their results.
//! `docs/sweeps.md` has the format of a sweep file.

mod comparison;
mod probes;
mod results;
mod run_result;
mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::de::DeTable;
use toml::{Table, Value};

use lapwing_train::record::directory;
use lapwing_train::record::metrics::TestResults;
use lapwing_train::{Config, ConfigError, config};

pub use comparison::SweepComparison;
pub use results::SweepResults;
use run_result::RunResult;

/// A sweep file.
#[derive(Debug)]
pub struct Sweep {
    /// The name of the directory: `name` in the file, or the stem of the file name.
    pub name: String,
    /// The seeds of each setting, in the order of the file.
    pub seeds: Vec<u64>,
    /// The additional contents of the results.
    pub compare: SweepComparison,
    /// The runs, grouped by setting, settings in the order of the file.
    pub runs: Vec<SweepRun>,
}

/// One run of a sweep.
#[derive(Debug, Clone)]
pub struct SweepRun {
    /// The name of its setting.
    pub setting: String,
    /// The seed of the training.
    pub seed: u64,
    /// The preset or file of its config.
    pub base: String,
    /// The changes of the config, as for `--set`.
    pub set: Vec<String>,
    /// The resulting config.
    pub config: Config,
}

/// A sweep file that is invalid or cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SweepError(String);

/// A setting's name, and its keys with their values.
type Setting = (String, Vec<(String, Value)>);

const MAX_RUNS: usize = 10_000;
/// The name of a run's directory before its seed.
const SEED: &str = "seed-";
const KEYS: [&str; 7] = [
    "name", "base", "seeds", "set", "settings", "grid", "compare",
];
const SEEDS: &str =
    "wanted a number of seeds, such as 8, or a list of different integers, 0 or more";
const SEED_KEY: &str = "give the seeds of all settings as `seeds`, at the top of the file";
const NAMES: &str = "wanted a unique name of letters, digits, dots, dashes and underscores";
const NO_PROBES: &str = "the networks of dqn and pqn read no instructions: put these settings into a sweep of their own";
const LOCK: &str = "a file of the sweep has this name: choose another";
const SPLIT_NAME: &str = "quote a name with a dot in it, as in [settings.\"lambda-0.9\"]";

impl Sweep {
    /// Reads a sweep file and the configs of all its runs, so that an invalid config is found before the first run.
    ///
    /// # Errors
    /// If the file cannot be read, or a key or setting is invalid. The error names it.
    pub fn load(path: &Path) -> Result<Sweep, SweepError> {
        let text = lapwing_model::read_text(path, 1 << 20);
        let text = text.map_err(|error| SweepError(error.to_string()))?;
        let name = path.display().to_string();
        let file = text.parse();
        let file = file.map_err(|error| ConfigError::syntax(&name, &text, &error));
        let file = file.map_err(|error| SweepError(error.to_string()))?;
        let named = |problem| SweepError(format!("{name}: {problem}"));
        Sweep::parse(path, &text, &file).map_err(named)
    }

    fn parse(path: &Path, text: &str, file: &Table) -> Result<Sweep, String> {
        let has = |name: &&str| file.contains_key(*name);
        let mut sections = config::keys().into_iter().map(|(section, _)| section);
        if let Some(section) = sections.find(has).filter(|_| !KEYS[2..].iter().any(has)) {
            let name = path.file_name().unwrap_or_default().display();
            return Err(format!(
                "this is a config, for it has `{section}`: write a sweep file beside it with the lines `base = \"{name}\"` \
                 and `seeds = 8`, and give that"
            ));
        }
        check_keys(file, "", &KEYS, "a sweep")?;
        let text_of = |key: &str, default: &str| match file.get(key) {
            None => Ok(default.to_owned()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(wrong(key, "wanted a string in quotes")),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = text_of("name", &stem)?;
        if !is_name(&name) {
            return Err(wrong("name", NAMES));
        }
        let default_base = text_of("base", "frozen-lake")?;
        let seeds = seeds(file.get("seeds")).ok_or_else(|| wrong("seeds", SEEDS))?;
        let compare = SweepComparison::read(&table(file, "compare")?)?;
        let common = dotted_keys(&table(file, "set")?);
        let mut runs = Vec::new();
        for (setting, own) in settings(file, text, seeds.len())? {
            let mut base = default_base.clone();
            let mut set = Vec::new();
            for (key, value) in common.iter().chain(&own) {
                match (&**key, value) {
                    ("train.seed", _) => return Err(wrong(key, SEED_KEY)),
                    ("base", Value::String(other)) => base.clone_from(other),
                    _ => set.push(format!("{key}={value}")),
                }
            }
            // A path is relative to the sweep file.
            if base.ends_with(".toml") {
                let beside = path.parent().unwrap_or(Path::new("")).join(&base);
                base = beside.to_string_lossy().into_owned();
            }
            for &seed in &seeds {
                let set = [&set[..], &[format!("train.seed={seed}")]].concat();
                let config = Config::load(&base, &set).map_err(|error| {
                    // The sweep file has no options.
                    let problem = error
                        .to_string()
                        .replace(" in --set", "")
                        .replace(" (--set)", "");
                    format!("setting `{setting}`: {problem}")
                })?;
                runs.push(SweepRun {
                    setting: setting.clone(),
                    seed,
                    base: base.clone(),
                    set,
                    config: config.absolute(),
                });
            }
        }
        for run in runs.iter().filter(|run| run.seed == seeds[0]) {
            if !run.config.learner.has_language() && !compare.probes.is_empty() {
                return Err(wrong("compare.probes", NO_PROBES));
            }
            for probe in &compare.probes {
                let mut game = run.config.game.clone();
                game.probe = Some(probe.clone());
                game.scenario()
                    .map_err(|error| format!("setting `{}`: {error}", run.setting))?;
            }
        }
        Ok(Sweep {
            name,
            seeds,
            compare,
            runs,
        })
    }

    /// Returns the settings, in the order of the file.
    pub(crate) fn settings(&self) -> Vec<&str> {
        let mut settings: Vec<&str> = self.runs.iter().map(|run| &*run.setting).collect();
        settings.dedup();
        settings
    }

    /// Returns the runs in the order of execution: all settings with the first seed, then all with the second. If a
    /// sweep is stopped, its settings have the same seeds, and changes of the machine's load affect all settings
    /// equally.
    pub fn in_order(&self) -> Vec<&SweepRun> {
        let of_seed = |seed| self.runs.iter().filter(move |run| run.seed == seed);
        self.seeds.iter().copied().flat_map(of_seed).collect()
    }
}

fn wrong(key: &str, problem: &str) -> String {
    format!("`{key}`: {problem}")
}

fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-+".contains(c);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_part)
}

fn seeds(value: Option<&Value>) -> Option<Vec<u64>> {
    let seeds: Vec<u64> = match value {
        None => vec![1],
        // One more than allowed is an error later.
        Some(Value::Integer(count)) => {
            let seeds = 1..=u64::try_from(*count).ok()?;
            seeds.take(MAX_RUNS + 1).collect()
        }
        Some(Value::Array(seeds)) => {
            let seed = |seed: &Value| u64::try_from(seed.as_integer()?).ok();
            seeds.iter().map(seed).collect::<Option<_>>()?
        }
        Some(_) => return None,
    };
    let different: BTreeSet<&u64> = seeds.iter().collect();
    (!seeds.is_empty() && different.len() == seeds.len()).then_some(seeds)
}

/// Checks that a table, at `prefix` in the file, has only known keys.
fn check_keys(table: &Table, prefix: &str, known: &[&str], of: &str) -> Result<(), String> {
    match table.keys().find(|key| !known.contains(&&***key)) {
        None => Ok(()),
        Some(key) => {
            let problem = format!("not a key of {of}; the keys are {}", known.join(", "));
            Err(wrong(&format!("{prefix}{key}"), &problem))
        }
    }
}

fn table(file: &Table, key: &str) -> Result<Table, String> {
    match file.get(key) {
        None => Ok(Table::new()),
        Some(Value::Table(table)) => Ok(table.clone()),
        Some(_) => Err(wrong(key, "wanted a table")),
    }
}

/// Returns all settings: those of `[settings]`, or a single one, each combined with all values of `[grid]`.
fn settings(file: &Table, text: &str, seeds: usize) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    for (name, value) in table(file, "settings")? {
        let key = format!("settings.{name}");
        let Value::Table(own) = value else {
            return Err(wrong(&key, "wanted a table"));
        };
        let is_split = |key: &String| key.chars().all(|c| c.is_ascii_digit());
        if own.keys().any(is_split) {
            return Err(wrong(&key, SPLIT_NAME));
        }
        settings.push((name, dotted_keys(&own)));
    }
    let positions = key_positions(text, "settings");
    settings.sort_by_key(|(name, _)| positions.get(name).copied());
    if settings.is_empty() {
        settings.push((String::new(), Vec::new()));
    }
    for (key, value) in dotted_keys(&table(file, "grid")?) {
        let grid_key = format!("grid.{key}");
        let Value::Array(values) = value else {
            return Err(wrong(&grid_key, "wanted a list of values"));
        };
        let last = key.rsplit('.').next().unwrap_or_default();
        let combine = |(name, set): &Setting, value: &Value| {
            let text = value.as_str().map(str::to_owned);
            let text = text.unwrap_or_else(|| value.to_string());
            let separator = if name.is_empty() { "" } else { "_" };
            let name = format!("{name}{separator}{last}-{text}");
            (name, [&set[..], &[(key.clone(), value.clone())]].concat())
        };
        let of_setting = |setting| values.iter().map(move |value| combine(setting, value));
        settings = settings.iter().flat_map(of_setting).collect();
        if settings.is_empty() || settings.len() * seeds > MAX_RUNS {
            let problem = format!("wanted from one to {MAX_RUNS} runs in all");
            return Err(wrong(&grid_key, &problem));
        }
    }
    if settings.len() * seeds > MAX_RUNS {
        let problem = format!("wanted at most {MAX_RUNS} runs in all, settings times seeds");
        return Err(wrong("seeds", &problem));
    }
    if settings[0].0.is_empty() {
        "base".clone_into(&mut settings[0].0);
    }
    let mut names = BTreeSet::new();
    let mut names_of = settings.iter().map(|(name, _)| name);
    match names_of.find(|name| !is_name(name) || *name == "lock" || !names.insert(*name)) {
        Some(name) if name == "lock" => Err(wrong("settings.lock", LOCK)),
        Some(name) => Err(wrong(&format!("settings.{name}"), NAMES)),
        None => Ok(settings),
    }
}

/// Returns the position in the text of each key of a table, because parsed tables lose their order.
fn key_positions(text: &str, table: &str) -> BTreeMap<String, usize> {
    let file = DeTable::parse(text).ok();
    let keys = file
        .as_ref()
        .and_then(|file| file.get_ref().get(table)?.get_ref().as_table());
    let keys = keys.into_iter().flatten();
    keys.map(|(key, _)| (key.get_ref().to_string(), key.span().start))
        .collect()
}

/// Returns all values of a table and its subtables with their dotted keys.
pub(crate) fn dotted_keys(table: &Table) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, value) in table {
        match value {
            Value::Table(inner) => {
                let inner = dotted_keys(inner).into_iter();
                all.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            other => all.push((name.clone(), other.clone())),
        }
    }
    all
}

/// Returns the setting of the run in this directory, if the directory is one of a sweep.
pub fn setting_of(run: &Path) -> Option<String> {
    let seed = run.file_name()?.to_str()?.strip_prefix(SEED)?;
    seed.parse::<u64>().ok()?;
    let setting = run.parent()?.file_name()?;
    Some(setting.to_string_lossy().into_owned())
}

impl SweepRun {
    /// Returns the run's directory within the directory of the sweep.
    pub fn directory(&self, sweep: &Path) -> PathBuf {
        sweep
            .join(&self.setting)
            .join(format!("{SEED}{}", self.seed))
    }

    /// Returns the result if the last step is done, was evaluated, and was tested if the start was.
    pub fn outcome(&self, sweep: &Path) -> Option<RunResult> {
        let (run, steps) = (self.directory(sweep), self.config.train.steps);
        let mut result = RunResult::read(&directory::metrics(&run), &self.setting, self.seed)?;
        let test = TestResults::read(&run);
        match &*test.sampled {
            [before, .., after] if after.step == steps => {
                (result.before, result.after) = (before.play.clone(), after.play.clone());
                result.greedy = test.greedy.last().map(|greedy| greedy.play.clone());
                result.tested = true;
            }
            // It was stopped before the end of its last test.
            [_, ..] if steps > 0 => return None,
            _ => (),
        }
        result.probes = probes::read(&self.probes(sweep));
        (result.curve.last()?.step == steps).then_some(result)
    }

    /// Returns whether the run is finished and has results of all probes of the sweep.
    pub fn is_done(&self, sweep: &Path, compare: &SweepComparison) -> bool {
        self.outcome(sweep).is_some_and(|result| {
            let mut probes = compare.probes.iter();
            probes.all(|probe| result.probes.contains_key(probe))
        })
    }

    /// Returns the path of the run's probe results, in the format of `lapwing probe --json`.
    pub fn probes(&self, sweep: &Path) -> PathBuf {
        self.directory(sweep).with_extension("probes.json")
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    fn load(text: &str) -> Result<Sweep, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("trial.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::write(home.path().join("mine.toml"), "[train]\nsteps = 7\n").unwrap();
        let text = |e: SweepError| e.to_string().replace(home.path().to_str().unwrap(), "DIR");
        Sweep::load(&path).map_err(text)
    }

    #[test]
    fn settings_grids_and_seeds_are_runs() {
        let text = "base = \"frozen-lake\"\nseeds = 2\nset.train.steps = 5\n\
                    [settings.all]\n[settings.even]\ntrain.sampling = \"uniform\"\n\
                    [settings.mine]\nbase = \"mine.toml\"\n[grid]\n\"train.lr\" = [1e-4, 0.5]\n";
        let sweep = load(text).unwrap();
        assert_eq!(sweep.name, "trial");
        let found: Vec<String> = sweep
            .runs
            .iter()
            .filter(|run| run.seed == 2)
            .map(|run| {
                let train = &run.config.train;
                let (sampling, lr, steps) = (train.sampling, train.lr, train.steps);
                assert_eq!((train.seed, steps), (2, 5));
                format!("{}: {sampling:?} {lr}", run.setting)
            })
            .collect();
        assert_eq!(sweep.runs.len(), 12);
        assert_snapshot!(found.join("\n"), @"
        all_lr-0.0001: All 0.0001
        all_lr-0.5: All 0.5
        even_lr-0.0001: Uniform 0.0001
        even_lr-0.5: Uniform 0.5
        mine_lr-0.0001: Aaw 0.0001
        mine_lr-0.5: Aaw 0.5
        ");
        // The first setting in the file is the reference, whatever its name.
        let text = "[settings.z]\n[settings]\nb.train.lr = 0.5\n[settings.a]\nset = 1";
        let text = text.replace("set = 1", "train.lr = 0.25");
        assert_eq!(load(&text).unwrap().settings(), ["z", "b", "a"]);
        let plain = load("seeds = [3, 9]").unwrap();
        let runs: Vec<_> = plain
            .runs
            .iter()
            .map(|run| (&*run.setting, run.seed))
            .collect();
        assert_eq!(runs, [("base", 3), ("base", 9)]);
    }

    #[test]
    fn all_settings_have_a_seed_before_one_has_the_next() {
        let sweep = load("seeds = [7, 2]\n[settings.b]\n[settings.a]").unwrap();
        let order = sweep.in_order().into_iter();
        let order: Vec<_> = order.map(|run| (&*run.setting, run.seed)).collect();
        assert_eq!(order, [("b", 7), ("a", 7), ("b", 2), ("a", 2)]);
    }

    #[test]
    fn comparisons_are_read() {
        let compare = |text: &str| load(&format!("[compare]\n{text}")).map(|sweep| sweep.compare);
        assert_eq!(load("").unwrap().compare, SweepComparison::default());
        let wanted = SweepComparison {
            reach: vec![0.5, 1.0],
            metrics: vec!["entropy".to_owned(), "kl".to_owned()],
            probes: vec!["swapped".to_owned()],
        };
        let text = "reach = [0.5, 1]\nmetrics = [\"entropy\", \"kl\"]\nprobes = [\"swapped\"]";
        assert_eq!(compare(text), Ok(wanted));
        let found = [
            "reach = 0.5",
            "reach = []",
            "reach = [nan]",
            "reach = [1, 1.0]",
            "reach = [\"high\"]",
            "metrics = [\"entropy\", \"entropy\"]",
            "metrics = [\"entrop\"]",
            "metrics = [\"step\"]",
            "probes = []",
            "probes = [\"swaped\"]",
            "reached = [0.5]",
        ]
        .map(|text| compare(text).unwrap_err());
        assert_snapshot!(found.join("\n"));
        assert_eq!(
            load("compare = 3").unwrap_err(),
            "DIR/trial.toml: `compare`: wanted a table"
        );
    }

    /// The sweeps in `docs/experiments`. Large models have three seeds.
    #[test]
    fn experiments_are_sweeps_of_eight_seeds_or_three() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
        let files = std::fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let files: Vec<PathBuf> = files
            .filter(|file| file.extension() == Some("toml".as_ref()))
            .collect();
        assert!(files.len() >= 6);
        for file in files {
            let sweep = Sweep::load(&file).unwrap_or_else(|error| panic!("{error}"));
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_large = ["real-model", "size"].contains(&name);
            let seeds = 1..=if is_large { 3 } else { 8 };
            assert_eq!(sweep.seeds, Vec::from_iter(seeds), "{}", file.display());
        }
    }

    #[test]
    fn errors_name_the_key_or_setting() {
        let found = [
            "odd",
            "seed = 3",
            "seeds = 0",
            "seeds = [1, 1]",
            "seeds = -1",
            "base = 3",
            "base = \"frozen-lak\"",
            "name = \"../x\"",
            "settings = 3",
            "settings.a = 3",
            "settings.\"a/b\".train.lr = 1.0",
            "settings.a.train.lrr = 1.0",
            "grid.train.lr = 1.0",
            "grid.train.lr = []",
            "grid.train.lr = [1.0, 1.0]",
            "seeds = 10000\ngrid.train.lr = [1.0, 2.0]",
            "seeds = 20000",
            "seeds = 9223372036854775807",
            "seeds = 6000\nsettings.a = {}\nsettings.b = {}",
            "settings.lock = {}",
        ]
        .map(|text| load(text).unwrap_err());
        assert_snapshot!(found.join("\n"));
    }
}
