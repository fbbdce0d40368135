#!/usr/bin/env python3
"""Predicts the rows decode, prefill and update of `lapwing bench` on cards that nobody has measured. Prints Markdown.

    tests/compilers/predict.py            the predictions, with the old and the new kernels
    tests/compilers/predict.py --check    the rule against published and measured speeds

docs/performance.md, "Predictions for GPUs", has the rule, the sources and the error.
"""

import sys
from math import ceil

# Bytes/s, f32 operations/s, units (SMs, CUs, cores), and for each unit registers and bytes of workgroup memory.
# Sources are in the docs. RDNA 3 at half of its 37.3 TFLOP/s, without dual issue. M1 Pro from 2.6 TFLOP/s for 8 cores.
CARDS = {
    "RTX 4060": (272e9, 15.1e12, 24, 65536, 100 << 10),
    "RX 7800 XT": (624e9, 18.7e12, 60, 98304, 64 << 10),
    "M1 Pro, 14 cores": (200e9, 4.6e12, 14, 53248, 32 << 10),
}
H100 = (3350e9, 67e12, 132, 65536, 228 << 10)
# Layers, width, query heads, key heads, size of a head, width of the MLP, vocabulary.
MODELS = {
    "0.5B": (24, 896, 14, 2, 64, 4864, 151936),
    "1.5B": (28, 1536, 12, 2, 128, 8960, 151936),
    "3B": (36, 2048, 16, 2, 128, 11008, 151936),
}
SMOLLM2 = (30, 576, 9, 3, 64, 1536, 49152)

# From published measurements of other programs.
BANDWIDTH = 0.85  # share of the memory bandwidth that a product of one row reaches
LAUNCH = 5e-6  # seconds between two dependent kernels
# Fitted to one card, an H100 with the old kernels (LOG.md, 2026-11-23).
ISSUE = 0.6  # share of the issue slots that a full unit uses: 24.7 of 67 TFLOP/s, at a share of 0.62
STEP = 0.4e-6  # seconds of a step: staging after a barrier, without arithmetic
KEY = 2.95e-6  # seconds for a key in the old attention, heads of 64

# Rows, columns, step of k, registers, and the share of multiply-adds (`gpus.py`, f16 weights, RDNA 3, layout Nt).
OLD_TILE = (64, 64, 16, 48, 0.62)
TILE, SMALL, FEW = (128, 64, 16, 72, 0.70), (64, 32, 16, 60, 0.56), (16, 32, 64, 48, 0.36)
RANK, PROMPT, SHARED, REPLIES, REPLY, MADE = 16, 216, 200, 20, 16, 16


