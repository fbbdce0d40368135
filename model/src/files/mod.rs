//! Files in Hugging Face's formats and in llama.cpp's. Input is untrusted: lengths, names, shapes and values are checked before anything is
//! allocated. Output is written to a temporary name and renamed.

mod companion_files;
pub(crate) mod config_json;
pub(crate) mod disk;
pub(crate) mod fields;
pub(crate) mod gguf;
mod memory;
mod model_directory;
mod precision;
mod rope_json;
mod save_model;
pub(crate) mod stored_floats;
pub(crate) mod weight_files;

pub use companion_files::CompanionFiles;
pub use disk::{
    FileReader, entries, is_dir, is_file, open_regular, read_file, read_text, reader,
    remove_temporary, write_atomically, write_file,
};
pub use gguf::{file_of_model, is_gguf};
pub use memory::{MEMORY, clear_memory};
pub use model_directory::ModelDirectory;
pub use precision::{LoadReport, Precision};
