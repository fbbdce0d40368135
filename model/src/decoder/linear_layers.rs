//! The names of a decoder's linear layers.

/// A linear layer: one of the seven in every block, or the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Linear {
    Q,
    K,
    V,
    O,
    Gate,
    Up,
    Down,
    Head,
}

impl Linear {
    /// The layers of a block, in the order of the forward pass.
    pub(crate) const BLOCK: [Linear; 7] = [
        Linear::Q,
        Linear::K,
        Linear::V,
        Linear::O,
        Linear::Gate,
        Linear::Up,
        Linear::Down,
    ];

    /// Returns the name in Hugging Face's and PEFT's files, such as `q_proj`.
    pub(crate) fn name(self) -> &'static str {
        self.path()
            .rsplit('.')
            .next()
            .expect("a split has a last part")
    }

    /// Returns the layer with this name.
    pub(crate) fn parse(name: &str) -> Option<Linear> {
        Linear::BLOCK
            .into_iter()
            .chain([Linear::Head])
            .find(|linear| linear.name() == name)
    }

    /// Returns the name within a block.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Linear::Q => "self_attn.q_proj",
            Linear::K => "self_attn.k_proj",
            Linear::V => "self_attn.v_proj",
            Linear::O => "self_attn.o_proj",
            Linear::Gate => "mlp.gate_proj",
            Linear::Up => "mlp.up_proj",
            Linear::Down => "mlp.down_proj",
            Linear::Head => "lm_head",
        }
    }

    /// Returns the full name in a checkpoint, without `.weight`. The head belongs to no block.
    pub(crate) fn module(self, layer: usize) -> String {
        match self {
            Linear::Head => "lm_head".into(),
            linear => format!("model.layers.{layer}.{}", linear.path()),
        }
    }
}
