//! TensorBoard's event files, which Weights & Biases and trackio can import.
//!
//! A file is a sequence of records: the length of the data (u64, little-endian), a checksum of the length, the data, a
//! checksum of the data. A checksum is a masked CRC-32C. The data is an `Event` in Protocol Buffers: a time, a step,
//! and numbers with their tags.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use lapwing_learn::metrics::numbers;
use lapwing_play::metrics::Baselines;
use lapwing_train::Config;
use lapwing_train::record::metrics::now;
use lapwing_train::record::{Record, RecordError, Sink, directory, jsonl, write_error};

/// An event file that is open for writing.
#[derive(Debug)]
pub struct EventFile {
    pub(crate) path: PathBuf,
    file: File,
    /// Written at each evaluation, since TensorBoard draws no horizontal lines.
    baselines: Vec<(String, f64)>,
}

impl EventFile {
    /// Creates the event file of a run with all of its metrics, if its config enables that. Removes earlier event files
    /// of lapwing in the folder, so that a resumed run has each step once.
    ///
    /// # Errors
    /// If the metrics cannot be read, or the file cannot be written.
    pub fn of_run(run: &Path, config: &Config) -> Result<Option<EventFile>, RecordError> {
        if !config.record.tensorboard {
            return Ok(None);
        }
        let records = jsonl::read::<Record>(&directory::metrics(run))?;
        EventFile::with(&directory::tensorboard(run), &records).map(Some)
    }

    /// Creates an event file with these records in a folder. Removes earlier ones of lapwing.
    pub(crate) fn with(folder: &Path, records: &[Record]) -> Result<EventFile, RecordError> {
        fs::create_dir_all(folder).map_err(write_error(folder))?;
        for entry in fs::read_dir(folder).map_err(write_error(folder))? {
            let entry = entry.map_err(write_error(folder))?;
            if is_event_file(&entry.file_name().to_string_lossy()) {
                fs::remove_file(entry.path()).map_err(write_error(&entry.path()))?;
            }
        }
        let time = now();
        let path = folder.join(format!("{PREFIX}{}{SUFFIX}", time as u64));
        let file = File::create_new(&path).map_err(write_error(&path))?;
        let mut events = EventFile {
            path,
            file,
            baselines: Vec::new(),
        };
        let mut bytes = framed(&version(time));
        for record in records {
            bytes.extend(events.frames(record));
        }
        events.write(&bytes)?;
        Ok(events)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.file.write_all(bytes).map_err(write_error(&self.path))
    }

    /// Returns the bytes that a record adds to the file.
    fn frames(&mut self, record: &Record) -> Vec<u8> {
        let tagged = |numbers: Vec<(String, f64)>, default| -> Vec<(String, f64)> {
            let tagged = |(name, value): (String, f64)| Some((tag(&name, default)?, value));
            numbers.into_iter().filter_map(tagged).collect()
        };
        let (step, time, scalars) = match record {
            Record::Step(metrics) => {
                let scalars = tagged(numbers(metrics), "train");
                (metrics.step, metrics.time, scalars)
            }
            Record::Evaluation(evaluation) => {
                let mut scalars = tagged(numbers(evaluation), "eval");
                scalars.extend_from_slice(&self.baselines);
                (evaluation.step, evaluation.time, scalars)
            }
            Record::Warning(warning) => {
                let tag = format!("warnings/{}", warning.check);
                (warning.step, warning.time, vec![(tag, warning.value)])
            }
            Record::Baselines(baselines) => {
                self.baselines = baseline_scalars(baselines);
                return Vec::new();
            }
            Record::Episode(_) => return Vec::new(),
        };
        framed(&event(time, step, &scalars))
    }
}

impl Sink for EventFile {
    fn record(&mut self, record: &Record) -> Result<(), RecordError> {
        let bytes = self.frames(record);
        self.write(&bytes)
    }
}

const PREFIX: &str = "events.out.tfevents.";
const SUFFIX: &str = ".lapwing";

