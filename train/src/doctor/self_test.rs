//! The short test that stands before any training: does this device, with this driver, compute right?

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, process};

use lapwing_tensor::check::Wrong;
use lapwing_tensor::{Caps, Gpu, check::checks};
use serde_json::json;

use crate::{Error, folders};

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SelfTest {
    /// This device passed before, with this driver and this version of lapwing.
    Known,
    /// It passed now, in so much time.
    Passed(Duration),
}

/// Holds one kernel of each kind against its reference, unless that is known to be well from an earlier time. That is kept
/// in the user's cache folder; where it cannot be, the test is made each time.
///
/// # Errors
/// [`Error::WrongNumbers`] names the driver and the kernel; [`Error::Gpu`] if the device failed.
pub fn self_test(gpu: &Gpu) -> Result<SelfTest, Error> {
    self_test_in(gpu, folders::cache().as_deref())
}

fn self_test_in(gpu: &Gpu, cache: Option<&Path>) -> Result<SelfTest, Error> {
    let kept = Kept::of(gpu.caps());
    if cache.is_some_and(|cache| kept.is_in(cache)) {
        return Ok(SelfTest::Known);
    }
    let start = Instant::now();
    for check in checks().iter().filter(|check| check.is_short) {
        match check.run(gpu) {
            Ok(_) => (),
            Err(Wrong::Gpu(error)) => return Err(error.into()),
            Err(wrong) => {
                return Err(Error::WrongNumbers {
                    adapter: gpu.caps().name.clone(),
                    driver: gpu.caps().driver.clone(),
                    kernel: check.op,
                    what: format!("{}: {wrong}", check.what),
                });
            }
        }
    }
    if let Some(cache) = cache {
        kept.put(cache);
    }
    Ok(SelfTest::Passed(start.elapsed()))
}

/// What is kept of a device that passed: a file whose name and text follow from what it is.
struct Kept {
    name: String,
    text: String,
}

impl Kept {
    fn of(caps: &Caps) -> Kept {
        let device = json!({
            "lapwing": env!("CARGO_PKG_VERSION"),
            "adapter": caps.name,
            "backend": caps.backend,
            "driver": caps.driver,
            "self_test": "passed",
        });
        let text = format!("{device}\n");
        // FNV-1a: enough to tell files apart, since what counts is the text.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
        let name = format!("self-test-{hash:016x}.json");
        Kept { name, text }
    }

    /// Whatever else is in the file, damage say, it is as if it was not there.
    fn is_in(&self, cache: &Path) -> bool {
        fs::read(cache.join(&self.name)).is_ok_and(|text| text == self.text.as_bytes())
    }

    /// Failing is no error: then the test is made again the next time.
    fn put(&self, cache: &Path) {
        let aside = cache.join(format!("{}.{}", self.name, process::id()));
        let written = fs::create_dir_all(cache)
            .and_then(|()| fs::write(&aside, &self.text))
            .and_then(|()| fs::rename(&aside, cache.join(&self.name)));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::GpuOptions;

    use super::*;

    fn device() -> Gpu {
        Gpu::open(GpuOptions::default()).unwrap()
    }

    #[test]
    fn a_device_is_tested_once() {
        let home = tempfile::tempdir().unwrap();
        let cache = home.path().join("not/there/yet");
        let gpu = device();
        let test = || self_test_in(&gpu, Some(&cache)).unwrap();
        assert!(matches!(test(), SelfTest::Passed(_)));
        assert_eq!(test(), SelfTest::Known);
        let files: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        let [file] = &files[..] else {
            panic!("{files:?}")
        };
        // Damaged in any way, it is made again.
        for damage in [&b""[..], b"{}", b"\xff\xfe", b"{\"self_test\":\"passed\"}"] {
            fs::write(file, damage).unwrap();
            assert!(matches!(test(), SelfTest::Passed(_)));
            assert_eq!(test(), SelfTest::Known);
        }
    }

    #[test]
    fn another_driver_or_version_is_another_device() {
        let home = tempfile::tempdir().unwrap();
        let caps = device().caps().clone();
        Kept::of(&caps).put(home.path());
        assert!(Kept::of(&caps).is_in(home.path()));
        let changes: [fn(&mut Caps); 3] = [
            |caps| caps.driver += ".1",
            |caps| caps.name += "x",
            |caps| caps.backend = "dx12".to_owned(),
        ];
        for change in changes {
            let mut other = caps.clone();
            change(&mut other);
            assert!(!Kept::of(&other).is_in(home.path()));
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("a file, no folder");
        fs::write(&file, "").unwrap();
        for cache in [None, Some(&*file)] {
            let test = self_test_in(&device(), cache).unwrap();
            assert!(matches!(test, SelfTest::Passed(_)));
        }
    }

    #[test]
    fn a_driver_that_computes_wrong_numbers_is_named() {
        let home = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let gpu = device();
            gpu.miscompile("norm", "+ params.eps", "");
            let error = self_test_in(&gpu, Some(home.path()))
                .unwrap_err()
                .to_string();
            let (adapter, driver) = (&gpu.caps().name, &gpu.caps().driver);
            let begins = format!(
                "the driver {driver} of the GPU {adapter} computes wrong numbers in the kernel rms_norm: 33x65: value[0]: got "
            );
            assert!(error.starts_with(&begins), "{error}");
            assert!(
                error.ends_with("; choose another GPU, or update the driver"),
                "{error}"
            );
        }
        // That is not kept: a driver may be mended without a new version.
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
