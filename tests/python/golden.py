#!/usr/bin/env python3
"""Recomputes the model fixtures with transformers and PEFT, or makes new ones.

A fixture is a directory with a tiny checkpoint, an adapter in `adapter/` and what the libraries make of them.
Weights, tokenizer, adapter, and the inputs among the expected (`idsN`, `lora.weights`, the messages of `chat.json`)
are data that stays. The rest is computed from them in float64:

  idsN.logits        logits of every position
  greedy.ids2        the 24 likeliest tokens after ids2, none of which stops
  lora.ids3.logits   logits with the adapter
  lora.logprobs      log-probs of ids3[1:] with the adapter
  grad.NAME          gradient of sum(lora.logprobs * lora.weights) by PEFT's name
  chat.json          text of each conversation by the chat template, and its ids
"""

import argparse
import json
import sys
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import chat_templates
import fresh
import reference

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "golden"
GREEDY_TOKENS = 24
# Of logits and log-probs; of gradients relative to the tensor's largest. Between library versions and processors the
# order of sums and float32's norms and angles differ.
TOLERANCE = 1e-4


def new_inputs(vocab: int, seed: int) -> dict[str, torch.Tensor]:
    """Random token ids, and weights for the log-probs."""
    lengths = {"ids0": 1, "ids1": 2, "ids2": 17, "ids3": 64}
    inputs = {
        name: torch.tensor(fresh.random_ids(vocab, length, seed + i), dtype=torch.int32)
        for i, (name, length) in enumerate(lengths.items())
    }
    random = torch.Generator().manual_seed(seed)
    return inputs | {"lora.weights": torch.randn(lengths["ids3"] - 1, generator=random)}


