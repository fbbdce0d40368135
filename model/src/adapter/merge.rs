//! Merges an adapter into the weights of a model, W + scale B A, in the types and files of the original.

use std::fs;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

use lapwing_tensor::NamedValues;
use serde_json::{Map, Value, json};

use super::site::LoraSite;
use crate::decoder::{EMBEDDING, HEAD};
use crate::files::disk;
use crate::files::fields::read_object;
use crate::files::gguf::{self, Gguf, GgufFields, GgufFormat, GgufOutput, GgufValue, is_gguf};
use crate::files::stored_floats::from_f32;
use crate::files::weight_files::{INDEX, SINGLE, StoredTensor, WeightFiles};
use crate::text::to_gguf::gguf_fields;
use crate::{ModelDirectory, ModelError, StoredAdapter};

/// A tensor that the adapter changes: its low-rank term, and the name of the tensor that the term is added to.
struct MergedTensor<'a> {
    name: String,
    base: String,
    a: &'a [f32], // (r, K)
    b: &'a [f32], // (N, r)
    rank: usize,
    scale: f32,
}

impl MergedTensor<'_> {
    /// Returns some rows of the sum.
    fn rows(&self, weights: &WeightFiles, rows: Range<usize>) -> Result<Vec<f32>, ModelError> {
        let mut values = weights.read_rows(&self.base, rows.clone())?;
        let cols = values.len() / rows.len();
        for (n, row) in rows.zip(values.chunks_exact_mut(cols)) {
            let b = &self.b[n * self.rank..][..self.rank];
            for (factor, a) in b.iter().zip(self.a.chunks_exact(cols)) {
                let factor = self.scale * factor;
                for (value, a) in row.iter_mut().zip(a) {
                    *value += factor * a;
                }
            }
        }
        Ok(values)
    }
}

/// Divides the rows of a tensor into blocks of about a million values and of a multiple of `unit` rows.
fn blocks(shape: &[usize], unit: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let (rows, per_row) = (shape[0], shape[1..].iter().product::<usize>());
    let at_once = ((1 << 20) / per_row.max(1))
        .next_multiple_of(unit)
        .max(unit);
    let starts = (0..rows).step_by(at_once);
    starts.map(move |first| first..rows.min(first + at_once))
}

/// Metadata of the encodings and the parts of a file, which are not those of the new one.
const WRITTEN_ANEW: [&str; 5] = [
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
    "quantize.",
    "split.",
];

/// The encoding of the matrices of a GGUF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// 16 bits.
    F16,
    /// 8 bits, and a scale for every 32 values. Matrices whose columns are not a multiple of 32 have 16 bits.
    Q8,
}

impl ModelDirectory {
    /// Writes this model as a GGUF file for llama.cpp, which must be new; with an adapter of [`ModelDirectory::adapter`] merged
    /// into it, if there is one. Sums are computed in f32 and rounded once; vectors stay in f32. The metadata are those of the
    /// model's own GGUF file, or made from its config, its tokenizer and its chat template. `progress` receives the number of tensors
    /// written so far and the total.
    ///
    /// # Errors
    /// The file exists, GGUF files cannot express the tokenizer, the disk is full, a value is damaged, or a sum overflows the
    /// type. Nothing is then written.
    pub fn merge_gguf(
        &self,
        adapter: Option<&StoredAdapter>,
        out: &Path,
        to: GgufType,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), ModelError> {
        if disk::exists(out) {
            return Err(ModelError::file(out, "exists: choose another name"));
        }
        let config = self.config();
        let merged = adapter.map_or_else(Vec::new, |adapter| self.merged(adapter));
        let mut shapes = config.tensors();
        if config.tied && merged.iter().any(|m| m.name == HEAD) {
            shapes.push((HEAD.to_owned(), vec![config.vocab, config.width]));
        }
        let divisors = gguf::frequency_divisors(config);
        let output = |(name, shape): &(String, Vec<usize>)| GgufOutput {
            name: gguf::tensor_name(name),
            format: match (shape.len(), to) {
                (1, _) => GgufFormat::F32,
                (_, GgufType::Q8) if shape[1].is_multiple_of(32) => GgufFormat::Q8_0,
                _ => GgufFormat::F16,
            },
            shape: shape.clone(),
        };
        let mut outputs: Vec<GgufOutput> = shapes.iter().map(output).collect();
        outputs.extend(divisors.iter().map(|(name, values)| GgufOutput {
            name: (*name).to_owned(),
            format: GgufFormat::F32,
            shape: vec![values.len()],
        }));
        let mut fields = self.gguf_fields()?;
        // The number of the type that most tensors have.
        let number = if to == GgufType::F16 { 1 } else { 7 };
        fields.push(("general.file_type".to_owned(), GgufValue::count(number)));
        fields.push((
            "general.quantization_version".to_owned(),
            GgufValue::count(2),
        ));
        let parent = disk::parent(out);
        fs::create_dir_all(parent).map_err(|e| ModelError::unwritable(parent, e))?;
        disk::write_in_parts(out, |write| {
            write(&Gguf::header(&fields, outputs.iter()))?;
            for (i, ((name, shape), output)) in shapes.iter().zip(&outputs).enumerate() {
                let merged = merged.iter().find(|m| m.name == *name);
                let head = gguf::head_permutation(config, name);
                let mut size = 0;
                for block in blocks(shape, head.unwrap_or(1)) {
                    let mut values = match merged {
                        Some(merged) => merged.rows(&self.weights, block.clone())?,
                        None => self.weights.read_rows(name, block.clone())?,
                    };
                    if let Some(head) = head {
                        values = gguf::interleaved(&values, head, values.len() / block.len());
                    }
                    let bytes = output.format.encode(&values).ok_or_else(|| {
                        let problem = format!("its values are too large for {:?}", output.format);
                        ModelError::tensor(out, &output.name, problem)
                    })?;
                    size += bytes.len();
                    write(&bytes)?;
                }
                write(&vec![0; size.next_multiple_of(gguf::ALIGNMENT) - size])?;
                progress(i + 1, shapes.len());
            }
            match divisors {
                Some((_, values)) => write(&GgufFormat::F32.encode(&values).expect("finite")),
                None => Ok(()),
            }
        })
    }

