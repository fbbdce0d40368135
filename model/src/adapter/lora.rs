//! LoRA adapters (Hu et al. 2021): beside a frozen weight W, a trained low-rank term, y = x W^T + scale (x A^T) B^T.

use lapwing_tensor::{Lora, Tensor};

use super::site::Site;
use crate::{Config, Linear, LoraConfig};

/// The low-rank terms of a model. They are views into the arena of [`Parameters`](lapwing_tensor::Parameters): an
/// optimiser step there changes them here. Cheap to clone.
#[derive(Clone)]
pub struct Adapter {
    config: LoraConfig,
    sites: Vec<Site>,
    blocks: Vec<[Option<Lora>; 7]>,
    head: Option<Lora>,
}

impl Adapter {
    /// `get` gives A and B by name, on the device.
    pub(super) fn over(
        model: &Config,
        config: LoraConfig,
        sites: Vec<Site>,
        get: impl Fn(&str) -> Tensor,
    ) -> Adapter {
        let mut blocks: Vec<[Option<Lora>; 7]> = vec![Default::default(); model.layers];
        let mut head = None;
        for site in &sites {
            let [a, b] = site.names().map(|name| get(&name));
            let scale = site.scale(config.rslora);
            let lora = Some(Lora { a, b, scale });
            match site.linear {
                Linear::Head => head = lora,
                linear => blocks[site.layer][linear as usize] = lora,
            }
        }
        Adapter {
            config,
            sites,
            blocks,
            head,
        }
    }

    /// Every adapted layer with its term.
    pub(super) fn terms(&self) -> impl Iterator<Item = (&Site, &Lora)> {
        self.sites.iter().map(|site| {
            let term = match site.linear {
                Linear::Head => self.head(),
                linear => self.get(site.layer, linear),
            };
            (site, term.expect("every site has its term"))
        })
    }

    /// The term of a linear layer of a block.
    pub(crate) fn get(&self, layer: usize, linear: Linear) -> Option<&Lora> {
        self.blocks[layer][linear as usize].as_ref()
    }

    /// The term of the head.
    pub(crate) fn head(&self) -> Option<&Lora> {
        self.head.as_ref()
    }

    /// Rank, scale and targets.
    pub fn config(&self) -> &LoraConfig {
        &self.config
    }

    /// The same terms, wanting no gradients: for sampling and scoring. Later updates show through.
    pub fn without_gradients(&self) -> Adapter {
        let detached = |lora: &Lora| Lora {
            a: Tensor::detach(&lora.a),
            b: Tensor::detach(&lora.b),
            scale: lora.scale,
        };
        let block =
            |block: &[Option<Lora>; 7]| block.each_ref().map(|lora| lora.as_ref().map(detached));
        Adapter {
            blocks: self.blocks.iter().map(block).collect(),
            head: self.head.as_ref().map(detached),
            ..self.clone()
        }
    }
}
