//! A model directory with one file of the fuzzer. Reading it must return a value or an error, without a panic, a large allocation
//! (`-rss_limit_mb`) or an endless loop (`-timeout`).

use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, panic};

/// A copy of a golden checkpoint.
pub struct Home(tempfile::TempDir);

impl Home {
    /// `name` is a directory of `fixtures/golden`, or one below it.
    pub fn of(name: &str) -> Home {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/golden").join(name);
        let home = tempfile::tempdir().expect("a temporary directory");
        for entry in fs::read_dir(golden).expect("the fixtures") {
            let path = entry.expect("an entry").path();
            if path.is_file() && !path.ends_with("expected.safetensors") {
                fs::copy(&path, home.path().join(path.file_name().expect("a name"))).expect("a copy");
            }
        }
        Home(home)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Replaces a file.
    pub fn write(&self, file: &str, bytes: &[u8]) {
        let path: PathBuf = self.path().join(file);
        fs::write(path, bytes).expect("a written file");
    }
}

/// Lets panics pass that the loaders catch and return as errors. The fuzzer's own hook ends the process at every panic.
pub fn pass_caught_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let end = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !lapwing_model::panic_becomes_error() {
                end(panic);
            }
        }));
    });
}