    /// Returns the metadata of a GGUF file of this model, without the type of its tensors.
    fn gguf_fields(&self) -> Result<GgufFields, ModelError> {
        let own = match is_gguf(self.dir()) {
            true => Some(Gguf::open_header(self.dir())?),
            false => None,
        };
        let has_own_text = own.is_some() && !self.has_other_text();
        let mut fields = match own {
            Some(gguf) => gguf.stored_fields().collect(),
            None => gguf::fields_of(self.config()),
        };
        fields.retain(|(name, _)| {
            let is_of_file = WRITTEN_ANEW.iter().any(|of| name.starts_with(of));
            !is_of_file && (has_own_text || !name.starts_with("tokenizer."))
        });
        if !has_own_text {
            let tokenizer = self.text_file("tokenizer.json")?;
            fields.extend(gguf_fields(self.text_dir(), &tokenizer, self.config())?);
        }
        Ok(fields)
    }

    /// Writes this model with an adapter of [`ModelDirectory::adapter`] merged into it, to a directory that must be new or empty.
    /// The types and files are those of the original, and other files are copied. A GGUF file becomes a Hugging Face directory,
    /// in f16 if it is quantised. Sums are computed in f32 and rounded once. If
    /// the adapter changes a head that is tied to the embedding, the head is written as a tensor of its own. `progress`
    /// receives the number of tensors written so far and the total.
    ///
    /// # Errors
    /// The directory is not empty, the disk is full, a value is damaged, a sum overflows its type, or a link leads out of the
    /// directory. Nothing is then written.
    pub fn merge(
        &self,
        adapter: &StoredAdapter,
        out: &Path,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), ModelError> {
        let wrong = |problem: &str| Err(ModelError::file(out, problem));
        if out.file_name().is_none() {
            return wrong("has no name; name a directory to create");
        }
        if disk::exists(out) {
            match fs::read_dir(out).map(|mut entries| entries.next().is_none()) {
                Ok(true) => (),
                Ok(false) => return wrong("exists and is not empty: choose another directory"),
                Err(_) => return wrong("exists and is not a directory: choose another name"),
            }
        }
        let (config, weights) = (self.config(), &self.weights);
        let merged = self.merged(adapter);
        let is_gguf = is_gguf(self.dir());
        let rest = match is_gguf {
            true => Vec::new(),
            false => self.beside_the_weights()?,
        };
        let untied = config.tied && merged.iter().any(|m| m.name == HEAD);
        let new_head = untied && !weights.contains(HEAD);
        let parent = disk::parent(out);
        fs::create_dir_all(parent).map_err(|e| ModelError::unwritable(parent, e))?;
        disk::write_directory_atomically(out, |new| {
            let (mut done, total) = (0, weights.names().count() + usize::from(new_head));
            for file in weights.files() {
                let mut names = weights.names_in(file);
                if new_head && names.contains(&EMBEDDING) {
                    names.push(HEAD);
                }
                let name = match is_gguf {
                    true => SINGLE.as_ref(),
                    false => file.file_name().expect("a weight file has a name"),
                };
                write_file(&new.join(name), weights, &names, &merged, &mut || {
                    done += 1;
                    progress(done, total);
                })?;
            }
            for path in &rest {
                let copy = new.join(path.file_name().expect("an entry has a name"));
                let bytes = disk::read_file(path, u64::MAX);
                let bytes = bytes.map_err(|e| ModelError::unreadable(path, e))?;
                disk::write_atomically(&copy, &bytes)?;
            }
            if is_gguf {
                let config = config.to_json("float16");
                let config = serde_json::to_string_pretty(&config).expect("plain values");
                disk::write_atomically(&new.join("config.json"), config.as_bytes())?;
            }
            for (name, bytes) in self.text_companions()? {
                disk::write_atomically(&new.join(name), &bytes)?;
            }
            if untied {
                declare_untied(new, weights, new_head)?;
            }
            Ok(())
        })
    }

