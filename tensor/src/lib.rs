//! Tensors on any GPU, with gradients, for language models.
