//! Weight files in the safetensors format: one file or several with an index, memory-mapped and read tensor by tensor.
//!
//! A file from a stranger is not trusted: lengths, names, shapes and values are checked, and nothing larger than what
//! the file really holds is ever allocated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use lapwing_tensor::NamedValues;
use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::disk;
use super::fields::read_object;
use crate::ModelError;

/// The tensors of a checkpoint or adapter, still on disk.
pub(crate) struct WeightFiles {
    /// The directory or file, for complaints about tensors that are nowhere.
    path: PathBuf,
    files: Vec<(PathBuf, Mmap)>,
    tensors: BTreeMap<String, StoredTensor>,
}

/// Where a tensor lies and what it looks like.
struct StoredTensor {
    file: usize,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

const SINGLE: &str = "model.safetensors";
pub(crate) const INDEX: &str = "model.safetensors.index.json";

impl WeightFiles {
    /// `model.safetensors`, or the files that `model.safetensors.index.json` lists.
    pub(crate) fn open(dir: &Path) -> Result<WeightFiles, ModelError> {
        let single = dir.join(SINGLE);
        if disk::exists(&single) {
            return WeightFiles::open_file(&single);
        }
        let index = dir.join(INDEX);
        if disk::exists(&index) {
            return WeightFiles::open_sharded(dir, &index);
        }
        Err(ModelError::file(
            dir,
            format!("no weights: neither {SINGLE} nor {INDEX}"),
        ))
    }

