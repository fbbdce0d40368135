//! LoRA adapters: the layers that they change, their weights and their files.

mod gguf_lora;
mod lora;
mod lora_config;
mod merge;
mod peft;
mod site;
mod targets;

pub use lora::Adapter;
pub use lora_config::LoraConfig;
pub use merge::GgufType;
pub use peft::StoredAdapter;
pub use targets::Targets;
