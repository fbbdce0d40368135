//! Connects the processes of a run by MPI. Nothing else uses MPI.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::{Result, anyhow};
use lapwing_learn::communicator::Communicator;
use mpi::Threading;
use mpi::request::{Request, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator as _, Destination, Root, Source};

use crate::interrupt::STATUS;

/// MPI counts with 32 bits, so a message goes in parts.
const PART: usize = 64 << 20;
/// MPI's own waiting keeps a core busy, which other ranks on this machine need.
const POLL_INTERVAL: Duration = Duration::from_micros(100);
/// Polls before the first pause: most messages arrive by then.
const PATIENCE: usize = 50;

static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// All processes that mpirun started.
pub struct Mpi(SimpleCommunicator);

impl Mpi {
    /// Connects to the other processes.
    pub fn start() -> Result<Mpi> {
        let started = mpi::initialize_with_threading(Threading::Funneled);
        let (universe, _) = started.ok_or_else(|| anyhow!("MPI is in use already"))?;
        let world = universe.world();
        // `leave` decides how it ends: dropped after an error, it would wait for the other ranks.
        std::mem::forget(universe);
        IS_STARTED.store(true, Relaxed);
        Ok(Mpi(world))
    }
}

/// Leaves MPI. After success or a stop it waits for the other ranks; after an error it ends them.
pub fn leave(status: u8) {
    if !IS_STARTED.load(Relaxed) {
        return;
    }
    if [0, STATUS].contains(&status) {
        // Safety: it was initialised, and no other thread uses it.
        unsafe { mpi::ffi::MPI_Finalize() };
    } else {
        SimpleCommunicator::world().abort(i32::from(status));
    }
}

/// Waits until MPI has used the buffer.
fn wait<'a, D: ?Sized, S: mpi::request::Scope<'a>>(mut request: Request<'a, D, S>) {
    let mut polls = 0;
    while let Err(unfinished) = request.test() {
        request = unfinished;
        pause(&mut polls);
    }
}

fn pause(polls: &mut usize) {
    *polls += 1;
    match *polls < PATIENCE {
        true => yield_now(),
        false => sleep(POLL_INTERVAL),
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.0.rank() as usize
    }

    fn size(&self) -> usize {
        self.0.size() as usize
    }

    fn broadcast(&self, bytes: &mut Vec<u8>) {
        let root = self.0.process_at_rank(0);
        let mut length = bytes.len() as u64;
        scope(|scope| wait(root.immediate_broadcast_into(scope, &mut length)));
        bytes.resize(length as usize, 0);
        for part in bytes.chunks_mut(PART) {
            scope(|scope| wait(root.immediate_broadcast_into(scope, part)));
        }
    }

    fn gather(&self, own: &[u8], each: &mut dyn FnMut(&[u8])) {
        if self.rank() > 0 {
            let root = self.0.process_at_rank(0);
            let send = |part: &[u8]| scope(|scope| wait(root.immediate_send(scope, part)));
            send(&(own.len() as u64).to_le_bytes());
            own.chunks(PART).for_each(send);
            return;
        }
        let mut bytes = Vec::new();
        for rank in 1..self.0.size() {
            let process = self.0.process_at_rank(rank);
            let receive =
                |part: &mut [u8]| scope(|scope| wait(process.immediate_receive_into(scope, part)));
            let mut length = [0; 8];
            receive(&mut length);
            bytes.resize(u64::from_le_bytes(length) as usize, 0);
            bytes.chunks_mut(PART).for_each(receive);
            each(&bytes);
        }
    }
}
