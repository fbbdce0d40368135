//! Decoder language models with LoRA adapters, on lapwing-tensor.
