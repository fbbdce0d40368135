//! Programs that start several processes of lapwing: mpirun and SLURM's srun. With the feature `mpi`, `lapwing train` is one
//! run on all of them.

use std::process;

use anyhow::Result;
use lapwing_learn::communicator::{Alone, Communicator};
use lapwing_tensor::Gpu;

use crate::args::{Command, DeviceArgs};
use crate::commands::InputError;
#[cfg(feature = "mpi")]
use crate::mpi::Mpi;

/// The variables of each launcher: the number of processes, and the number of this process on its machine.
const LAUNCHERS: [[&str; 2]; 3] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"], // Open MPI
    ["PMI_SIZE", "MPI_LOCALRANKID"],                        // MPICH, Intel MPI
    ["SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],              // srun
];

/// How a launcher started this process.
struct Launch {
    /// the number of processes
    size: usize,
    /// the number of this process on its machine
    local_rank: usize,
}

impl Launch {
    /// Returns `None` if this is the only process.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Launch> {
        let number = |name| variable(name)?.parse().ok();
        let mut found = LAUNCHERS.iter().filter_map(|[size, local_rank]| {
            Some(Launch {
                size: number(size)?,
                local_rank: number(local_rank).unwrap_or(0),
            })
        });
        found.next().filter(|launch| launch.size > 1)
    }
}

fn launch() -> Option<Launch> {
    Launch::of(|name| std::env::var(name).ok())
}

/// Makes a command a run of its own, also if a launcher started this process among others.
pub fn run_alone(command: &mut process::Command) {
    for [size, _] in LAUNCHERS {
        command.env_remove(size);
    }
}

/// Connects the processes of a training run, if a launcher started several.
pub fn connect(command: &Command) -> Result<Box<dyn Communicator>> {
    use Command::{Eval, Play, Pretrain, Probe, Serve, Sweep, Train};
    let Some(launch) = launch() else {
        return Ok(Box::new(Alone));
    };
    match command {
        Train(_) => start(launch.size),
        // Each process may run another part.
        Sweep(sweep) if sweep.part.is_some() => Ok(Box::new(Alone)),
        Eval(_) | Play(_) | Pretrain(_) | Probe(_) | Serve(_) | Sweep(_) => {
            let found = format!("{} processes were started by mpirun or srun", launch.size);
            let problem = "only `lapwing train` is one command on several; start this one alone";
            Err(InputError::new(found, problem).into())
        }
        // They write no file, so each process does the same.
        _ => Ok(Box::new(Alone)),
    }
}

#[cfg(feature = "mpi")]
fn start(size: usize) -> Result<Box<dyn Communicator>> {
    let mpi = Mpi::start()?;
    if mpi.size() == size {
        return Ok(Box::new(mpi));
    }
    let problem = format!(
        "MPI connects {} of them: start lapwing with the mpirun of the MPI library that it was built with, or with `srun \
         --mpi=pmix`, for MPICH `--mpi=pmi2` (`srun --mpi=list` prints what srun can do)",
        mpi.size()
    );
    Err(InputError::new(format!("{size} processes were started"), problem).into())
}

#[cfg(not(feature = "mpi"))]
fn start(size: usize) -> Result<Box<dyn Communicator>> {
    let found = format!("{size} processes were started by mpirun or srun");
    let problem = "this lapwing was built without MPI; build it in lapwing's source directory with `cargo install --path train/cli \
                   --features mpi` (on Debian or Ubuntu first: apt-get install openmpi-bin libopenmpi-dev libclang-dev)";
    Err(InputError::new(found, problem).into())
}

/// Selects a device. If none is given, several processes on one machine take its equal devices in turn.
pub fn device(given: DeviceArgs) -> DeviceArgs {
    let (None, Some(launch)) = (given.index, launch()) else {
        return given;
    };
    let found = Gpu::list();
    let best = Gpu::choice(found.iter());
    let is_equal = |index: &usize| best.is_some_and(|best| found[*index].name == found[best].name);
    let equal: Vec<usize> = (0..found.len()).filter(is_equal).collect();
    let index = equal.iter().cycle().nth(launch.local_rank).copied();
    DeviceArgs { index }
}

/// Ends this process's part in a run on several: waits for the others, or after an error ends them too.
pub fn leave(status: u8) {
    #[cfg(feature = "mpi")]
    crate::mpi::leave(status);
    let _ = status;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_found_by_their_variables() {
        let of = |variables: &[(&str, &str)]| {
            let get = |name: &str| variables.iter().find(|(key, _)| *key == name);
            let launch = Launch::of(|name| get(name).map(|(_, value)| (*value).to_owned()));
            launch.map(|launch| (launch.size, launch.local_rank))
        };
        assert_eq!(of(&[]), None);
        let open_mpi = ("OMPI_COMM_WORLD_SIZE", "4");
        assert_eq!(
            of(&[open_mpi, ("OMPI_COMM_WORLD_LOCAL_RANK", "3")]),
            Some((4, 3))
        );
        assert_eq!(
            of(&[("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "1")]),
            Some((2, 1))
        );
        let srun = [("SLURM_STEP_NUM_TASKS", "8"), ("SLURM_LOCALID", "5")];
        assert_eq!(of(&srun), Some((8, 5)));
        // mpirun within a step of SLURM.
        assert_eq!(of(&[open_mpi, srun[0], srun[1]]), Some((4, 0)));
        assert_eq!(of(&[("SLURM_STEP_NUM_TASKS", "1")]), None);
        assert_eq!(of(&[("PMI_SIZE", "many")]), None);
    }
}
