"""A training step of lapwing beside the same step in PyTorch: python step.py LAPWING [ARGUMENTS OF lapwing train]

    python step.py target/release/lapwing frozen-lake
    python step.py target/release/lapwing frozen-lake-small --model DIR

LAPWING is the program; DIR is a directory of Hugging Face files, such as smollm2.py writes. lapwing makes some steps.
PyTorch then computes what the last of them needs: in each turn the prompts that are new, all at once, and a token after each; then an
update of a LoRA adapter on all turns. Equal sequences are computed once. Sequences of one batch share no prefix. The games themselves are
left out. Stop other programs first. Needs: pip install torch transformers
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

STEPS, ROUNDS, TOKENS_OF_A_BATCH = 4, 3, 4096
BUILT_IN = Path(__file__).resolve().parents[2] / "fixtures" / "base"


class Adapted(torch.nn.Module):
    """A linear layer with an adapter."""

    enabled = True

    def __init__(self, linear: torch.nn.Linear, rank: int):
        super().__init__()
        self.linear = linear
        self.down = torch.nn.Linear(linear.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, linear.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y + 2 * self.up(self.down(x)) if Adapted.enabled else y


def adapt(module: torch.nn.Module, rank: int) -> None:
    """Replaces all linear layers."""
    for name, child in module.named_children():
        if isinstance(child, torch.nn.Linear):
            setattr(module, name, Adapted(child, rank))
        else:
            adapt(child, rank)


def batches(sequences: list[list[int]]) -> list[list[int]]:
    """The indices of sequences of similar length, in batches of at most TOKENS_OF_A_BATCH."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    parts: list[list[int]] = [[]]
    for i in order:
        if (len(parts[-1]) + 1) * len(sequences[i]) > TOKENS_OF_A_BATCH and parts[-1]:
            parts.append([])
        parts[-1].append(i)
    return parts


def padded(sequences: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """The ids and the mask of a batch, padded on the left."""
    longest = max(map(len, sequences))
    ids = [[0] * (longest - len(it)) + it for it in sequences]
    mask = [[0] * (longest - len(it)) + [1] * len(it) for it in sequences]
    return torch.tensor(ids), torch.tensor(mask)


@torch.inference_mode()
def rollout(model, turns: list[list[list[int]]], tokens: int) -> None:
    """Computes the new prompts of each turn, and `tokens` tokens after each."""
    seen = set()
    for prompts in turns:
        new = [list(it) for it in dict.fromkeys(map(tuple, prompts)) if it not in seen]
        seen.update(map(tuple, new))
        for part in batches(new) if new else []:
            ids, mask = padded([new[i] for i in part])
            out = model(ids, attention_mask=mask, use_cache=tokens > 1, logits_to_keep=1)
            for number in range(tokens):
                token = torch.multinomial(out.logits[:, -1].softmax(-1), 1)
                if number + 1 < tokens:
                    mask = torch.cat([mask, torch.ones_like(token)], 1)
                    out = model(token, attention_mask=mask, past_key_values=out.past_key_values, use_cache=True)


def update(model, optimiser, sequences: list[list[int]], replies: list[int], has_reference: bool) -> None:
    """An update on the last tokens of sequences, `replies` of each."""
    for part in batches(sequences):
        ids, mask = padded([sequences[i] for i in part])
        longest = max(replies[i] for i in part)
        targets = ids[:, -longest:]
        counts = torch.tensor([[longest - replies[i]] for i in part]) <= torch.arange(longest)

        def log_probs() -> torch.Tensor:
            logits = model(ids, attention_mask=mask, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
            return logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]

        log_prob = log_probs()
        loss = -(log_prob - log_prob.detach()).exp()
        if has_reference:
            Adapted.enabled = False
            with torch.inference_mode():
                reference = log_probs()
            Adapted.enabled = True
            d = log_prob - reference.clone()
            loss = loss + 0.01 * ((-d).exp() - 1 + d)
        (loss * counts).sum().backward()
    optimiser.step()
    optimiser.zero_grad()


def main() -> None:
    program, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        settings = [f"train.steps={STEPS}", "record.all_episodes=true", "eval.episodes=1", "eval.every=0"]
        options = [word for setting in settings for word in ("--set", setting)]
        subprocess.run([program, "-q", "train", *arguments, *options, "--out", out], check=True)
        records = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
        episodes = [json.loads(line) for line in open(f"{out}/episodes.jsonl")]
        config = tomllib.loads(Path(f"{out}/config.toml").read_text())
    (step,) = [record for record in records if record["kind"] == "step" and record["step"] == STEPS]
    episodes = [it for it in episodes if it["purpose"] == "training" and it["step"] == STEPS]

    torch.set_num_threads(os.cpu_count() or 1)
    directory = config.get("model", {}).get("dir") or BUILT_IN
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.requires_grad_(False)
    adapt(model, 16)
    optimiser = torch.optim.AdamW(it for it in model.parameters() if it.requires_grad)

    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    longest = max(len(it["turns"]) for it in episodes)
    turns = [[encode(it["turns"][t]["prompt"]) for it in episodes if t < len(it["turns"])] for t in range(longest)]
    replies = {(turn["prompt"], turn["reply"]) for it in episodes for turn in it["turns"]}
    sampled = [(encode(prompt), encode(reply)) for prompt, reply in sorted(replies)]
    sequences, lengths = [prompt + reply for prompt, reply in sampled], [len(reply) for _, reply in sampled]
    has_reference = config["train"]["beta"] > 0
    phases = {
        "rollout": lambda: rollout(model, turns, config["policy"]["max_new_tokens"]),
        "update": lambda: update(model, optimiser, sequences, lengths, has_reference),
    }
    print(f"{len(sequences)} different turns of {sum(map(len, turns))}, {sum(map(len, sequences))} tokens")
    print("| phase | lapwing | PyTorch f32 |\n|---|---|---|")
    for phase, run in phases.items():
        run()
        samples = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
        print(f"| {phase} | {step[f'seconds_{phase}']:.3f} | {statistics.median(samples):.3f} |")


if __name__ == "__main__":
    main()
