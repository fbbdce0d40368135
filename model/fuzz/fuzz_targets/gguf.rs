//! A GGUF file: its header, its tokenizer and its template.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::{ModelDirectory, TextFiles};
use lapwing_model_fuzz::{Home, pass_caught_panics};

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("llama"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pass_caught_panics();
    let path = HOME.path().join("model.gguf");
    HOME.write("model.gguf", bytes);
    let text = TextFiles::trusted(&path);
    if let Ok(model) = ModelDirectory::open(&path) {
        let _ = (text.tokenizer(model.config()).is_ok(), text.template().is_ok());
    }
});