def compute(directory: Path, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything in `expected.safetensors`, the inputs included."""
    expected = dict(inputs)
    ids = {name: values.tolist() for name, values in inputs.items() if name.startswith("ids")}
    model = reference.load_model(directory)
    with torch.no_grad():
        for name, tokens in ids.items():
            expected[f"{name}.logits"] = reference.logits(model, tokens)
    greedy = reference.greedy(model, ids["ids2"], GREEDY_TOKENS)
    expected["greedy.ids2"] = torch.tensor(greedy, dtype=torch.int32)

    adapted = reference.load_adapted(directory, directory / "adapter")
    with torch.no_grad():
        expected["lora.ids3.logits"] = reference.logits(adapted, ids["ids3"])
    log_probs, gradients = reference.gradients(adapted, ids["ids3"], inputs["lora.weights"].double())
    expected["lora.logprobs"] = log_probs
    expected |= {f"grad.{name}": gradient for name, gradient in gradients.items()}
    return expected


def is_input(name: str) -> bool:
    """Whether a tensor of `expected.safetensors` is given rather than computed."""
    return name == "lora.weights" or (name.startswith("ids") and "." not in name)


def recompute(directory: Path) -> tuple[dict[str, torch.Tensor], list[dict]]:
    """The expected numbers and conversations of a fixture, from the inputs that are there."""
    old = load_file(directory / "expected.safetensors")
    inputs = {name: tensor for name, tensor in old.items() if is_input(name)}
    conversations = [case["messages"] for case in reference.read_json(directory / "chat.json")]
    return compute(directory, inputs), converse(directory, conversations)


def converse(directory: Path, conversations: list[list[dict]]) -> list[dict]:
    """Each conversation with its text and ids."""
    tokenizer = reference.load_tokenizer(directory)
    return [reference.conversation(tokenizer, messages) for messages in conversations]


def write(directory: Path, expected: dict[str, torch.Tensor], chat: list[dict]) -> None:
    """Writes both files of a fixture; numbers are rounded to float32."""
    for name, tensor in expected.items():
        expected[name] = tensor.float().contiguous() if tensor.is_floating_point() else tensor
    save_file(expected, directory / "expected.safetensors")
    reference.write_json(directory / "chat.json", chat)


def check(directory: Path) -> bool:
    """Compares a fixture with a new computation, prints the largest difference, and returns whether it is small enough."""
    computed, chat = recompute(directory)
    stored = load_file(directory / "expected.safetensors")
    problems = [f"{name} is in one of both only" for name in sorted(computed.keys() ^ stored.keys())]
    if chat != reference.read_json(directory / "chat.json"):
        problems.append("chat.json differs")
    worst, worst_name = 0.0, ""
    for name in sorted(computed.keys() & stored.keys()):
        new, old = computed[name], stored[name]
        if not new.is_floating_point():
            if new.tolist() != old.tolist():
                problems.append(f"{name} differs")
            continue
        difference = (new - old).abs().max().item()
        if name.startswith("grad."):
            difference /= new.abs().max().item()
        if not difference <= worst:
            worst, worst_name = difference, name
    if not worst <= TOLERANCE:
        problems.append(f"{worst_name} is off by more than {TOLERANCE:g}")
    print(f"{directory.name}: {len(computed)} tensors, {len(chat)} conversations, largest difference {worst:.1e}")
    for problem in problems:
        print(f"{directory.name}: {problem}")
    return not problems


def make(directory: Path, checkpoint: fresh.Checkpoint, lora: fresh.Lora) -> None:
    """Makes a whole new fixture."""
    fresh.make_checkpoint(directory, checkpoint)
    fresh.make_adapter(directory, directory / "adapter", lora, checkpoint.seed)
    inputs = new_inputs(checkpoint.vocab, checkpoint.seed)
    write(directory, compute(directory, inputs), converse(directory, fresh.CONVERSATIONS))


def arguments() -> argparse.Namespace:
    """Parses the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--check", nargs="*", type=Path, metavar="DIR", help="compare fixtures (all) with what is computed now"
    )
    what.add_argument("--write", nargs="*", type=Path, metavar="DIR", help="rewrite what is computed of fixtures (all)")
    what.add_argument("--new", type=Path, metavar="DIR", help="make a new fixture in an empty directory")
    what.add_argument("--templates", type=Path, metavar="OUT.json", help="write chat templates and what they render")

    new = parser.add_argument_group("the checkpoint of --new")
    default = fresh.Checkpoint("qwen2")
    new.add_argument("--family", choices=fresh.FAMILIES, default="qwen2")
    new.add_argument("--seed", type=int, default=0)
    new.add_argument("--dtype", choices=fresh.DTYPES, default=default.dtype)
    new.add_argument("--shards", type=int, default=1, metavar="N", help="at least so many weight files")
    new.add_argument("--tied", action=argparse.BooleanOptionalAction, default=True, help="the head is the embedding")
    for size in ["vocab", "hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim"]:
        new.add_argument(f"--{size.replace('_', '-')}", type=int, default=getattr(default, size), metavar="N")
    new.add_argument("--extra", type=json.loads, default={}, metavar="JSON", help="further fields of config.json")
    new.add_argument("--float32-norms", action="store_true", help="norms stored in 32 bits whatever --dtype is")
    new.add_argument("--published", action="store_true", help="spelled as most published checkpoints are")

    lora = parser.add_argument_group("the adapter of --new")
    lora.add_argument(
        "--targets", default="all-linear", help='"all-linear" (the default), names between commas, or an expression'
    )
    lora.add_argument("--rank", type=int, default=4)
    lora.add_argument("--alpha", type=float, default=8.0)
    lora.add_argument("--rslora", action="store_true", help="scale by alpha / sqrt(rank)")
    lora.add_argument("--rank-pattern", type=json.loads, default={}, metavar="JSON")
    lora.add_argument("--alpha-pattern", type=json.loads, default={}, metavar="JSON")
    return parser.parse_args()


def refuse_other_versions() -> None:
    """Checks the installed versions, because the written files depend on them."""
    for line in Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8").split():
        name, pinned = line.split("==")
        # torch adds the build, such as +cpu.
        found = version(name).split("+")[0]
        if found != pinned:
            sys.exit(f"{name} {found} is installed, requirements.txt pins {pinned}: pip install -r requirements.txt")


def main() -> int:
    """Runs the command; returns 1 if a fixture differs from the new computation."""
    args = arguments()
    refuse_other_versions()
    everywhere = sorted(path.parent for path in FIXTURES.glob("*/config.json"))
    if args.check is not None:
        return 0 if all([check(directory) for directory in args.check or everywhere]) else 1
    if args.write is not None:
        for directory in args.write or everywhere:
            write(directory, *recompute(directory))
    if args.templates is not None:
        reference.write_json(args.templates, chat_templates.rendered_cases())
    if args.new is not None:
        sizes = {name: getattr(args, name) for name in fresh.Checkpoint.__dataclass_fields__}
        plain_names = args.targets.replace("_", "").replace(",", "").isalnum()
        targets = args.targets.split(",") if plain_names else args.targets
        lora = fresh.Lora(targets, args.rank, args.alpha, args.rslora, args.rank_pattern, args.alpha_pattern)
        make(args.new, fresh.Checkpoint(**sizes), lora)
    return 0


if __name__ == "__main__":
    sys.exit(main())
