//! Weight files: one or several (with an index) in the safetensors format, or one in the GGUF format. They are memory-mapped
//! and read tensor by tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use lapwing_tensor::{NamedValues, WeightRows};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::disk::{self, FileBytes};
use super::fields::read_object;
use super::gguf::{self, Gguf, GgufFormat, is_gguf};
use super::stored_floats::{from_f32, to_f32};
use crate::{ModelConfig, ModelError};

/// The tensors of a model or an adapter on disk.
#[derive(Debug)]
pub(crate) struct WeightFiles {
    /// The directory of an index, or the single file.
    path: PathBuf,
    files: Vec<(PathBuf, FileBytes)>,
    tensors: BTreeMap<String, StoredTensor>,
}

#[derive(Debug)]
pub(crate) struct StoredTensor {
    file: usize,
    pub(crate) encoding: Encoding,
    pub(crate) shape: Vec<usize>,
    bytes: Range<usize>,
    /// The size of a head if the two numbers of a rotation are stored next to each other, not in the halves of a head.
    interleaved: Option<usize>,
}

/// How the values of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Encoding {
    Safetensors(Dtype),
    Gguf(GgufFormat),
}

impl Encoding {
    /// Returns the type of the values in a safetensors file.
    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Encoding::Safetensors(dtype) => dtype,
            Encoding::Gguf(GgufFormat::F32) => Dtype::F32,
            Encoding::Gguf(GgufFormat::BF16) => Dtype::BF16,
            Encoding::Gguf(_) => Dtype::F16,
        }
    }
}

pub(crate) const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// Reads an index: the file of each tensor.
pub(crate) fn read_index(path: &Path) -> Result<BTreeMap<String, String>, ModelError> {
    let Some(Value::Object(files)) = read_object(path)?.remove("weight_map") else {
        let problem = "weight_map: missing, or not an object";
        return Err(ModelError::file(path, problem));
    };
    let checked = |(tensor, file): (String, Value)| match file.as_str() {
        Some(name) if is_file_name(name) => Ok((tensor, name.to_owned())),
        _ => {
            let problem = format!("{file} is not the name of a file in this directory");
            Err(ModelError::field(
                path,
                &format!("weight_map.{tensor}"),
                problem,
            ))
        }
    };
    files.into_iter().map(checked).collect()
}

/// Returns whether a name stays in its directory.
fn is_file_name(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let plain = matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    );
    // Windows separators are refused everywhere, so that an index means the same on every system.
    plain && !name.contains(['/', '\\', ':', '\0'])
}

impl WeightFiles {
    /// Opens `model.safetensors`, or the files that `model.safetensors.index.json` lists.
    pub(crate) fn open(dir: &Path) -> Result<WeightFiles, ModelError> {
        let (single, index) = (dir.join(SINGLE), dir.join(INDEX));
        if disk::exists(&single) {
            return WeightFiles::open_file(&single);
        }
        if !disk::exists(&index) {
            let problem = format!("no weights: neither {SINGLE} nor {INDEX}");
            return Err(ModelError::file(dir, problem));
        }
        let mut weights = WeightFiles::new(dir);
        let places = read_index(&index)?;
        let names: BTreeSet<&String> = places.values().collect();
        for name in names {
            let path = dir.join(name);
            let mut stored = weights.add_file(&path)?;
            for (tensor, _) in places.iter().filter(|(_, file)| *file == name) {
                let missing = || {
                    let problem = format!("not in this file, although {INDEX} lists it");
                    ModelError::tensor(&path, tensor, problem)
                };
                let stored = stored.remove(tensor).ok_or_else(missing)?;
                weights.tensors.insert(tensor.clone(), stored);
            }
        }
        Ok(weights)
    }

    /// Takes the tensors of a GGUF model under the names of a config.
    pub(crate) fn of_gguf(gguf: Gguf, config: &ModelConfig) -> WeightFiles {
        let mut weights = WeightFiles::new(&gguf.path);
        let mut rest = gguf.header.tensors;
        for (name, _) in config.tensors() {
            if let Some(tensor) = rest.remove(&gguf::tensor_name(&name)) {
                let stored = StoredTensor {
                    file: 0,
                    encoding: Encoding::Gguf(tensor.format),
                    shape: tensor.shape,
                    bytes: tensor.bytes,
                    interleaved: gguf::head_permutation(config, &name),
                };
                weights.tensors.insert(name, stored);
            }
        }
        weights.files.push((gguf.path, gguf.map));
        weights
    }

    pub(crate) fn open_file(path: &Path) -> Result<WeightFiles, ModelError> {
        let mut weights = WeightFiles::new(path);
        weights.tensors = weights.add_file(path)?;
        Ok(weights)
    }

    fn new(path: &Path) -> WeightFiles {
        WeightFiles {
            path: path.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        }
    }

