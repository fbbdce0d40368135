//! Shaders.
