//! The decoder: its configuration, its forward pass, and the layout of its batches and its cache.

mod arena;
mod arena_layout;
mod assemble;
mod initial_weights;
mod linear_layers;
mod model_config;
mod results;
mod rope_frequencies;
mod token_tree;
mod transformer;
mod trie;

pub use arena::KvArena;
pub(crate) use assemble::{WeightSource, assemble};
pub use initial_weights::initial_weights;
pub use linear_layers::Linear;
pub(crate) use model_config::{EMBEDDING, HEAD};
pub use model_config::{ModelConfig, ModelFamily, ModelShape};
pub use results::KeptResults;
pub use rope_frequencies::{Rope, RopeScaling};
pub use token_tree::{PackedTree, TokenTree};
pub use transformer::{Model, Tokens};
pub use trie::TokenNode;
