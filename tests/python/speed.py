"""The speed of lapwing beside PyTorch, on one machine, one after the other: python speed.py LAPWING MODEL [LLAMA_BENCH GGUF]

MODEL is a directory of Hugging Face files, such as smollm2.py writes; LAPWING is the program. With the program llama-bench
of llama.cpp and a GGUF file of the same model, its figures are printed, too (build it with GGML_VULKAN to use the same device).
Stop other programs first. Needs:
    pip install torch transformers
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


def llama(program: str, model: str) -> dict[str, float]:
    """The phases that llama-bench measures, from its tokens per second."""
    flags = ["-m", model, "-p", str(PROMPT), "-n", str(TOKENS), "-o", "json"]
    output = subprocess.run([program, *flags], check=True, capture_output=True).stdout
    rows = {row["n_prompt"]: row["avg_ts"] for row in json.loads(output)}
    return {"decode/1 sequence": 1 / rows[0], "prefill/1 prompt": PROMPT / rows[PROMPT]}


def main() -> None:
    program, model, *rest = sys.argv[1:]
    torch.set_num_threads(os.cpu_count() or 1)
    columns = {
        "lapwing": lapwing(program, model),
        "PyTorch f32": pytorch(model, torch.float32),
        "PyTorch bf16": pytorch(model, torch.bfloat16),
    }
    if rest:
        columns["llama.cpp"] = llama(*rest)
    print(f"seconds, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores")
    print("| phase | " + " | ".join(columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for phase in columns["lapwing"]:
        cells = [f"{column[phase]:.3f}" if phase in column else "-" for column in columns.values()]
        print(f"| {phase} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