/// Returns whether this is the name of an event file of lapwing.
pub(crate) fn is_event_file(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Returns the tag of a metric in its group, or in the default one: `seconds_rollout` is `time/rollout`. Returns `None`
/// for the fields of the event itself.
fn tag(name: &str, default: &str) -> Option<String> {
    let is_step = default == "train";
    let (group, name) = match name {
        "step" | "time" => return None,
        "kl" | "clip_fraction" | "grad_norm" | "loss" | "lr" | "first_ratio_error" | "td_loss"
        | "td_error" | "q_target" | "gradient_norm" | "learning_rate"
            if is_step =>
        {
            ("loss", name)
        }
        "value_loss" | "value_mean" | "explained_variance" if is_step => ("critic", name),
        _ => match name.split_once('_') {
            Some(("seconds", rest)) => ("time", rest),
            Some((group @ ("tokens" | "gradient"), rest)) => (group, rest),
            _ => (default, name),
        },
    };
    Some(format!("{group}/{name}"))
}

fn baseline_scalars(baselines: &Baselines) -> Vec<(String, f64)> {
    let mut scalars = Vec::new();
    for (player, play) in [
        ("random", &baselines.random),
        ("scripted", &baselines.scripted),
    ] {
        let Some(play) = play else { continue };
        let tag = |metric| format!("baselines/{player}_{metric}");
        scalars.push((tag("return_mean"), play.return_mean));
        scalars.push((tag("success_rate"), play.success_rate));
    }
    let best = baselines.best_possible;
    scalars.extend(best.map(|best| ("baselines/best_possible_return".to_owned(), best)));
    scalars
}

/// Returns the data with its length and both checksums.
fn framed(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let [of_length, of_data] = [&length, data].map(|bytes| checksum(bytes).to_le_bytes());
    [&length, &of_length[..], data, &of_data].concat()
}

fn checksum(data: &[u8]) -> u32 {
    crc32c::crc32c(data)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// Returns the first event of a file: `Event { 1: wall_time, 3: file_version }`.
fn version(time: f64) -> Vec<u8> {
    let version = field(3, 2, b"brain.Event:2");
    [field(1, 1, &time.to_le_bytes()), version].concat()
}

/// Returns `Event { 1: wall_time, 2: step, 5: Summary { 1: Value { 1: tag, 2: simple_value }... } }`.
fn event(time: f64, step: usize, scalars: &[(String, f64)]) -> Vec<u8> {
    let scalar = |(tag, value): &(String, f64)| {
        let value = field(2, 5, &(*value as f32).to_le_bytes());
        field(1, 2, &[field(1, 2, tag.as_bytes()), value].concat())
    };
    let summary: Vec<u8> = scalars.iter().flat_map(scalar).collect();
    let time = field(1, 1, &time.to_le_bytes());
    let step = field(2, 0, &varint(step as u64));
    [time, step, field(5, 2, &summary)].concat()
}

/// Returns a field of Protocol Buffers: its number, its wire type (0 varint, 1 eight bytes, 2 length and bytes, 5 four
/// bytes), and its value.
fn field(number: u64, wire_type: u64, value: &[u8]) -> Vec<u8> {
    let length = match wire_type {
        2 => varint(value.len() as u64),
        _ => Vec::new(),
    };
    [&varint(number << 3 | wire_type), &length, value].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapwing_learn::metrics::{CriticMetrics, StepMetrics, UpdateMetrics};
    use lapwing_play::metrics::{PlayMetrics, ReplyMetrics};
    use lapwing_train::record::metrics::{Evaluation, Warning};

    /// An independent reader, with a bitwise CRC.
    mod reader {
        /// CRC-32C by definition: the remainder modulo the polynomial 0x1EDC6F41, bits reversed.
        fn crc32c(data: &[u8]) -> u32 {
            let mut crc = !0u32;
            for byte in data {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    let divides = crc & 1 == 1;
                    crc = crc >> 1 ^ if divides { 0x82f6_3b78 } else { 0 };
                }
            }
            !crc
        }

        fn masked(data: &[u8]) -> u32 {
            let crc = crc32c(data);
            let (high, low) = (crc >> 15, crc << 17);
            (high | low).wrapping_add(0xa282_ead8)
        }

        pub(crate) enum FieldValue<'a> {
            Number(u64),
            Bytes(&'a [u8]),
        }

        impl FieldValue<'_> {
            pub(crate) fn number(&self) -> u64 {
                match self {
                    FieldValue::Number(number) => *number,
                    FieldValue::Bytes(_) => panic!("bytes, not a number"),
                }
            }

            pub(crate) fn bytes(&self) -> &[u8] {
                match self {
                    FieldValue::Bytes(bytes) => bytes,
                    FieldValue::Number(number) => panic!("{number}, not bytes"),
                }
            }
        }

        pub(crate) fn records(mut file: &[u8]) -> Vec<&[u8]> {
            let mut records = Vec::new();
            while !file.is_empty() {
                let (head, rest) = file.split_at(12);
                let length = u64::from_le_bytes(head[..8].try_into().unwrap()) as usize;
                assert_eq!(head[8..], masked(&head[..8]).to_le_bytes());
                let (data, rest) = rest.split_at(length);
                let (check, rest) = rest.split_at(4);
                assert_eq!(check, masked(data).to_le_bytes());
                records.push(data);
                file = rest;
            }
            records
        }

        fn varint(data: &mut &[u8]) -> u64 {
            let (mut value, mut shift) = (0, 0);
            loop {
                let byte = data[0];
                *data = &data[1..];
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    return value;
                }
            }
        }

        /// Returns the fields of a message with their numbers.
        pub(crate) fn fields(mut data: &[u8]) -> Vec<(u64, FieldValue<'_>)> {
            let mut fields = Vec::new();
            while !data.is_empty() {
                let key = varint(&mut data);
                let length = match key & 7 {
                    0 => 0,
                    1 => 8,
                    2 => varint(&mut data) as usize,
                    5 => 4,
                    kind => panic!("kind {kind}"),
                };
                let value = match key & 7 {
                    0 => FieldValue::Number(varint(&mut data)),
                    _ => {
                        let (value, rest) = data.split_at(length);
                        data = rest;
                        FieldValue::Bytes(value)
                    }
                };
                fields.push((key >> 3, value));
            }
            fields
        }

        #[test]
        fn the_checksum_is_that_of_rfc_3720() {
            assert_eq!(crc32c(b"123456789"), 0xe306_9283);
            assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        }
    }

    /// Time, step and scalars of an event.
    type EventScalars = (f64, u64, Vec<(String, f32)>);

    /// Returns the events after the first.
    fn events(file: &[u8]) -> Vec<EventScalars> {
        let records = reader::records(file);
        let first = reader::fields(records[0]);
        assert_eq!(first.last().unwrap().0, 3);
        assert_eq!(first.last().unwrap().1.bytes(), b"brain.Event:2");
        let event = |record: &&[u8]| {
            let fields = reader::fields(record);
            let [(1, time), (2, step), (5, summary)] = &fields[..] else {
                panic!("wanted wall_time, step and summary");
            };
            let scalars = reader::fields(summary.bytes())
                .into_iter()
                .map(|(field, value)| {
                    assert_eq!(field, 1);
                    let value = reader::fields(value.bytes());
                    let [(1, tag), (2, number)] = &value[..] else {
                        panic!("wanted tag and simple_value");
                    };
                    let tag = String::from_utf8(tag.bytes().to_vec()).unwrap();
                    (tag, f32::from_le_bytes(number.bytes().try_into().unwrap()))
                });
            let time = f64::from_le_bytes(time.bytes().try_into().unwrap());
            (time, step.number(), scalars.collect())
        };
        records[1..].iter().map(event).collect()
    }

    fn records() -> Vec<Record> {
        let play = PlayMetrics {
            episodes: 200,
            return_mean: -0.125,
            success_rate: 0.5,
            top_action: "left".to_owned(),
            replies: Some(ReplyMetrics {
                entropy: 1.25,
                ..ReplyMetrics::default()
            }),
            ..PlayMetrics::default()
        };
        let baselines = Baselines {
            random: Some(play.clone()),
            scripted: Some(play.clone()),
            best_possible: Some(0.75),
            ..Baselines::default()
        };
        let evaluation = Evaluation {
            step: 300,
            time: 1.7e9,
            seconds_evaluation: 2.5,
            play: play.clone(),
            ..Evaluation::default()
        };
        let step = StepMetrics {
            step: 301,
            time: 1.7e9 + 0.25,
            play,
            tokens_played: Some(1000),
            learned: Some(UpdateMetrics {
                kl: Some(0.001),
                ..UpdateMetrics::default()
            }),
            critic: Some(CriticMetrics {
                value_loss: 0.5,
                value_mean: 0.25,
                explained_variance: None,
            }),
            ..StepMetrics::default()
        };
        let warning = Warning {
            step: 301,
            time: 1.7e9 + 0.5,
            check: "kl".to_owned(),
            value: 3.0,
            ..Warning::default()
        };
        vec![
            Record::Baselines(baselines),
            Record::Evaluation(evaluation),
            Record::Step(step),
            Record::Warning(warning),
        ]
    }

    #[test]
    fn an_event_file_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let file = EventFile::with(&dir.path().join("tensorboard"), &records()).unwrap();
        let found = events(&fs::read(&file.path).unwrap());
        let head: Vec<(f64, u64)> = found.iter().map(|(time, step, _)| (*time, *step)).collect();
        assert_eq!(
            head,
            [(1.7e9, 300), (1.7e9 + 0.25, 301), (1.7e9 + 0.5, 301)]
        );
        let lines: Vec<String> = found
            .iter()
            .flat_map(|(_, step, scalars)| {
                scalars
                    .iter()
                    .map(move |(tag, value)| format!("{step} {tag} {value}"))
            })
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    /// A resumed run does, too.
    #[test]
    fn a_file_has_each_step_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes.txt"), "precious").unwrap();
        let all = records();
        let mut file = EventFile::with(dir.path(), &all[..2]).unwrap();
        file.record(&all[2]).unwrap();
        let expected = events(&fs::read(&file.path).unwrap());
        let mut file = EventFile::with(dir.path(), &all[..3]).unwrap();
        assert_eq!(events(&fs::read(&file.path).unwrap()), expected);
        file.record(&all[3]).unwrap();
        assert_eq!(events(&fs::read(&file.path).unwrap()).len(), 3);
        let mut names: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(names[1], "notes.txt");
    }
}
