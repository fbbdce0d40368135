//! `config.json`.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::ModelDirectory;
use lapwing_model_fuzz::Home;

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("llama"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("config.json", bytes);
    let _ = ModelDirectory::open(HOME.path());
});
