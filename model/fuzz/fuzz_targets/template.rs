//! `chat_template.jinja`, and what it does to a conversation.

#![no_main]

use std::sync::LazyLock;

use lapwing_model::{ChatTemplate, Message};
use lapwing_model_fuzz::Home;

static HOME: LazyLock<Home> = LazyLock::new(|| Home::of("qwen2"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HOME.write("chat_template.jinja", bytes);
    if let Ok(template) = ChatTemplate::load(HOME.path()) {
        let messages = [Message::system("rules"), Message::user("P _ é")];
        let _ = template.render(&messages, true);
    }
});
