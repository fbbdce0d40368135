//! `adapter_config.json`.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::{Config, StoredAdapter};
use lapwing_model_fuzz::Home;

static MODEL: LazyLock<Config> =
    LazyLock::new(|| Config::read(Home::of("qwen3").path()).expect("a golden config"));
static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen3/adapter"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("adapter_config.json", bytes);
    let _ = StoredAdapter::read(&MODEL, HOME.path());
});
