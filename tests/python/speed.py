"""The speed of lapwing beside PyTorch, on one machine, one after the other: python speed.py LAPWING MODEL [GGUF]

MODEL is a directory of Hugging Face files, such as smollm2.py writes; LAPWING is the program. With a GGUF file of the same
model, the figures of llama.cpp are printed, too, on the processor, and with Vulkan if it was built so. VK_DRIVER_FILES selects
the driver for both; llama.cpp uses a software driver only with GGML_VK_VISIBLE_DEVICES=0. Stop other programs first. Needs:
    pip install torch transformers
    CMAKE_ARGS="-DGGML_VULKAN=ON -DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" pip install llama-cpp-python==0.3.36
The second is for GGUF only. For Vulkan it needs Debian's packages libvulkan-dev, glslc and spirv-headers, and headers of Vulkan
with VK_EXT_layer_settings, which those of Debian 12 lack.
"""
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from transformers import AutoModelForCausalLM

SEQUENCES, PROMPT, TOKENS = 25, 216, 32


def lapwing(program: str, model: str) -> dict[str, float]:
    """Seconds of the phases that `lapwing bench` measures."""
    seconds = {}
    for phase in ("decode", "prefill"):
        output = subprocess.run([program, "-q", "bench", phase, "--model", model, "--json"], check=True, capture_output=True)
        rows = [row for row in json.loads(output.stdout)["rows"] if row["name"].startswith(phase)]
        seconds |= {"/".join(row["name"].split("/")[::2]): row["seconds"] for row in rows}
    return seconds


def timed(run, rounds: int = 5) -> float:
    """The median of some rounds, after one that does not count."""
    run()
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


@torch.inference_mode()
def pytorch(model: str, dtype: torch.dtype) -> dict[str, float]:
    """The same phases, without an adapter."""
    language_model = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
    ids = torch.arange(SEQUENCES * PROMPT).reshape(SEQUENCES, PROMPT) % language_model.config.vocab_size

    def prefill(prompts: int):
        return language_model(ids[:prompts], use_cache=True, logits_to_keep=1)

    def decode(sequences: int) -> float:
        out = prefill(sequences)
        samples = []
        for _ in range(TOKENS):
            start = time.perf_counter()
            token = out.logits[:, -1].argmax(-1, keepdim=True)
            out = language_model(token, past_key_values=out.past_key_values, use_cache=True)
            samples.append(time.perf_counter() - start)
        return statistics.median(samples)

    return {
        "decode/1 sequence": decode(1),
        f"decode/{SEQUENCES} sequences": decode(SEQUENCES),
        "prefill/1 prompt": timed(lambda: prefill(1)),
        "prefill/4 prompts": timed(lambda: prefill(4), rounds=2),
    }


def llama(model: str, layers_on_gpu: int) -> dict[str, float]:
    """Those of one sequence, by llama.cpp."""
    from llama_cpp import Llama

    cores = os.cpu_count()
    # Otherwise prompts go to Vulkan even if no layer does.
    where = {"n_gpu_layers": layers_on_gpu, "op_offload": layers_on_gpu != 0}
    language_model = Llama(model, n_ctx=512, n_threads=cores, n_threads_batch=cores, verbose=False, **where)
    ids = [token % language_model.n_vocab() for token in range(PROMPT)]

    def prefill():
        language_model.reset()
        language_model.eval(ids)

    seconds = timed(prefill, rounds=3)
    return {"decode/1 sequence": timed(lambda: language_model.eval([ids[0]]), TOKENS), "prefill/1 prompt": seconds}


def main() -> None:
    program, model, *gguf = sys.argv[1:]
    torch.set_num_threads(os.cpu_count() or 1)
    columns = {
        "lapwing": lapwing(program, model),
        "PyTorch f32": pytorch(model, torch.float32),
        "PyTorch bf16": pytorch(model, torch.bfloat16),
    }
    for path in gguf:
        from llama_cpp import llama_supports_gpu_offload

        columns["llama.cpp"] = llama(path, 0)
        if llama_supports_gpu_offload():
            columns["llama.cpp, Vulkan"] = llama(path, -1)
    print(f"seconds, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores")
    print("| phase | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for phase in columns["lapwing"]:
        cells = [f"{column[phase]:.3f}" if phase in column else "-" for column in columns.values()]
        print(f"| {phase} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
