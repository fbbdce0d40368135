//! The Hugging Face hub, configured by environment variables.

use std::sync::LazyLock;

use lapwing_model::Hub;

/// Returns the hub. No other place reads its variables.
pub fn hub() -> Option<&'static Hub> {
    static HUB: LazyLock<Hub> =
        LazyLock::new(|| Hub::from_variables(|name| std::env::var(name).ok()));
    Some(&HUB)
}
