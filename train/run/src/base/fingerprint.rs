//! The fingerprint of a model's files.

use std::fs;
use std::path::{Path, PathBuf};

use lapwing_model::{entries, is_file, read_file};

use crate::record::{RecordError, read_error};

/// Returns a few hex digits that depend on the files of model directories, or on GGUF files: on every byte of small files; for weights, which may have
/// gigabytes, on their length, their header and samples.
///
/// # Errors
/// If a file cannot be read.
pub(crate) fn fingerprint(places: &[&Path]) -> Result<String, RecordError> {
    const SMALL: u64 = 64 << 20;
    let mut sum = 0;
    for place in places {
        let unreadable = |reason: std::io::Error| read_error(place, reason);
        let is_part = |path: &PathBuf| {
            let extension = path.extension().and_then(|e| e.to_str());
            is_file(path)
                && ["json", "jinja", "safetensors"].contains(&extension.unwrap_or_default())
        };
        let mut names: Vec<PathBuf> = match is_file(place) {
            true => vec![place.to_path_buf()],
            false => entries(place).map_err(unreadable)?,
        };
        names.retain(|path| path.as_path() == *place || is_part(path));
        names.sort();
        for path in names {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            sum = crc32c::crc32c_append(sum, name.as_bytes());
            sum = match read_file(&path, SMALL) {
                Ok(bytes) => {
                    sum = crc32c::crc32c_append(sum, &(bytes.len() as u64).to_le_bytes());
                    crc32c::crc32c_append(sum, &bytes)
                }
                Err(_) => sampled(&path, sum).map_err(unreadable)?,
            };
        }
    }
    Ok(format!("{sum:08x}"))
}

/// The first mebibyte, and a page at regular distances.
fn sampled(path: &Path, sum: u32) -> std::io::Result<u32> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    let mut sum = crc32c::crc32c_append(sum, &length.to_le_bytes());
    let mut bytes = vec![0; 1 << 20];
    file.read_exact(&mut bytes)?;
    sum = crc32c::crc32c_append(sum, &bytes);
    bytes.truncate(4096);
    for sample in 1..=256 {
        file.seek(SeekFrom::Start((length - 4096) / 256 * sample))?;
        file.read_exact(&mut bytes)?;
        sum = crc32c::crc32c_append(sum, &bytes);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_byte_or_another_name_is_another_model() {
        let dir = tempfile::tempdir().unwrap();
        let of = || fingerprint(&[dir.path()]).unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).unwrap();
        write("config.json", b"{}");
        write("model.safetensors", &[1; 5000]);
        write("README.md", b"no part of the model");
        let before = of();
        assert_eq!(before, of());
        write("README.md", b"still none");
        assert_eq!(before, of());
        write("config.json", b"[]");
        assert_ne!(before, of());
        write("config.json", b"{}");
        write("model.safetensors", &[[1; 4999].as_slice(), &[2]].concat());
        assert_ne!(before, of());
        write("model.safetensors", &[1; 5000]);
        assert_eq!(before, of());
        fs::rename(
            dir.path().join("config.json"),
            dir.path().join("other.json"),
        )
        .unwrap();
        assert_ne!(before, of());
    }

    #[test]
    fn large_files_are_sampled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let file = fs::File::create(&path).unwrap();
        // A sparse file, so nothing is written.
        file.set_len(70 << 20).unwrap();
        let before = fingerprint(&[dir.path()]).unwrap();
        use std::io::{Seek, SeekFrom, Write};
        let mut file = fs::File::options().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start((70 << 20) - 4096)).unwrap();
        file.write_all(&[1; 4096]).unwrap();
        assert_ne!(before, fingerprint(&[dir.path()]).unwrap());
    }
}
