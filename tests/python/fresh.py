"""New tiny checkpoints and adapters with random weights, written by transformers and PEFT as published ones are."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedTokenizerFast

import chat_templates
from reference import load_model, read_json, write_json

FAMILIES = ["qwen2", "qwen3", "llama"]
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
SPECIAL_TOKENS = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>"]
CORPUS = [
    "Walk over the ice to the goal without falling into a hole. P is you, O a hole, G the goal, _ firm ice.",
    "Reply with one word: left, down, right, up. <action>left</action> <action>down</action> <action>right</action>",
    "left down right up left down right up up down left right",
    "Eat apples and grow; walls and bodies kill. The snake moves 12 cells in 1234 steps.",
    "P _ O\n_ _ G\n\n  O _ P\n\n\nsystem user assistant You are a careful player. Play well.",
    "It's hers, they're ours: d'après é ✓, 3.14 and 100%.",
]
CONVERSATIONS = [
    [{"role": "system", "content": "Play well."}, {"role": "user", "content": "P _ O\n_ _ G\n"}],
    [{"role": "user", "content": "P _ O\n_ _ G\n"}],
    [
        {"role": "system", "content": "Play well."},
        {"role": "user", "content": "P _ O\n_ _ G\n"},
        {"role": "assistant", "content": "<action>right</action>"},
        {"role": "user", "content": "next é ✓, it's 12345 <|im_end|>\r\n\r\n  tabs\tand  blanks "},
    ],
]
# How the published tokenizers of each family cut a text before pairs are merged.
SPLITS = {
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SIMPLE_TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
TEMPLATES = {"qwen2": chat_templates.TOOLS, "qwen3": chat_templates.THINKING, "llama": SIMPLE_TEMPLATE}


@dataclass
class Checkpoint:
    """What a new checkpoint looks like. `extra` are further fields of its config."""

    family: str
    seed: int = 0
    dtype: str = "bfloat16"
    tied: bool = True
    shards: int = 1
    vocab: int = 384
    hidden: int = 64
    intermediate: int = 160
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    extra: dict = field(default_factory=dict)
    float32_norms: bool = False
    """The norms are stored in 32 bits whatever the rest is stored in."""
    published: bool = False
    """Spelled as most published checkpoints are (rope_theta, torch_dtype, the template in tokenizer_config.json)
    rather than as transformers 5 writes them."""


@dataclass
class Lora:
    """What a new adapter looks like; `targets` is a list, "all-linear" or a regular expression, as PEFT has it."""

    targets: list[str] | str = "all-linear"
    rank: int = 4
    alpha: float = 8
    rslora: bool = False
    rank_pattern: dict[str, int] = field(default_factory=dict)
    alpha_pattern: dict[str, float] = field(default_factory=dict)
    dtype: str = "float32"


def make_checkpoint(directory: Path, wanted: Checkpoint) -> None:
    """Writes config, weights, generation config, tokenizer and chat template."""
    tokenizer = _train_tokenizer(wanted)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL_TOKENS}
    model = AutoModelForCausalLM.from_config(_model_config(wanted, ids), dtype=DTYPES[wanted.dtype])
    _fill(model, wanted.seed)
    if wanted.float32_norms:
        for name, parameter in model.named_parameters():
            parameter.data = parameter.data.float() if "norm" in name else parameter.data
    # As Qwen's instruct models: the base's end of text, and the end of a turn besides.
    model.generation_config = GenerationConfig(
        bos_token_id=ids["<|begin_of_text|>"],
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]],
        pad_token_id=ids["<|endoftext|>"],
    )
    size = sum(parameter.nbytes for parameter in model.parameters())
    model.save_pretrained(directory, max_shard_size=math.ceil(size / wanted.shards))
    tokenizer.save_pretrained(directory)
    if wanted.published:
        _spell_as_published(directory)


def make_adapter(checkpoint: Path, directory: Path, wanted: Lora, seed: int) -> None:
    """Writes a PEFT adapter of the checkpoint, none of whose terms is zero."""
    config = LoraConfig(
        task_type="CAUSAL_LM",
        target_modules=wanted.targets,
        r=wanted.rank,
        lora_alpha=wanted.alpha,
        use_rslora=wanted.rslora,
        rank_pattern=wanted.rank_pattern,
        alpha_pattern=wanted.alpha_pattern,
        lora_dropout=0.05,
    )
    base = load_model(checkpoint, DTYPES[wanted.dtype])
    model = get_peft_model(base, config, autocast_adapter_dtype=False)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "lora_" in name:
                spread = 1 / math.sqrt(parameter.shape[1]) if "lora_A" in name else 0.1
                parameter.copy_(torch.randn(parameter.shape, generator=random) * spread)
    model.save_pretrained(directory)
    (directory / "README.md").unlink(missing_ok=True)


def _model_config(wanted: Checkpoint, ids: dict[str, int]):
    sizes = {
        "vocab_size": wanted.vocab,
        "hidden_size": wanted.hidden,
        "intermediate_size": wanted.intermediate,
        "num_hidden_layers": wanted.layers,
        "num_attention_heads": wanted.heads,
        "num_key_value_heads": wanted.kv_heads,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": wanted.tied,
        "bos_token_id": ids["<|begin_of_text|>"],
        "eos_token_id": ids["<|endoftext|>"],
    }
    if wanted.head_dim is not None:
        sizes["head_dim"] = wanted.head_dim
    if "rope_parameters" not in wanted.extra:
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    return AutoConfig.for_model(wanted.family, **sizes, **wanted.extra)


def _fill(model, seed: int) -> None:
    """Random weights that make clear-cut logits: the spread of the products is about that of what goes in."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            drawn = torch.randn(parameter.shape, generator=random)
            if name == "model.norm.weight":
                pass  # Around zero: a head tied to the embedding would otherwise repeat the last token for ever.
            elif parameter.dim() == 1:
                drawn = drawn * 0.3 + (1.0 if "norm" in name else 0.0)
            elif "embed_tokens" in name or "lm_head" in name:
                drawn = drawn * 0.5
            else:
                drawn = drawn / math.sqrt(parameter.shape[1])
            parameter.copy_(drawn)