def run(card, groups, threads, memory, registers, steps, work, share, latency):
    """Seconds of `groups` workgroups of `steps` steps with `work` operations each. A unit runs as many at once as fit."""
    _, flops, units, all_registers, all_memory = card
    together = max(1, min(all_registers // (threads * registers), all_memory // memory, 1536 // threads))
    each = ceil(groups / units)
    arithmetic = work / (flops / units * share * ISSUE)
    return steps * max(each * arithmetic, ceil(each / together) * (latency + arithmetic))


def product(card, old, m, n, k):
    is_small = m <= 64 or m * n < 1 << 19
    rows, columns, step, registers, share = OLD_TILE if old else FEW if m <= 16 else SMALL if is_small else TILE
    groups, threads = ceil(m / rows) * ceil(n / columns), columns * 4
    # Of the 16 rows for few rows, a subgroup of 64 threads computes eight or none.
    used = ceil(m / 8) * 8 if rows == 16 else rows
    memory, work = (rows + columns) * step * 4, 2 * used * columns * step
    alone = run(card, groups, threads, memory, registers, ceil(k / step), work, share, STEP)
    return LAUNCH + max(alone, (2 * n * k + 4 * m * (n + k)) / (BANDWIDTH * card[0]))


def attention(card, old, sequences, rows, keys, shared, heads, kv, head):
    """`rows` queries of each sequence. Keys from `shared` on are those of one sequence."""
    sharing = heads // kv
    if old:
        block = max(1, min(16, 32 // sharing))
        met = min(block, sequences) if rows == 1 else 1
        groups = ceil(sequences * rows / block) * kv
        return LAUNCH + ceil(groups / (16 * card[2])) * (shared + met * (keys - shared)) * KEY * head / 64
    tile_rows = 8 if rows == 1 else 32
    together = max(i for i in range(1, tile_rows + 1) if sharing % i == 0)
    block = 1 if rows == 1 else tile_rows // together
    groups = ceil(sequences * rows / block) * heads // together
    parts = head // 16 + head // 16  # staged chunks of both products
    work = 4 * tile_rows * 64 * head / parts
    return LAUNCH + run(card, groups, 128, 12 << 10, 128, ceil(keys / 64) * parts, work, 0.5, STEP)


def forward(card, model, old, sequences, rows, keys, shared, head_rows, adapter=True, apart=False):
    """`apart`: a launch for each matrix and 15 for each layer, as commit 2639015 has."""
    layers, width, heads, kv, head, mlp, vocabulary = model
    m, q, both = sequences * rows, heads * head, 2 * kv * head
    shapes = [(q + both, width), (width, q), (2 * mlp, width), (width, mlp)]
    if apart:
        shapes = [(q, width), (both // 2, width), (both // 2, width), *shapes[1:2], (mlp, width), (mlp, width), *shapes[3:]]
    low = [(3 * RANK, width), (RANK, q), (2 * RANK, width), (RANK, mlp)] if adapter and not apart else []
    products = sum(product(card, old, m, n, k) for n, k in shapes + low)
    layer = products + attention(card, old, sequences, rows, keys, shared, heads, kv, head)
    others = (15 - len(shapes) - 1 if apart else 3) * (LAUNCH + 8 * m * width / (BANDWIDTH * card[0]))
    return layers * (layer + others) + product(card, old, head_rows, vocabulary, width) + 8 * LAUNCH


def update(card, model, old):
    """57 launches a layer, 12 of them forward. No gradients of the frozen weights, so as many operations back as forth."""
    layers, width, heads, kv, head, mlp, vocabulary = model
    m, q, both = PROMPT + REPLIES * REPLY, heads * head, 2 * kv * head
    total = forward(card, model, old, 1, m, PROMPT + REPLY, PROMPT + REPLY, REPLIES * REPLY)
    back = [(width, q + both), (q, width), (width, 2 * mlp), (mlp, width)]
    total += layers * sum(product(card, old, m, n, k) for n, k in back)
    total += layers * 4 * attention(card, old, 1, m, PROMPT + REPLY, PROMPT + REPLY, heads, kv, head)
    total += product(card, old, REPLIES * REPLY, width, vocabulary)
    return total + layers * (57 - 12 - 8) * LAUNCH


def decode(card, model, old, sequences):
    return forward(card, model, old, sequences, 1, PROMPT + MADE, SHARED if sequences > 1 else PROMPT + MADE, sequences)


def time(seconds):
    return f"{seconds * 1e3:.{0 if seconds > 0.01 else 1}f} ms" if seconds < 1 else f"{seconds:.1f} s"


def predictions():
    print("| card | model | a token of one | a token of 25 | a prompt of 216 | an update |\n|---|---|---|---|---|---|")
    for name, card in CARDS.items():
        for size, model in MODELS.items():
            cells = [[decode(card, model, old, 1), decode(card, model, old, 25),
                      forward(card, model, old, 1, PROMPT, PROMPT, PROMPT, 1), update(card, model, old)] for old in (1, 0)]
            print(f"| {name} | {size} |", " | ".join(f"{time(a)}, {time(b)}" for a, b in zip(*cells)), "|")


# Published speeds: bandwidth, bytes of the weights, layers, tokens/s. 14 launches a layer, as llama.cpp has without fusion.
DECODE = {
    "M1 Pro: llama.cpp, Metal, 7B F16": (200e9, 12.55 * 2**30, 32, 12.75),
    "M1 Pro: the same, Q4_0": (200e9, 3.56 * 2**30, 32, 35.52),
    "M3 Pro: the same, F16": (150e9, 12.55 * 2**30, 32, 9.89),
    "RTX 4060 laptop: Ollama, CUDA, 6.7B Q4_0": (256e9, 3.56 * 2**30, 32, 56.6),
    "RTX 3060: llama.cpp, Vulkan, 3B Q4_K_M": (360e9, 1.87 * 2**30, 28, 122.85),
    "RTX 4070 Ti: the same": (504e9, 1.87 * 2**30, 28, 196.15),
    "RTX 2080 Ti: the same": (616e9, 1.87 * 2**30, 28, 180.38),
    "RTX 2080 Ti: the same, 1.1B": (616e9, 636.18 * 2**20, 22, 424.32),
    "RX 7900 XT: the same, 3B, on a Raspberry Pi": (800e9, 1.87 * 2**30, 28, 108.58),
    "RX 7900 XTX: the same, 7B Q4_0": (960e9, 3.56 * 2**30, 32, 172),
    "Arc A770, Windows: the same, 2.6B Q4_K_M": (560e9, 1.59 * 2**30, 26, 96.4),
    "Arc A770, Mesa: the same": (560e9, 1.59 * 2**30, 26, 39.1),
}
# f32 products without matrix units: peak and measured TFLOP/s.
PRODUCTS = {
    "RTX 4060 Ti: llama.cpp, Vulkan": (22.1, 11.0),
    "Radeon Pro VII: llama.cpp, Vulkan": (13.1, 4.96),
    "RX 7600 XT: HIP, tiles in registers": (22.6 / 2, 7.8),
    "M1, 8 cores: the best of wgpu-mm": (2.6, 0.9),
}


def check():
    row = lambda name, rule, real, digits=1: print(f"| {name} | {rule:.{digits}f} | {real} | {100 * (rule / real - 1):+.0f} % |")
    print("| decoding, tokens/s | rule | published | error |\n|---|---|---|---|")
    for name, (bandwidth, size, layers, real) in DECODE.items():
        row(name, 1 / (size / (BANDWIDTH * bandwidth) + 14 * layers * LAUNCH), real)
    print("\n| f32 products, TFLOP/s | rule | published | error |\n|---|---|---|---|")
    for name, (peak, real) in PRODUCTS.items():
        row(name, peak * TILE[4] * ISSUE, real)
    print("\n| H100, lapwing 2639015 | rule | measured | error |\n|---|---|---|---|")
    step = lambda rows, keys: forward(H100, SMOLLM2, True, rows, 1, keys, keys, rows, apart=True)
    row("a token, 1 to 256, ms (fitted)", sum(step(1, i) for i in range(256)) / 0.256, 24.0)
    row("a token, 257 to 512, ms (fitted)", sum(step(1, i) for i in range(256, 512)) / 0.256, 48.0)
    row("a product of 4096, TFLOP/s (fitted)", 2 * 4096**3 / product(H100, True, 4096, 4096, 4096) / 1e12, 24.7)
    row("a rollout of 10 turns, as 20 passes of 48 rows after 216 tokens, s", 20 * step(48, PROMPT), 0.51, 2)
    row("an update, as of 536 tokens, s", update(H100, SMOLLM2, True), 0.13, 2)


check() if sys.argv[1:] == ["--check"] else predictions()
