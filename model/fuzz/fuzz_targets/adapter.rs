//! `adapter_config.json`.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::{ModelConfig, StoredAdapter};
use lapwing_model_fuzz::Home;

static MODEL: LazyLock<ModelConfig> =
    LazyLock::new(|| ModelConfig::read(Home::of("qwen3").path()).expect("a golden config"));
static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen3/adapter"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("adapter_config.json", bytes);
    let _ = StoredAdapter::read(&MODEL, HOME.path());
});