def _train_tokenizer(wanted: Checkpoint) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the family's way to cut a text; the model may have a few rows more than it has tokens."""
    llama = wanted.family == "llama"
    tokenizer = Tokenizer(models.BPE(ignore_merges=llama))
    if not llama:
        tokenizer.normalizer = normalizers.NFC()
    split = Regex(SPLITS["llama" if llama else "qwen"])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(split, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=wanted.vocab - len(SPECIAL_TOKENS) - 2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    if llama:
        # Encoding with special tokens would put this in front; lapwing, like a chat, encodes without.
        begin = "<|begin_of_text|>"
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A {begin} $B", special_tokens=[(begin, tokenizer.token_to_id(begin))]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|begin_of_text|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATES[wanted.family]
    return fast


def _spell_as_published(directory: Path) -> None:
    config = read_json(directory / "config.json")
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.43.1"
    config.pop("layer_types", None)
    write_json(directory / "config.json", config)

    template = directory / "chat_template.jinja"
    tokenizer = read_json(directory / "tokenizer_config.json")
    tokenizer["chat_template"] = template.read_text(encoding="utf-8")
    tokenizer["tokenizer_class"] = "PreTrainedTokenizerFast"
    write_json(directory / "tokenizer_config.json", tokenizer)
    template.unlink()


def random_ids(vocab: int, count: int, seed: int) -> list[int]:
    """Token ids drawn evenly from the whole vocabulary."""
    random = torch.Generator().manual_seed(seed)
    return torch.randint(vocab, (count,), generator=random).tolist()


def stop_early(directory: Path, token: int) -> None:
    """Lets this token end replies too."""
    path = directory / "generation_config.json"
    config = read_json(path)
    config["eos_token_id"] = [*config["eos_token_id"], token]
    write_json(path, config)
