//! `--part K/N`: the share of a sweep's runs for one task of a scheduler.

use std::fmt;
use std::str::FromStr;

use crate::commands::InputError;

const WANTED: &str = "wanted K/N with K from 1 to N, such as 1/4";
const WANTED_ARRAY: &str = "wanted a range of task ids, as of --array=0-7 or 0-14:2; otherwise give --part K/N (1/1 is all)";

/// Part K, counted from 1, of N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(pub usize, pub usize);

impl Part {
    /// Returns the part of this task of a SLURM job array, or `None` outside of one.
    ///
    /// # Errors
    /// If the position of the task does not follow from the variables, as in an array of the ids 1, 2 and 9.
    pub fn of_slurm(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Part>, InputError> {
        let values = ["ID", "MIN", "MAX", "COUNT", "STEP"]
            .map(|name| variable(&format!("SLURM_ARRAY_TASK_{name}")).unwrap_or_default());
        if values[0].is_empty() {
            return Ok(None);
        }
        let numbers = values.each_ref().map(|value| value.parse::<u32>());
        if let [Ok(id), Ok(min), Ok(max), Ok(count), Ok(step @ 1..)] = numbers {
            let mut ids = (min..=max).step_by(step as usize);
            let is_even = ids.clone().count() == count as usize;
            if let Some(before) = ids.position(|other| is_even && other == id) {
                return Ok(Some(Part(before + 1, count as usize)));
            }
        }
        let origin = "SLURM_ARRAY_TASK_ID, _MIN, _MAX, _COUNT, _STEP";
        let problem = format!("found {}; {WANTED_ARRAY}", values.join(", "));
        Err(InputError::new(origin, problem))
    }

    /// Returns every N-th item from the K-th. Shares differ by one item at most.
    pub fn share<T>(self, items: Vec<T>) -> Vec<T> {
        let own = items.into_iter().skip(self.0 - 1);
        own.step_by(self.1).collect()
    }
}

impl FromStr for Part {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Part, &'static str> {
        match text.split_once('/').map(|(k, n)| (k.parse(), n.parse())) {
            Some((Ok(k), Ok(n))) if k > 0 && k <= n => Ok(Part(k, n)),
            _ => Err(WANTED),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "part {}/{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn every_run_is_in_one_part() {
        for (runs, count) in [(12, 5), (3, 3), (2, 5), (7, 1)] {
            let part = |number| Part(number, count);
            let shares = (1..=count).map(|number| part(number).share((0..runs).collect()));
            let shares: Vec<Vec<usize>> = shares.collect();
            let sizes = shares.iter().map(Vec::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
            let mut all = shares.concat();
            all.sort_unstable();
            assert_eq!(all, (0..runs).collect::<Vec<_>>());
        }
        let part: Part = "2/3".parse().unwrap();
        assert_eq!(part.share((0..8).collect()), [1, 4, 7]);
    }

    #[test]
    fn parts_count_from_1() {
        for text in [
            "0/4", "5/4", "3/0", "x", "1", "1/", "1/4/4", "-1/4", "1.0/4", "",
        ] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
        assert_eq!("4/4".parse(), Ok(Part(4, 4)));
    }

    /// The values of ID, MIN, MAX, COUNT and STEP.
    fn of_slurm(values: &str) -> Result<Option<Part>, String> {
        let values: Vec<&str> = values.split(' ').collect();
        let found = Part::of_slurm(|name| {
            let names = ["ID", "MIN", "MAX", "COUNT", "STEP"];
            let name = name.strip_prefix("SLURM_ARRAY_TASK_").unwrap();
            let value = values.get(names.iter().position(|n| *n == name).unwrap());
            value
                .filter(|value| **value != "-")
                .map(|value| (*value).to_owned())
        });
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn an_array_is_a_division() {
        let part = |number, count| Ok(Some(Part(number, count)));
        assert_eq!(of_slurm("-"), Ok(None));
        // --array=0-7 and --array=1-8
        assert_eq!(of_slurm("0 0 7 8 1"), part(1, 8));
        assert_eq!(of_slurm("7 0 7 8 1"), part(8, 8));
        assert_eq!(of_slurm("1 1 8 8 1"), part(1, 8));
        // --array=2-10:4
        assert_eq!(of_slurm("6 2 10 3 4"), part(2, 3));
        // --array=3
        assert_eq!(of_slurm("3 3 3 1 1"), part(1, 1));
        // --array=1,2,9, and values that no SLURM sets.
        for values in [
            "2 1 9 3 1",
            "9 0 7 8 1",
            "0 1 8 8 1",
            "3 2 10 3 4",
            "1 1 1 0 1",
            "1 1 8 8 0",
            "1 1 8 8 -",
            "x 1 8 8 1",
        ] {
            assert!(of_slurm(values).is_err(), "{values}");
        }
        assert_snapshot!(of_slurm("2 1 9 3 1").unwrap_err(), @"SLURM_ARRAY_TASK_ID, _MIN, _MAX, _COUNT, _STEP: found 2, 1, 9, 3, 1; wanted a range of task ids, as of --array=0-7 or 0-14:2; otherwise give --part K/N (1/1 is all)");
    }
}
