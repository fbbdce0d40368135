//! How the processes of one run talk: a connection, and the messages that go over it.

use std::borrow::Cow;
use std::ops::Range;

use lapwing_play::Seat;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::ratio::Ratios;

/// The connection of one process to the others. The defaults are those of a single process.
pub trait Communicator {
    /// Returns the number of this process, from 0.
    fn rank(&self) -> usize {
        0
    }

    /// Returns the number of processes.
    fn size(&self) -> usize {
        1
    }

    /// Sends the bytes of rank 0 to all other ranks, where they replace `bytes`.
    fn broadcast(&self, _bytes: &mut Vec<u8>) {}

    /// Sends the bytes of each other rank to rank 0, which passes them to `each` in the order of the ranks. Rank 0's own
    /// are not used.
    fn gather(&self, _own: &[u8], _each: &mut dyn FnMut(&[u8])) {}
}

/// A run in a single process.
pub struct Alone;

impl Communicator for Alone {}

/// What rank 0 requests of all other ranks. Numbers may follow.
#[derive(Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    /// Play a share of these seats. The answer is the episodes.
    Play {
        world: usize,
        seats: Cow<'a, [Seat]>,
        temperature: f64,
    },
    /// Compute the gradient of one batch: rank r that with the index r - 1. The answer is its metrics, followed by the
    /// gradient; `None` if there are fewer batches.
    Gradient {
        batches: Cow<'a, [Batch]>,
        ratios: Cow<'a, Ratios>,
    },
    /// Take the numbers as the trained weights.
    Weights,
    /// Take the adapter in these files, of these names, as the KL reference.
    Reference(Vec<(String, Vec<u8>)>),
    /// Answer with a [`RankState`](crate::ranks::RankState).
    State { checksum: bool },
    /// Leave.
    End,
}

impl dyn Communicator + '_ {
    /// Returns which of `count` episodes this rank plays. They are neighbours, which belong to the same scene, so that their
    /// prompts share prefixes.
    pub(crate) fn share(&self, count: usize) -> Range<usize> {
        let (rank, size) = (self.rank(), self.size());
        count * rank / size..count * (rank + 1) / size
    }

    /// Sends a request of rank 0, followed by numbers, to all other ranks.
    pub(crate) fn request(&self, request: &Request<'_>, numbers: &[f32]) {
        if self.size() > 1 {
            self.broadcast(&mut message(request, numbers));
        }
    }

    /// Passes the answer of each other rank, and its numbers, to `each`.
    pub(crate) fn answers<T: DeserializeOwned>(&self, mut each: impl FnMut(T, Vec<f32>)) {
        self.gather(&[], &mut |bytes| {
            let (answer, numbers) = read(bytes);
            each(answer, numbers);
        });
    }

    /// Sends the answer of a rank other than 0, and its numbers, to rank 0.
    pub(crate) fn answer<T: Serialize>(&self, answer: &T, numbers: &[f32]) {
        self.gather(&message(answer, numbers), &mut |_| ());
    }
}

/// All ranks run the same program, so what one of them writes the others can read.
fn message<T: Serialize>(head: &T, numbers: &[f32]) -> Vec<u8> {
    let mut bytes = postcard::to_stdvec(head).expect("plain values");
    bytes.extend_from_slice(bytemuck::cast_slice(numbers));
    bytes
}

/// Reads a request or an answer, and the numbers after it.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> (T, Vec<f32>) {
    let (head, numbers) = postcard::take_from_bytes(bytes).expect("a message of this program");
    (head, bytemuck::pod_collect_to_vec(numbers))
}