    /// One file.
    pub(crate) fn open_file(path: &Path) -> Result<WeightFiles, ModelError> {
        let mut weights = WeightFiles {
            path: path.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        weights.tensors = weights.add_file(path)?;
        Ok(weights)
    }

    fn open_sharded(dir: &Path, index: &Path) -> Result<WeightFiles, ModelError> {
        let map = read_object(index)?;
        let Some(Value::Object(places)) = map.get("weight_map") else {
            return Err(ModelError::field(
                index,
                "weight_map",
                "missing, or not an object",
            ));
        };
        let mut weights = WeightFiles {
            path: dir.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
        };
        let mut names = BTreeSet::new();
        for (tensor, file) in places {
            names.insert(file_in_directory(index, tensor, file)?);
        }
        for name in names {
            let mut held = weights.add_file(&dir.join(name))?;
            let wanted = places
                .iter()
                .filter(|(_, file)| file.as_str() == Some(name));
            for (tensor, _) in wanted {
                let Some(stored) = held.remove(tensor) else {
                    let problem = format!("{INDEX} says it is in this file, but it is not");
                    return Err(ModelError::tensor(&dir.join(name), tensor, problem));
                };
                weights.tensors.insert(tensor.clone(), stored);
            }
        }
        Ok(weights)
    }

    /// Maps a file and returns what its header lists.
    fn add_file(&mut self, path: &Path) -> Result<BTreeMap<String, StoredTensor>, ModelError> {
        let wrong = |problem: String| ModelError::file(path, problem);
        let file = disk::open(path)?;
        let length = file.metadata().map_err(|e| wrong(e.to_string()))?.len();
        if length < 8 {
            return Err(wrong(format!("{length} bytes are not a safetensors file")));
        }
        // SAFETY: the map is only read. If another process truncates the file meanwhile, reading it ends this one
        // with a signal; every user of memory-mapped weights accepts that, because copying gigabytes is worse.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| wrong(e.to_string()))?;
        if map.starts_with(b"version https://git-lfs") {
            return Err(wrong(
                "a Git LFS pointer, not the weights; run `git lfs pull` there".into(),
            ));
        }
        let (header, metadata) = SafeTensors::read_metadata(&map)
            .map_err(|e| wrong(format!("not a safetensors file, or a damaged one: {e}")))?;
        let mut tensors = BTreeMap::new();
        for (name, info) in metadata.tensors() {
            let (start, end) = info.data_offsets;
            let bytes = 8 + header + start..8 + header + end;
            let stored = StoredTensor {
                file: self.files.len(),
                dtype: info.dtype,
                shape: info.shape.clone(),
                bytes,
            };
            tensors.insert(name, stored);
        }
        self.files.push((path.to_owned(), map));
        Ok(tensors)
    }

    /// All names, sorted.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// The file that holds a tensor, or where one looked for it.
    pub(crate) fn path_of(&self, name: &str) -> &Path {
        self.tensors
            .get(name)
            .map_or(&self.path, |stored| &self.files[stored.file].0)
    }

    /// Whether there is an index.
    pub(crate) fn is_sharded(&self) -> bool {
        // The path is the directory then, and the file otherwise.
        self.files.iter().all(|(file, _)| *file != self.path)
    }

    /// The weight files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }

    /// The tensors of one file, in the order in which they lie there.
    pub(crate) fn names_in(&self, file: &Path) -> Vec<&str> {
        let within = |(_, stored): &(&String, &StoredTensor)| self.files[stored.file].0 == file;
        let mut found: Vec<_> = self.tensors.iter().filter(within).collect();
        found.sort_by_key(|(_, stored)| stored.bytes.start);
        found.into_iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Type and shape of a tensor.
    pub(crate) fn layout(&self, name: &str) -> Result<(Dtype, &[usize]), ModelError> {
        let stored = self.stored(name)?;
        Ok((stored.dtype, &stored.shape))
    }

    /// Whether two tensors are stored alike, to the last byte.
    pub(crate) fn are_same(&self, one: &str, other: &str) -> bool {
        let (Ok(a), Ok(b)) = (self.stored(one), self.stored(other)) else {
            return false;
        };
        let bytes = |stored: &StoredTensor| &self.files[stored.file].1[stored.bytes.clone()];
        (a.dtype, &a.shape, bytes(a)) == (b.dtype, &b.shape, bytes(b))
    }

    /// Hands out the bytes of a tensor as they are; of floats only if they are finite.
    pub(crate) fn copy(
        &self,
        name: &str,
        write: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let stored = self.stored(name)?;
        if matches!(
            stored.dtype,
            Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64
        ) {
            let rows = stored.shape.first().copied().unwrap_or(1);
            let at_once = ((4 << 20) * rows / stored.bytes.len().max(1)).max(1);
            for first in (0..rows).step_by(at_once) {
                self.read_rows(name, first..rows.min(first + at_once))?;
            }
        }
        write(&self.files[stored.file].1[stored.bytes.clone()])?;
        self.release(name, 0..stored.shape.first().copied().unwrap_or(1));
        Ok(())
    }

    /// The type in which a tensor is stored.
    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        Some(self.tensors.get(name)?.dtype)
    }

    fn stored(&self, name: &str) -> Result<&StoredTensor, ModelError> {
        self.tensors
            .get(name)
            .ok_or_else(|| ModelError::tensor(&self.path, name, "missing"))
    }

    /// Complains unless the tensor is there, has this shape and holds floats.
    pub(crate) fn check(&self, name: &str, shape: &[usize]) -> Result<(), ModelError> {
        let stored = self.stored(name)?;
        let wrong = |problem: String| Err(ModelError::tensor(self.path_of(name), name, problem));
        if stored.shape != shape {
            return wrong(format!("the shape is {:?}, wanted {shape:?}", stored.shape));
        }
        match stored.dtype {
            Dtype::F16 | Dtype::BF16 | Dtype::F32 | Dtype::F64 => Ok(()),
            other => wrong(format!(
                "stored as {other:?}; supported are F16, BF16, F32 and F64"
            )),
        }
    }

    /// Lets go of the memory that reading these rows took. They can be read again.
    pub(crate) fn release(&self, name: &str, rows: Range<usize>) {
        #[cfg(unix)]
        if let Ok(stored) = self.stored(name) {
            let bytes = stored.rows(&rows);
            let map = &self.files[stored.file].1;
            // SAFETY: of a map of a file that is only read, the pages come back from the file when they are looked
            // at again. Advice that is not taken does no harm.
            let _ = unsafe {
                map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    bytes.start,
                    bytes.len(),
                )
            };
        }
        #[cfg(not(unix))]
        let _ = (name, rows);
    }

    /// All values of a tensor of the given shape.
    pub(crate) fn read(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        self.check(name, shape)?;
        let rows = shape.first().copied().unwrap_or(1);
        self.read_rows(name, 0..rows)
    }

    /// The values of some rows (of the first axis) of a tensor that passed [`WeightFiles::check`].
    pub(crate) fn read_rows(&self, name: &str, rows: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let stored = self.stored(name)?;
        let per_row: usize = stored.shape.iter().skip(1).product();
        let bytes = &self.files[stored.file].1[stored.rows(&rows)];
        let values = to_f32(bytes, stored.dtype);
        // Every value is looked at, without a way out: that is several times as fast, and the way out is rare.
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
        Err(ModelError::tensor(self.path_of(name), name, problem))
    }
}

impl StoredTensor {
    /// Where some rows (of the first axis) lie in the file.
    fn rows(&self, rows: &Range<usize>) -> Range<usize> {
        // A tensor of no elements may claim any length of the other axes.
        let sizes = self.shape.iter().skip(1);
        let per_row = sizes.fold(1, |product: usize, size| product.saturating_mul(*size));
        let size = per_row.saturating_mul(self.dtype.bitsize() / 8);
        if self.bytes.is_empty() {
            return self.bytes.clone();
        }
        self.bytes.start + rows.start * size..self.bytes.start + rows.end * size
    }
}

/// The file name of an index entry, which must be a plain name: an index may not reach outside its directory.
fn file_in_directory<'a>(
    index: &Path,
    tensor: &str,
    file: &'a Value,
) -> Result<&'a str, ModelError> {
    let name = file.as_str().unwrap_or("");
    let mut components = Path::new(name).components();
    let plain = matches!(
        (components.next(), components.next()),
        (Some(Component::Normal(_)), None)
    );
    // Windows separators are refused everywhere, so that a checkpoint means the same on every system.
    if plain && !name.contains(['/', '\\', ':', '\0']) {
        return Ok(name);
    }
    let problem = format!("{file} is not the name of a file in this directory");
    Err(ModelError::field(
        index,
        &format!("weight_map.{tensor}"),
        problem,
    ))
}

