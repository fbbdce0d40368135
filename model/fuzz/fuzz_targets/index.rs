//! `model.safetensors.index.json`.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::ModelDirectory;
use lapwing_model_fuzz::Home;

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen2-sharded"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("model.safetensors.index.json", bytes);
    let _ = ModelDirectory::open(HOME.path());
});
