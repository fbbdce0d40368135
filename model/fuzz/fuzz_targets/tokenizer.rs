//! `tokenizer.json`, and what it makes of a text.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::{ModelConfig, TextFiles};
use lapwing_model_fuzz::{Home, pass_caught_panics};

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen2"));
static MODEL: LazyLock<ModelConfig> =
    LazyLock::new(|| ModelConfig::read(HOME.path()).expect("a golden config"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pass_caught_panics();
    HOME.write("tokenizer.json", bytes);
    if let Ok(tokenizer) = TextFiles::trusted(HOME.path()).tokenizer(&MODEL)
        && let Ok(ids) = tokenizer.encode_plain("<|im_start|>P _ é\n")
    {
        let _ = tokenizer.decode(&ids);
    }
});
