"""lapwing beside llama.cpp, on one GGUF file: python beside_llama_cpp.py LAPWING MODEL.gguf [--run RUN]

llama.cpp gets the same weights in F32, since it rounds the inputs of products with quantised weights. Compares token ids,
log-probs and greedy replies of 40 tokens to 10 prompts. With a run of this model, also the replies of its adapter as `lapwing
export` writes it, and of the files that `lapwing merge --format gguf` writes. Fails if token ids differ, if log-probs differ by
more than 2e-3 nats on average, if a reply differs before a tie (1e-3), or if no reply of the run differs from the model's.
Needs:
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" pip install llama-cpp-python==0.3.36 gguf
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize
from llama_cpp import Llama

PROMPTS = [
    "What is the capital of France?",
    "Write one sentence about a lapwing.",
    "List three colours.",
    "What is 17 + 25?",
    "Translate to German: the house is small.",
    "def fibonacci(n):",
    "Why is the sky blue?",
    "Name a river in Africa and say where it ends.",
    "Finish the story: The ice on the lake was thin, but",
    "水是什么？",
]
TOKENS = 40
TIE = 1e-3
F32 = 0  # llama.cpp's number of this type, for keys and values


def in_f32(source: str, path: Path) -> str:
    """Writes a copy with all weights in F32."""
    reader = GGUFReader(source)
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(GGMLQuantizationType.F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return str(path)


def opened(path: str, **more) -> Llama:
    return Llama(path, n_ctx=512, logits_all=True, type_k=F32, type_v=F32, verbose=False, **more)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def reply(model: Llama, ids: list[int]) -> tuple[list[int], list[float]]:
    """The greedy reply, and by how much each token is likelier than the next one."""
    model.reset()
    found, margins = [], []
    while len(found) < TOKENS:
        model.eval(ids if not found else found[-1:])
        logits = model.scores[model.n_tokens - 1]
        second, first = np.argsort(logits)[-2:]
        if first == model.token_eos():
            break
        found.append(int(first))
        margins.append(float(logits[first] - logits[second]))
    return found, margins


class Comparison:
    def __init__(self, lapwing: str):
        self.lapwing, self.failed = lapwing, 0

    def run(self, *arguments: str, text: str | None = None) -> dict:
        output = subprocess.run([self.lapwing, "-q", *arguments], check=True, capture_output=True, text=True, input=text)
        return json.loads(output.stdout)

    def check(self, what: str, is_so: bool, told: str):
        self.failed += not is_so
        print(f"{'ok    ' if is_so else 'FAILED'} {what}: {told}", flush=True)

    def replies(self, what: str, model: Llama, prompts: list[list[int]], *choice: str) -> list[list[int]]:
        """Compares the greedy replies to all prompts. Returns those of llama.cpp."""
        equal, ties, replies = 0, [], []
        for number, ids in enumerate(prompts):
            settings = ["--greedy", "--max-new-tokens", str(TOKENS), "--json", "--ids", "-"]
            ours = self.run("generate", *choice, *settings, text=json.dumps(ids))["ids"][-TOKENS:]
            theirs, margins = reply(model, ids)
            replies.append(theirs)
            ours = [token for token in ours if token != model.token_eos()]
            at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
            if at is None and len(ours) == len(theirs):
                equal += 1
            elif at is not None and margins[at] <= TIE:
                ties.append(f"prompt {number} at {at}: {margins[at]:.1e}")
            else:
                ties.append(f"prompt {number} at {at}: no tie, {margins[at] if at is not None else (len(ours), len(theirs))}")
        self.check(what, not any("no tie" in tie for tie in ties), f"{equal} of {len(prompts)} replies are equal {ties or ''}")
        return replies


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lapwing")
    parser.add_argument("model")
    parser.add_argument("--run", help="a run of this model, whose adapter is compared, too")
    given = parser.parse_args()
    both = Comparison(given.lapwing)
    with tempfile.TemporaryDirectory() as home:
        home = Path(home)
        f32 = in_f32(given.model, home / "f32.gguf")
        model = opened(f32)
        prompts, means, largest = [], [], 0.0
        for text in PROMPTS:
            text = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
            ours = both.run("score", "--model", given.model, "--text", text, "--json")
            theirs = model.tokenize(text.encode(), add_bos=False, special=True)
            if ours["ids"] != theirs:
                both.check("token ids", False, repr(text))
            model.reset()
            model.eval(theirs)
            table = log_softmax(model.scores[:len(theirs) - 1])
            differences = np.abs(table[np.arange(len(theirs) - 1), theirs[1:]] - np.array(ours["logprobs"]))
            means.append(differences.mean())
            largest = max(largest, differences.max())
            prompts.append(theirs)
        both.check("log-probs", np.mean(means) <= 2e-3, f"mean difference {np.mean(means):.1e} nats, largest {largest:.1e}")
        own = both.replies("model", model, prompts, "--model", given.model)
        if given.run:
            del model
            subprocess.run([given.lapwing, "-q", "export", given.run, "--format", "gguf", "--out", home / "adapter"], check=True)
            adapter = str(home / "adapter" / "adapter.gguf")
            adapted = both.replies("exported adapter", opened(f32, lora_path=adapter), prompts, given.run)
            changed = sum(a != b for a, b in zip(own, adapted))
            both.check("the adapter changes replies", changed > 0, f"{changed} of {len(prompts)}")
            for kind in ["f16", "q8_0"]:
                merged = str(home / f"{kind}.gguf")
                subprocess.run([given.lapwing, "-q", "merge", given.run, "--format", "gguf", "--type", kind, "--out", merged], check=True)
                # The same weights on both sides again.
                theirs = opened(in_f32(merged, home / f"{kind}-f32.gguf"))
                both.replies(f"merged {kind}", theirs, prompts, "--model", merged)
                del theirs
                llama = opened(merged)
                found, _ = reply(llama, prompts[0])
                both.check(f"merged {kind}, as it is", bool(found), repr(llama.detokenize(found).decode(errors="replace")))
                del llama
    sys.exit(1 if both.failed else 0)


main()
