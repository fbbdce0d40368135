//! The Hugging Face hub, as the environment of this process sets it up.

use std::sync::LazyLock;

use lapwing_model::Hub;

/// The hub that models are taken from. Libraries get it passed; no other place reads its variables.
pub fn hub() -> Option<&'static Hub> {
    static HUB: LazyLock<Hub> =
        LazyLock::new(|| Hub::from_variables(|name| std::env::var(name).ok()));
    Some(&HUB)
}
