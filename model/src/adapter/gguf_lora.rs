//! An adapter as a GGUF file, which llama.cpp reads with `--lora`.

use crate::decoder::HEAD;
use crate::files::gguf::{
    Gguf, GgufFormat, GgufOutput, GgufValue, head_permutation, interleaved, tensor_name,
};
use crate::{ModelConfig, ModelError, StoredAdapter};

impl StoredAdapter {
    /// Returns the bytes of a GGUF file with this adapter, for a GGUF file of the model that it belongs to. The names, and the
    /// order of rows in models of the Llama family, are those of llama.cpp's `convert_lora_to_gguf.py`.
    ///
    /// # Errors
    /// The adapter changes a head that is tied to the embedding, which llama.cpp cannot adapt.
    pub fn to_gguf(&self, model: &ModelConfig) -> Result<Vec<u8>, ModelError> {
        // One alpha for all: a layer with another scale has it in B.
        let scale =
            |site: &super::site::LoraSite| site.scale(self.config.rslora) * site.rank as f32;
        let alpha = self.sites.first().map_or(1.0, scale);
        let fields = [
            ("general.type", GgufValue::text("adapter")),
            (
                "general.architecture",
                GgufValue::text(model.family.model_type()),
            ),
            ("adapter.type", GgufValue::text("lora")),
            ("adapter.lora.alpha", GgufValue::float(alpha)),
        ];
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        let mut tensors = Vec::new();
        for (site, pair) in self.sites.iter().zip(self.tensors.chunks_exact(2)) {
            let name = format!("{}.weight", site.linear.module(site.layer));
            if name == HEAD && model.tied {
                let problem = "the adapter changes the head, which is also the embedding; llama.cpp cannot adapt it: merge the \
                               adapter instead (`lapwing merge`), or train without lm_head in lora.targets";
                return Err(ModelError::file(self.path(), problem));
            }
            for ((_, shape, values), side) in pair.iter().zip(["a", "b"]) {
                let mut values = values.clone();
                if side == "b" {
                    values.iter_mut().for_each(|x| *x *= scale(site) / alpha);
                    if let Some(head) = head_permutation(model, &name) {
                        values = interleaved(&values, head, site.rank);
                    }
                }
                let tensor = GgufOutput {
                    name: format!("{}.lora_{side}", tensor_name(&name)),
                    format: GgufFormat::F32,
                    shape: shape.clone(),
                };
                let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                tensors.push((tensor, bytes));
            }
        }
        Ok(Gguf::encode(&fields, &tensors))
    }
}
