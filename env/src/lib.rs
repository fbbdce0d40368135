//! Text games for language agents.
