"""Repeats docs/experiments/real-model.md: python real_model.py LAPWING

Writes SmolLM2-135M-Instruct to models/ of the current directory, runs train/experiments/real-model.toml (a quarter of an
hour on a large GPU), and prints what the models of `q4` forgot: the perplexity of a text, and answers to questions beside
those of the model without an adapter. Needs only:
    pip install gguf safetensors
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]
MODEL = "models/SmolLM2-135M-Instruct"
# The part of the text that is scored.
CHARACTERS = 4000
QUESTIONS = [
    "What is the capital of France?",
    "Reply with one word: what is the opposite of hot?",
    "Name three colours.",
    "What is 2 + 3?",
    "Translate to French: Good morning.",
    "Write one sentence about the sea.",
    "Which way is the sun in the morning: left, right, up or down?",
    "Is a frozen lake slippery?",
]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    lapwing = str(pathlib.Path(sys.argv[1]).resolve())
    if not pathlib.Path(MODEL).exists():
        subprocess.run([sys.executable, ROOT / "tests/python/smollm2.py", MODEL], check=True)
    subprocess.run([lapwing, "sweep", ROOT / "train/experiments/real-model.toml"], check=True)

    def call(command, adapter, *options):
        model = ["--model", MODEL, "--quantise", "q4", *(["--adapter", adapter] if adapter else [])]
        done = subprocess.run([lapwing, command, "--json", *model, *options], check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    text = (ROOT / "LICENSE-APACHE").read_text()[:CHARACTERS]
    runs = sorted(pathlib.Path("sweeps/real-model").glob("q4/seed-*/adapter"))
    for adapter in [None, *runs]:
        name = adapter.parent.name if adapter else "no adapter"
        logprobs = call("score", adapter, "--text", text)["logprobs"]
        print(f"\n{name}: perplexity {math.exp(-sum(logprobs) / len(logprobs)):.2f}")
        for question in QUESTIONS:
            with tempfile.NamedTemporaryFile("w", suffix=".json") as chat:
                json.dump([{"role": "user", "content": question}], chat)
                chat.flush()
                reply = call("generate", adapter, "--chat", chat.name, "--greedy", "--max-new-tokens", "24")
            print(f"- {question} {json.dumps(reply['text'])}", flush=True)


main()
