//! The self-test before any training: whether this device, with this driver, computes correct numbers.

use std::fs;
use std::path::Path;

use lapwing_shaders::Dialect;
use lapwing_tensor::check::Wrong;
use lapwing_tensor::{Caps, Gpu, check::checks};
use serde_json::json;

use lapwing_train::Error;

/// Compares one kernel of each kind with its reference. If `cache` is given, saves a success in this folder, and skips
/// the test while the device, the driver and the kernels stay the same. Returns whether the test ran.
///
/// # Errors
/// [`Error::WrongNumbers`] with the driver and the kernel, or [`Error::Gpu`] if the device failed.
pub fn self_test(gpu: &Gpu, cache: Option<&Path>) -> Result<bool, Error> {
    let success = SavedSuccess::of(gpu.caps(), kernel_hash());
    if cache.is_some_and(|cache| success.is_in(cache)) {
        return Ok(false);
    }
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
        success.save(cache);
    }
    Ok(true)
}

/// Returns a hash of the source of all kernels, which is the same on every device.
fn kernel_hash() -> u32 {
    let mut hash = 0;
    for name in lapwing_shaders::names() {
        for subgroups in [false, true] {
            let immediates = true;
            let dialect = Dialect {
                immediates,
                subgroups,
            };
            let text = lapwing_shaders::source(name, dialect);
            hash = crc32c::crc32c_append(hash, text.as_bytes());
        }
    }
    hash
}

/// A file whose name and text depend on the device, the driver and the kernels.
struct SavedSuccess {
    name: String,
    text: String,
}

impl SavedSuccess {
    fn of(caps: &Caps, kernels: u32) -> SavedSuccess {
        let device = json!({
            "kernels": kernels,
            "adapter": caps.name,
            "backend": caps.backend,
            "driver": caps.driver,
            "self_test": "passed",
        });
        let text = format!("{device}\n");
        let name = format!("self-test-{:08x}.json", crc32c::crc32c(text.as_bytes()));
        SavedSuccess { name, text }
    }

    /// Returns whether the file exists with exactly this text: a damaged file does not count.
    fn is_in(&self, cache: &Path) -> bool {
        fs::read(cache.join(&self.name)).is_ok_and(|text| text == self.text.as_bytes())
    }

    /// Writes the file. If that fails, the test runs again the next time.
    fn save(&self, cache: &Path) {
        let _ = lapwing_model::write_file(&cache.join(&self.name), self.text.as_bytes());
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
        let test = || self_test(&gpu, Some(&cache)).unwrap();
        assert!(test());
        assert!(!test());
        let files: Vec<_> = fs::read_dir(&cache)
            .unwrap()
            .map(|f| f.unwrap().path())
            .collect();
        let [file] = &files[..] else {
            panic!("{files:?}")
        };
        // A damaged file is replaced.
        for damage in [&b""[..], b"{}", b"\xff\xfe", b"{\"self_test\":\"passed\"}"] {
            fs::write(file, damage).unwrap();
            assert!(test());
            assert!(!test());
        }
    }

    #[test]
    fn another_driver_device_or_kernel_is_tested() {
        let home = tempfile::tempdir().unwrap();
        let caps = device().caps().clone();
        SavedSuccess::of(&caps, 1).save(home.path());
        assert!(SavedSuccess::of(&caps, 1).is_in(home.path()));
        assert!(!SavedSuccess::of(&caps, 2).is_in(home.path()));
        let changes: [fn(&mut Caps); 3] = [
            |caps| caps.driver += ".1",
            |caps| caps.name += "x",
            |caps| caps.backend = "dx12".to_owned(),
        ];
        for change in changes {
            let mut other = caps.clone();
            change(&mut other);
            assert!(!SavedSuccess::of(&other, 1).is_in(home.path()));
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("a file, no folder");
        fs::write(&file, "").unwrap();
        for cache in [None, Some(&*file)] {
            let test = self_test(&device(), cache).unwrap();
            assert!(test);
        }
    }

    #[test]
    fn a_driver_that_computes_wrong_numbers_is_named() {
        let home = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let gpu = device();
            gpu.miscompile("norm", "+ params.eps", "");
            let error = self_test(&gpu, Some(home.path())).unwrap_err().to_string();
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
        // A failure is not saved: a driver may be repaired without a new version number.
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
