"""Writes the reference for quantised GGUF blocks: python gguf_blocks.py fixtures/golden/gguf_blocks.safetensors

For each encoding two rows of 256 values: their bytes, and the values that the package gguf (of llama.cpp) decodes. The bytes are
random, with scales between 2^-10 and 2^-2. Needs only:
    pip install gguf safetensors
"""
import sys

import gguf
import numpy
from safetensors.numpy import save_file

# The places of the 16-bit scales in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

random = numpy.random.default_rng(1)
tensors = {}
for name, places in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (512 // values, size), dtype=numpy.uint8)
    for place in places:
        scale = numpy.float16(2.0 ** random.uniform(-10, -2, len(blocks)))
        blocks[:, place : place + 2] = scale.view(numpy.uint8).reshape(-1, 2)
    rows = blocks.reshape(2, -1)
    tensors[f"{name}.bytes"] = rows
    tensors[f"{name}.values"] = gguf.quants.dequantize(rows, kind).astype(numpy.float32)
save_file(tensors, sys.argv[1])