    fn merged<'a>(&self, adapter: &'a StoredAdapter) -> Vec<MergedTensor<'a>> {
        let merged = |(site, term): (&LoraSite, &'a [NamedValues])| {
            let name = format!("{}.weight", site.linear.module(site.layer));
            let base = match name == HEAD && self.config().tied {
                true => EMBEDDING.to_owned(),
                false => name.clone(),
            };
            MergedTensor {
                name,
                base,
                a: &term[0].2,
                b: &term[1].2,
                rank: site.rank,
                scale: site.scale(adapter.config.rslora),
            }
        };
        let terms = adapter.tensors.chunks_exact(2);
        adapter.sites.iter().zip(terms).map(merged).collect()
    }
}

/// Writes one weight file: a header, then the tensors, a block of rows at a time.
fn write_file(
    path: &Path,
    weights: &WeightFiles,
    names: &[&str],
    merged: &[MergedTensor],
    finished: &mut dyn FnMut(),
) -> Result<(), ModelError> {
    let failed = |e: std::io::Error| ModelError::unwritable(path, e);
    let base = |name: &str| merged.iter().find(|m| m.name == name);
    let mut header = Map::new();
    // transformers refuses files without this entry.
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for &name in names {
        let StoredTensor {
            encoding, shape, ..
        } = weights.stored(base(name).map_or(name, |m| &m.base))?;
        let (start, dtype) = (end, encoding.dtype());
        end += shape.iter().product::<usize>() * dtype.bitsize() / 8;
        header.insert(
            name.to_owned(),
            json!({"dtype": dtype, "shape": shape, "data_offsets": [start, end]}),
        );
    }
    let mut header = Value::Object(header).to_string();
    // Aligns the data.
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }

    let mut file = BufWriter::new(fs::File::create(path).map_err(failed)?);
    let mut write = |bytes: &[u8]| file.write_all(bytes).map_err(failed);
    write(&(header.len() as u64).to_le_bytes())?;
    write(header.as_bytes())?;
    for &name in names {
        match base(name) {
            Some(merged) => write_merged(path, weights, merged, &mut write)?,
            None => weights.copy(name, &mut write)?,
        }
        finished();
    }
    let file = file.into_inner().map_err(|e| failed(e.into_error()))?;
    file.sync_all().map_err(failed)
}

fn write_merged(
    path: &Path,
    weights: &WeightFiles,
    merged: &MergedTensor,
    write: &mut impl FnMut(&[u8]) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    let StoredTensor {
        encoding, shape, ..
    } = weights.stored(&merged.base)?;
    let dtype = encoding.dtype();
    for block in blocks(shape, 1) {
        let values = merged.rows(weights, block)?;
        let bytes = from_f32(&values, dtype).ok_or_else(|| {
            let problem = format!("with the adapter it holds values that {dtype:?} cannot");
            ModelError::tensor(path, &merged.name, problem)
        })?;
        write(&bytes)?;
    }
    Ok(())
}

/// Records in the config and the index that the head is no longer the embedding.
fn declare_untied(new: &Path, weights: &WeightFiles, new_head: bool) -> Result<(), ModelError> {
    let edit = |name: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        let path = new.join(name);
        let mut map = read_object(&path)?;
        change(&mut map);
        let text = serde_json::to_string_pretty(&map).expect("JSON from JSON");
        disk::write_atomically(&path, text.as_bytes())
    };
    edit("config.json", &|config| {
        config.insert("tie_word_embeddings".into(), json!(false));
    })?;
    if weights.is_sharded() && new_head {
        edit(INDEX, &|index| {
            let map = index.get_mut("weight_map").and_then(Value::as_object_mut);
            if let Some(map) = map
                && let Some(file) = map.get(EMBEDDING).cloned()
            {
                map.insert(HEAD.to_owned(), file);
            }
            let stored = weights.stored(EMBEDDING);
            let StoredTensor {
                encoding, shape, ..
            } = stored.expect("the embedding was checked");
            let bits = encoding.dtype().bitsize() as u64;
            let head = shape.iter().product::<usize>() as u64 * bits / 8;
            let metadata = index.get_mut("metadata");
            if let Some(size) = metadata.and_then(|m| m.get_mut("total_size"))
                && let Some(before) = size.as_u64()
            {
                *size = json!(before + head);
            }
        })?;
    }
    Ok(())
}
