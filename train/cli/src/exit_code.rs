//! The exit code of an error: 2 if the input is wrong (arguments, a config, a file that the user named), 1 if something
//! failed at run time (device, memory, network, another process, a write).

use std::error::Error as StdError;

use lapwing_lab::sweep::SweepError;
use lapwing_learn::LearnError;
use lapwing_model::ModelError;
use lapwing_play::{PlayError, SettingError};
use lapwing_tensor::GpuError;
use lapwing_train::checkpoint::CheckpointError;
use lapwing_train::record::RecordError;
use lapwing_train::{ConfigError, Error};

use crate::commands::InputError;

/// Returns the exit code. clap uses 2, too.
pub fn of(error: &anyhow::Error) -> u8 {
    if error.chain().any(is_input) { 2 } else { 1 }
}

fn is_input(error: &(dyn StdError + 'static)) -> bool {
    // An error that wraps another one transparently is one link of the chain.
    let inner: &(dyn StdError + 'static) = match error.downcast_ref() {
        Some(Error::Config(_) | Error::Checkpoint(_) | Error::Unusable(_)) => return true,
        Some(Error::Play(error)) => error,
        Some(Error::Learn(error)) => error,
        Some(Error::Model(error)) => error,
        Some(Error::Record(error)) => error,
        Some(Error::Gpu(error)) => error,
        _ => error,
    };
    if let Some(error) = inner.downcast_ref() {
        return matches!(error, ModelError::File { .. } | ModelError::Targets(_));
    }
    if let Some(error) = inner.downcast_ref() {
        use RecordError::{InUse, NotFinite, Write};
        return !matches!(error, InUse(_) | NotFinite { .. } | Write { .. });
    }
    if let Some(error) = inner.downcast_ref() {
        use PlayError::{NoPlanes, NoScene, Prompt, Setting};
        return matches!(error, NoPlanes(_) | NoScene { .. } | Prompt(_) | Setting(_));
    }
    if let Some(error) = inner.downcast_ref() {
        return matches!(error, LearnError::Imitation(_) | LearnError::Network(_));
    }
    matches!(inner.downcast_ref(), Some(GpuError::NoSuchDevice { .. }))
        || inner.is::<InputError>()
        || inner.is::<ConfigError>()
        || inner.is::<SettingError>()
        || inner.is::<SweepError>()
        || inner.is::<CheckpointError>()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::{Path, PathBuf};

    use anyhow::Context;
    use lapwing_train::record::write_error;

    use super::*;

    #[test]
    fn wrong_input_and_failures_have_different_codes() {
        let path = || PathBuf::from("run");
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        let input: [anyhow::Error; 6] = [
            Error::Unusable(String::new()).into(),
            Error::from(RecordError::Occupied(path())).into(),
            RecordError::Occupied(path()).into(),
            lapwing_model::read_text(Path::new("no/such/file"), 1)
                .unwrap_err()
                .into(),
            Error::from(PlayError::NoPlanes(String::new())).into(),
            InputError::new("--out", "exists").into(),
        ];
        let failures: [anyhow::Error; 5] = [
            GpuError::NoDevice.into(),
            Error::from(write_error(Path::new("run"))(full())).into(),
            ModelError::unwritable(Path::new("run"), full()).into(),
            RecordError::InUse(path()).into(),
            ModelError::Hub(String::new()).into(),
        ];
        for (errors, code) in [(Vec::from(input), 2), (Vec::from(failures), 1)] {
            for error in errors {
                assert_eq!(of(&error), code, "{error:?}");
                let in_context = Err::<(), _>(error)
                    .context("the run in runs/1")
                    .unwrap_err();
                assert_eq!(of(&in_context), code, "{in_context:?}");
            }
        }
    }
}
