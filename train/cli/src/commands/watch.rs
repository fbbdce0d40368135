//! stub for now
use crate::args;
pub fn watch(_: &args::Watch) -> anyhow::Result<()> { Ok(()) }
