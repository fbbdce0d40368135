//! The self-test before any training: whether this device, with this driver, computes correct numbers.

use std::path::{Path, PathBuf};

use lapwing_model::read_file;
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
    let (name, success) = saved_success(gpu.caps(), kernel_hash());
    let file = cache.map(|cache| cache.join(name));
    // A damaged file does not count.
    let is_success =
        |file: &PathBuf| read_file(file, 1 << 20).is_ok_and(|text| text == success.as_bytes());
    if file.as_ref().is_some_and(is_success) {
        return Ok(false);
    }
    for check in checks().iter().filter(|check| check.is_short) {
        match check.run(gpu) {
            Ok(_) => (),
            Err(Wrong::Gpu(error)) => return Err(error.into()),
            Err(wrong) => {
                let Caps { name, driver, .. } = gpu.caps();
                let (kernel, what) = (check.op, &check.what);
                return Err(Error::WrongNumbers(format!(
                    "the driver {driver} of the GPU {name} computes wrong numbers in the kernel {kernel}: {what}: {wrong}; \
                     choose another GPU, or update the driver"
                )));
            }
        }
    }
    if let Some(file) = file {
        // If that fails, the test runs again the next time.
        let _ = lapwing_model::write_file(&file, success.as_bytes());
    }
    Ok(true)
}

/// Returns a hash of the source of all kernels, which is the same on every device.
fn kernel_hash() -> u32 {
    let mut hash = 0;
    for name in lapwing_shaders::names() {
        for extended in [false, true] {
            let dialect = Dialect {
                immediates: true,
                extended,
            };
            let text = lapwing_shaders::source(name, dialect);
            hash = crc32c::crc32c_append(hash, text.as_bytes());
        }
    }
    hash
}

/// Returns the name and the text of the file that saves a success with this device, driver and kernels.
fn saved_success(caps: &Caps, kernels: u32) -> (String, String) {
    let device = json!({
        "kernels": kernels,
        "adapter": caps.name,
        "backend": caps.backend,
        "driver": caps.driver,
        "self_test": "passed",
    });
    let text = format!("{device}\n");
    let name = format!("self-test-{:08x}.json", crc32c::crc32c(text.as_bytes()));
    (name, text)
}

#[cfg(test)]
mod tests {
    use lapwing_tensor::GpuOptions;

    use std::fs;

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
        let caps = device().caps().clone();
        let success = saved_success(&caps, 1);
        assert_eq!(saved_success(&caps, 1), success);
        assert_ne!(saved_success(&caps, 2), success);
        let changes: [fn(&mut Caps); 3] = [
            |caps| caps.driver += ".1",
            |caps| caps.name += "x",
            |caps| caps.backend = "dx12".to_owned(),
        ];
        for change in changes {
            let mut other = caps.clone();
            change(&mut other);
            assert_ne!(saved_success(&other, 1), success);
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