/// Little-endian floats of any supported type, as f32. Stored tensors need not be aligned.
fn to_f32(bytes: &[u8], dtype: Dtype) -> Vec<f32> {
    fn convert<const N: usize, T>(bytes: &[u8], one: impl Fn([u8; N]) -> T) -> Vec<T> {
        bytes
            .as_chunks::<N>()
            .0
            .iter()
            .map(|piece| one(*piece))
            .collect()
    }
    match dtype {
        Dtype::F16 => {
            let stored = convert(bytes, f16::from_le_bytes);
            let mut values = vec![0.0; stored.len()];
            // The processor's own instruction, where it has one, does eight at a time.
            stored.convert_to_f32_slice(&mut values);
            values
        }
        Dtype::BF16 => convert(bytes, |b| bf16::from_le_bytes(b).to_f32()),
        Dtype::F32 => convert(bytes, f32::from_le_bytes),
        Dtype::F64 => convert(bytes, |b| f64::from_le_bytes(b) as f32),
        other => unreachable!("check() lets no {other:?} through"),
    }
}

/// A safetensors file in memory, of named f32 tensors stored as `dtype` (F16, BF16 or F32).
///
/// # Errors
/// The name of a tensor with a value that the type cannot hold.
pub(crate) fn serialize(tensors: &[NamedValues], dtype: Dtype) -> Result<Vec<u8>, String> {
    let mut stored = Vec::with_capacity(tensors.len());
    for (name, shape, values) in tensors {
        let bytes = from_f32(values, dtype).ok_or_else(|| name.clone())?;
        stored.push((name, shape, bytes));
    }
    let views = stored.iter().map(|(name, shape, bytes)| {
        let view = safetensors::tensor::TensorView::new(dtype, shape.to_vec(), bytes);
        (
            name.as_str(),
            view.expect("as many bytes as the shape asks for"),
        )
    });
    // transformers refuses files that do not say for whom they were written.
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    Ok(safetensors::serialize(views, Some(metadata)).expect("tensors of distinct names"))
}

/// `None` if a value is not finite in the type.
pub(crate) fn from_f32(values: &[f32], dtype: Dtype) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.bitsize() / 8);
    for &value in values {
        let finite = match dtype {
            Dtype::F16 => {
                let x = f16::from_f32(value);
                bytes.extend(x.to_le_bytes());
                x.is_finite()
            }
            Dtype::BF16 => {
                let x = bf16::from_f32(value);
                bytes.extend(x.to_le_bytes());
                x.is_finite()
            }
            Dtype::F64 => {
                bytes.extend(f64::from(value).to_le_bytes());
                value.is_finite()
            }
            _ => {
                bytes.extend(value.to_le_bytes());
                value.is_finite()
            }
        };
        if !finite {
            return None;
        }
    }
    Some(bytes)
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
    fn what_is_written_is_read_again() {
        let values = [1.0, -2.5, 0.0, 0.125, 3.0, -4.0];
        for dtype in [Dtype::F16, Dtype::BF16, Dtype::F32] {
            let (_home, path) = file_with(&values, dtype);
            let weights = WeightFiles::open_file(&path).unwrap();
            assert_eq!(weights.read("t", &[2, 3]).unwrap(), values);
            assert_eq!(weights.read_rows("t", 1..2).unwrap(), values[3..]);
        }
    }

    #[test]
    fn values_that_sixteen_bits_cannot_hold_are_refused_by_name() {
        let tensors = [("big".to_owned(), vec![1], vec![1e6])];
        assert_eq!(serialize(&tensors, Dtype::F16).unwrap_err(), "big");
        assert!(serialize(&tensors, Dtype::BF16).is_ok());
    }

    #[test]
    fn an_index_stays_in_its_directory() {
        for outside in ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\\b", "C:x"] {
            let outside = Value::from(outside);
            let found = file_in_directory(Path::new("i"), "t", &outside);
            assert!(found.is_err(), "{outside:?} got through");
        }
        assert!(
            file_in_directory(Path::new("i"), "t", &Value::from("model-1.safetensors")).is_ok()
        );
    }
}
