//! Post-trains small language models to act: MS-GRPO on any GPU.