    /// Maps a file and returns the tensors of its header.
    fn add_file(&mut self, path: &Path) -> Result<BTreeMap<String, StoredTensor>, ModelError> {
        let wrong = |problem: String| ModelError::file(path, problem);
        let (map, length) = disk::map(path, u64::MAX).map_err(|e| wrong(e.to_string()))?;
        if length < 8 {
            return Err(wrong(format!("{length} bytes are not a safetensors file")));
        }
        if map.starts_with(b"version https://git-lfs") {
            let problem = "a Git LFS pointer, not the weights; run `git lfs pull` there";
            return Err(wrong(problem.to_owned()));
        }
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|e| wrong(format!("not a safetensors file, or a damaged one: {e}")))?;
        let stored = metadata.tensors().into_iter().map(|(name, info)| {
            let (start, end) = info.data_offsets;
            let stored = StoredTensor {
                file: self.files.len(),
                encoding: Encoding::Safetensors(info.dtype),
                shape: info.shape.clone(),
                bytes: 8 + header + start..8 + header + end,
                interleaved: None,
            };
            (name, stored)
        });
        let stored = stored.collect();
        self.files.push((path.to_owned(), map));
        Ok(stored)
    }

    /// Returns all names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns the file that holds a tensor, or the path that was opened.
    pub(crate) fn path_of(&self, name: &str) -> &Path {
        self.tensors
            .get(name)
            .map_or(&self.path, |stored| &self.files[stored.file].0)
    }

    pub(crate) fn is_sharded(&self) -> bool {
        self.files.iter().all(|(file, _)| *file != self.path)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// Returns the tensors of one file, in the file's order.
    pub(crate) fn names_in(&self, file: &Path) -> Vec<&str> {
        let within = |(_, stored): &(&String, &StoredTensor)| self.files[stored.file].0 == file;
        let mut found: Vec<_> = self.tensors.iter().filter(within).collect();
        found.sort_by_key(|(_, stored)| stored.bytes.start);
        found.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns whether two tensors are stored with the same bytes.
    pub(crate) fn are_same(&self, one: &str, other: &str) -> bool {
        let (Ok(a), Ok(b)) = (self.stored(one), self.stored(other)) else {
            return false;
        };
        let all = |stored: &StoredTensor| self.bytes(stored, &(0..stored.row_count()));
        (a.encoding, &a.shape, all(a)) == (b.encoding, &b.shape, all(b))
    }

    /// Passes the bytes of a tensor in a safetensors file to `write`, and checks that floats are finite.
    pub(crate) fn copy(
        &self,
        name: &str,
        write: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let stored = self.stored(name)?;
        let rows = stored.row_count();
        // A tensor without values may have any number of rows.
        if !stored.is_float() || stored.bytes.is_empty() {
            return write(&self.files[stored.file].1[stored.bytes.clone()]);
        }
        let at_once = ((4 << 20) * rows / stored.bytes.len()).max(1);
        for first in (0..rows).step_by(at_once) {
            let block = first..rows.min(first + at_once);
            let values = self.read_rows(name, block.clone())?;
            match stored.encoding {
                Encoding::Safetensors(_) => write(self.bytes(stored, &block))?,
                encoding => {
                    let bytes = from_f32(&values, encoding.dtype());
                    let problem = "holds values that f16 cannot";
                    write(&bytes.ok_or_else(|| self.wrong(name, problem))?)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn stored(&self, name: &str) -> Result<&StoredTensor, ModelError> {
        self.tensors
            .get(name)
            .ok_or_else(|| self.wrong(name, "missing"))
    }

    /// Returns an error about a tensor, with its name in the file.
    fn wrong(&self, name: &str, problem: impl std::fmt::Display) -> ModelError {
        match is_gguf(&self.path) {
            true => ModelError::tensor(&self.path, &gguf::tensor_name(name), problem),
            false => ModelError::tensor(self.path_of(name), name, problem),
        }
    }

    fn bytes(&self, stored: &StoredTensor, rows: &Range<usize>) -> &[u8] {
        &self.files[stored.file].1[stored.rows(rows)]
    }

    /// Returns an error unless the tensor exists, has this shape and holds floats.
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<(), ModelError> {
        let stored = self.stored(name)?;
        let wrong = |problem: String| Err(self.wrong(name, problem));
        if stored.shape != shape {
            return wrong(format!("the shape is {:?}, wanted {shape:?}", stored.shape));
        }
        match stored.encoding {
            _ if stored.is_float() => Ok(()),
            other => wrong(format!(
                "stored as {:?}; supported are F16, BF16, F32 and F64",
                other.dtype()
            )),
        }
    }

    /// Reads all values of a tensor of this shape.
    pub(crate) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        self.check(name, shape)?;
        self.read_rows(name, 0..self.stored(name)?.row_count())
    }

    /// Reads some rows (of the first axis) of a tensor that passed [`WeightFiles::check`], and returns the memory of the file's
    /// pages to the system.
    pub(crate) fn read_rows(&self, name: &str, rows: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let stored = self.stored(name)?;
        let per_row: usize = stored.shape.iter().skip(1).product();
        let mut values = Vec::with_capacity(rows.len() * per_row);
        for piece in stored.pieces(rows.clone()) {
            let bytes = self.bytes(stored, &piece);
            let read = match stored.encoding {
                Encoding::Safetensors(dtype) => to_f32(bytes, dtype),
                Encoding::Gguf(format) => format.to_f32(bytes),
            };
            match values.is_empty() {
                true => values = read,
                false => values.extend(read),
            }
        }
        self.files[stored.file].1.release(stored.rows(&rows));
        // A loop without an early exit is several times as fast.
        let largest = values
            .iter()
            .fold(0, |most, x| most.max(x.to_bits() & 0x7fff_ffff));
        if f32::from_bits(largest).is_finite() {
            return Ok(values);
        }
        let at = values.iter().position(|x| !x.is_finite());
        let at = at.expect("the largest is not finite");
        let (row, value) = (rows.start + at / per_row.max(1), values[at]);
        let problem = format!("holds {value} in row {row}; the checkpoint is damaged");
        Err(self.wrong(name, problem))
    }

    /// Reads some rows of a tensor in the encoding of its file: quants, and scale and minimum of each group. `None` if the
    /// tensor is not quantised.
    pub(crate) fn read_quants(
        &self,
        name: &str,
        rows: Range<usize>,
    ) -> Result<Option<WeightRows<'static>>, ModelError> {
        let stored = self.stored(name)?;
        let Encoding::Gguf(format) = stored.encoding else {
            return Ok(None);
        };
        if format.device_format().group().is_none() {
            return Ok(None);
        }
        let (mut quants, mut scales) = (Vec::new(), Vec::new());
        for piece in stored.pieces(rows.clone()) {
            let read = format.decode(self.bytes(stored, &piece));
            quants.extend(read.0);
            scales.extend(read.1);
        }
        self.files[stored.file].1.release(stored.rows(&rows));
        if scales.iter().flatten().all(|x| x.is_finite()) {
            return Ok(Some(WeightRows::Quants(quants, scales)));
        }
        let problem =
            format!("holds a scale that is not a number in rows {rows:?}; the file is damaged");
        Err(self.wrong(name, problem))
    }
}

impl StoredTensor {
    fn is_float(&self) -> bool {
        matches!(
            self.encoding.dtype(),
            Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64
        )
    }

    /// Returns the rows as they lie in the file, for consecutive rows of the tensor.
    fn pieces(&self, rows: Range<usize>) -> Vec<Range<usize>> {
        let Some(head) = self.interleaved else {
            return vec![rows];
        };
        let place = |row: usize| {
            let (first, row) = (row / head * head, row % head);
            first + row % (head / 2) * 2 + row / (head / 2)
        };
        rows.map(|row| place(row)..place(row) + 1).collect()
    }

    fn row_count(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Returns the bytes of some rows in the file.
    fn rows(&self, rows: &Range<usize>) -> Range<usize> {
        // An empty tensor may have any length in the other axes.
        if self.bytes.is_empty() {
            return self.bytes.clone();
        }
        let size = self.bytes.len() / self.row_count();
        self.bytes.start + rows.start * size..self.bytes.start + rows.end * size
    }
}

/// Returns the bytes of a safetensors file with f32 tensors stored as `dtype` (F16, BF16 or F32).
pub(crate) fn serialize(tensors: &[NamedValues], dtype: Dtype) -> Result<Vec<u8>, String> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, shape, values) in tensors {
        let bytes = from_f32(values, dtype).ok_or_else(|| name.clone())?;
        stored.push((name, shape, bytes));
    }
    let views = stored.iter().map(|(name, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes);
        (name.as_str(), view.expect("the shape has as many bytes"))
    });
    // transformers refuses files without this entry.
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    Ok(safetensors::serialize(views, Some(metadata)).expect("tensors of distinct names"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(values: &[f32], dtype: Dtype) -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.safetensors");
        let tensors = [("t".to_owned(), vec![2, values.len() / 2], values.to_vec())];
        std::fs::write(&path, serialize(&tensors, dtype).unwrap()).unwrap();
        (home, path)
    }

    #[test]
    fn written_files_are_read_again() {
        let values = [1.0, -2.5, 0.0, 0.125, 3.0, -4.0];
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32] {
            let (_home, path) = file_with(&values, dtype);
            let weights = WeightFiles::open_file(&path).unwrap();
            assert_eq!(weights.read("t", &[2, 3]).unwrap(), values);
            assert_eq!(weights.read_rows("t", 1..2).unwrap(), values[3..]);
        }
    }

    #[test]
    fn values_that_overflow_sixteen_bits_are_named() {
        let tensors = [("big".to_owned(), vec![1], vec![1e6])];
        assert_eq!(serialize(&tensors, Dtype::F16).unwrap_err(), "big");
        assert!(serialize(&tensors, Dtype::BF16).is_ok());
    }

    #[test]
    fn an_index_stays_in_its_directory() {
        for outside in ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "C:x"] {
            assert!(!is_file_name(outside), "{outside:?}");
        }
        assert!(is_file_name("model-1.safetensors"));
    }
}
