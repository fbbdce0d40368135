//! `chat_template.jinja`, and the text that it renders.

#![no_main]

use std::sync::LazyLock;
use std::thread;

use lapwing_model::{Message, TextFiles};
use lapwing_model_fuzz::Home;

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen2"));

/// Deep enough for every source within the limit: outside of the sandbox the depth of a template is not limited.
const STACK: usize = 256 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("chat_template.jinja", bytes);
    let render = || {
        if let Ok(template) = TextFiles::trusted(HOME.path()).template() {
            let messages = [Message::new("system", "rules"), Message::new("user", "P _ é")];
            let _ = template.render(&messages, true);
        }
    };
    let thread = thread::Builder::new().stack_size(STACK).spawn(render);
    thread.expect("a thread").join().expect("no panic");
});
