#!/usr/bin/env python3
"""Proves against transformers and PEFT that lapwing reads, writes and computes as they do.

Makes tiny checkpoints and adapters that nobody tested before, and for each compares

  score      log-probs of the model, and with adapters of several kinds, with transformers in float64
  generate   greedy tokens, where generation stops, and a conversation through the chat template
  train      what PEFT computes with the adapter that training leaves, new or trained on from a PEFT adapter
  merge      the merged checkpoint with base + adapter: files, types, values up to one rounding, log-probs

The reference is float64 on weights upcast from storage. A line for each check; exits with 1 if one fails.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import torch
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from safetensors import safe_open
from safetensors.torch import load_file

import reference
from fresh import LLAMA3_SCALING, Checkpoint, Lora, make_adapter, make_checkpoint, random_ids, stop_early

NEW_TOKENS = 24
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

ADAPTERS = {
    "list": Lora(["q_proj", "v_proj"], rank=8, alpha=16),
    "all-linear": Lora("all-linear", rank=4, alpha=8),
    "regex": Lora(r".*\.1\.(self_attn\.[qk]_proj|mlp\.down_proj)", rank=3, alpha=5, dtype="bfloat16"),
    "rslora": Lora(LINEAR, rank=5, alpha=3, rslora=True, rank_pattern={"o_proj": 9}),
    # Keys: the end of a name; a whole name; expressions. Where several match, the first in the file counts.
    "patterns": Lora(
        LINEAR,
        rank=4,
        alpha=8,
        rank_pattern={"q_proj": 6, r"layers\.[01]\.mlp.down_proj": 2, "^model.layers.0.self_attn.v_proj": 1},
        alpha_pattern={"down_proj": 3, "layers.1.self_attn.q_proj": 20.5, ".*k_proj": 2, "1.self_attn.k_proj": 9},
    ),
    "head": Lora([*LINEAR, "lm_head"], rank=4, alpha=8, rank_pattern={"lm_head": 7}),
}
MERGED = ["all-linear", "patterns", "head"]


@dataclass
class Case:
    """A checkpoint to make, and the [lora] table that it is trained with."""

    name: str
    checkpoint: Checkpoint
    lora: dict = field(default_factory=dict)


CASES = [
    Case("qwen2-bf16-tied", Checkpoint("qwen2"), {"targets": [*LINEAR, "lm_head"]}),
    Case(
        "qwen2-f32-sharded",
        Checkpoint("qwen2", dtype="float32", tied=False, shards=4, hidden=56, heads=7, kv_heads=1, layers=3),
        {"rslora": True},
    ),
    Case("qwen3-bf16-wide-heads", Checkpoint("qwen3", hidden=80, heads=6, kv_heads=2, head_dim=16, published=True)),
    Case(
        "llama-f16-llama3-rope",
        Checkpoint(
            "llama",
            dtype="float16",
            tied=False,
            heads=8,
            kv_heads=2,
            intermediate=96,
            extra={"rope_parameters": LLAMA3_SCALING | {"rope_theta": 500000.0}},
            published=True,
        ),
        {"targets": ["q_proj", "model.layers.1.mlp.down_proj"]},
    ),
    Case(
        "llama-bf16-biases",
        Checkpoint("llama", kv_heads=4, float32_norms=True, extra={"attention_bias": True, "mlp_bias": True}),
    ),
    Case(
        "qwen2-f32-odd-sizes",
        Checkpoint("qwen2", dtype="float32", vocab=387, hidden=36, intermediate=91, heads=9, kv_heads=3),
        {"targets": r".*\.0\..*_proj|lm_head"},
    ),
    Case(
        "llama-bf16-odd-sizes",
        Checkpoint(
            "llama", tied=False, shards=3, vocab=389, hidden=54, intermediate=77, heads=6, kv_heads=2, head_dim=12
        ),
    ),
    Case(
        "qwen3-f16-odd-sizes",
        Checkpoint(
            "qwen3",
            dtype="float16",
            shards=2,
            vocab=401,
            hidden=45,
            intermediate=50,
            heads=6,
            kv_heads=2,
            head_dim=20,
            extra={
                "attention_bias": True,
                "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
            },
        ),
    ),
]

# Snake, since its returns differ even between players whose replies cannot be read.
TRAINING = """
[lora]
rank = 4
alpha = 8.0
{lora}
[game]
name = "snake"
[game.options]
size = 4
enemies = 2
apples = 3
step_limit = 4
[policy]
reply = "word"
max_new_tokens = 6
[train]
groups = 1
group_size = 4
learn = 4
sampling = "all"
lr = 0.01
[eval]
episodes = 2
"""


class Wrong(Exception):
    """A failed check, in one line."""


@dataclass
class Outcome:
    """The largest difference of a check, its tolerance, and a remark."""

    worst: float
    bound: float
    remark: str = ""


class Lapwing:
    """The program."""

    def __init__(self, binary: Path):
        self.binary = binary.resolve()

    def run(self, *arguments: str | Path) -> str:
        """Returns its output; raises an error if it fails."""
        command = [self.binary, *map(str, arguments)]
        # The dates in chat templates are local time in transformers and UTC in lapwing.
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TZ": "UTC"})
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}, nothing said"]
            raise Wrong(f"lapwing {arguments[0]}: {next((line for line in said if 'error' in line), said[-1])}")
        return done.stdout

    def score(self, model: Path, *what: str | Path, ids: list[int], adapter: Path | None = None) -> torch.Tensor:
        """Log-probs of a text or of ids, which must be these, without the first."""
        said = json.loads(self.run("score", "--model", model, *_option(adapter), *what, "--json"))
        if said["ids"] != ids:
            raise Wrong("score: the ids that it prints are others")
        return torch.tensor(said["logprobs"], dtype=torch.float64)

    def generate(self, model: Path, *prompt: str | Path, count: int, adapter: Path | None = None) -> dict:
        """The greedy reply, as `ids` and `text`."""
        options = ["--greedy", "--max-new-tokens", str(count), "--json"]
        return json.loads(self.run("generate", "--model", model, *_option(adapter), *prompt, *options))


def _option(adapter: Path | None) -> list[str | Path]:
    return [] if adapter is None else ["--adapter", adapter]


class Bench:
    """A checkpoint with its adapters, the inputs, and the checks."""

    def __init__(self, lapwing: Lapwing, directory: Path, case: Case, seed: int):
        self.lapwing, self.directory, self.case, self.seed = lapwing, directory, case, seed
        self.model_dir = directory / "model"
        wanted = case.checkpoint
        wanted.seed = seed
        make_checkpoint(self.model_dir, wanted)
        for i, (name, lora) in enumerate(ADAPTERS.items()):
            make_adapter(self.model_dir, self.adapter_dir(name), lora, seed + 1 + i)

        self.ids = {count: random_ids(wanted.vocab, count, seed + count) for count in [2, 17, 150]}
        for count, ids in self.ids.items():
            self.ids_file(count).write_text(json.dumps(ids), encoding="utf-8")
        self.model = reference.load_model(self.model_dir)
        self._end_a_reply()
        self.tokenizer = reference.load_tokenizer(self.model_dir)
        # Weights in 16 bits may be held in another 16-bit type on the device.
        self.bound = 1e-4 if wanted.dtype == "float32" else 2e-3

    def adapter_dir(self, name: str) -> Path:
        """The adapter of this name."""
        return self.directory / "adapters" / name

    def ids_file(self, count: int) -> Path:
        """Returns an input of this many ids."""
        return self.directory / f"ids{count}.json"

    def checks(self) -> Iterator[tuple[str, Callable[[], Outcome]]]:
        """Name and function of every check."""
        yield "score", self.score
        yield "score, text", self.score_text
        yield f"score, {len(ADAPTERS)} adapters", self.score_adapted
        yield "generate", self.generate
        yield "generate, adapter", self.generate_adapted
        yield "generate, chat", self.generate_chat
        yield "train, PEFT loads it", self.train
        yield "train on from PEFT", self.train_on
        merged = {name: Merged(self, name) for name in MERGED}
        yield f"merge, {len(MERGED)} adapters", lambda: _worst(merged, Merged.merge)
        yield "merge, files", lambda: _worst(merged, Merged.files)
        yield "merge, rounding", lambda: _worst(merged, Merged.rounding)
        yield "merge, log-probs", lambda: _worst(merged, Merged.log_probs)
        yield "merge, score", lambda: _worst(merged, Merged.score)

    def score(self) -> Outcome:
        """The base at several lengths."""
        worst = 0.0
        for count, ids in self.ids.items():
            scored = self.lapwing.score(self.model_dir, "--ids", self.ids_file(count), ids=ids)
            worst = max(worst, _distance(scored, self.model, ids))
        return Outcome(worst, self.bound)

    def score_text(self) -> Outcome:
        """A text with the special tokens that the tokenizer puts around it."""
        text = "Walk left,  it's 12345\r\n\r\n <|im_end|> d'après é ✓"
        ids = self.tokenizer.encode(text)
        scored = self.lapwing.score(self.model_dir, "--text", text, ids=ids)
        return Outcome(_distance(scored, self.model, ids), self.bound, f"{len(ids)} tokens")

    def score_adapted(self) -> Outcome:
        """Every adapter."""
        worst = {}
        for name in ADAPTERS:
            try:
                worst[name] = self.score_with(self.adapter_dir(name))
            except Wrong as wrong:
                raise Wrong(f"{name}: {wrong}") from wrong
        name = max(worst, key=worst.get)
        return Outcome(worst[name], 1e-3, f"worst: {name}")

    def score_with(self, adapter: Path) -> float:
        """How far lapwing is from PEFT with an adapter."""
        peft = reference.load_adapted(self.model_dir, adapter)
        ids = self.ids[150]
        scored = self.lapwing.score(self.model_dir, "--ids", self.ids_file(150), ids=ids, adapter=adapter)
        return _distance(scored, peft, ids)

    def generate(self) -> Outcome:
        """Replies of the base, one of which ends early."""
        remarks = []
        for count in [17, 150]:
            said = self.lapwing.generate(self.model_dir, "--ids", self.ids_file(count), count=NEW_TOKENS)
            remarks.append(self._same_reply(said, self.model, self.ids[count], NEW_TOKENS))
        return Outcome(0, 0, " + ".join(remarks) + " tokens")

    def generate_adapted(self) -> Outcome:
        """A reply with an adapter."""
        adapter = self.adapter_dir("patterns")
        said = self.lapwing.generate(
            self.model_dir, "--ids", self.ids_file(17), count=NEW_TOKENS, adapter=adapter
        )
        peft = reference.load_adapted(self.model_dir, adapter)
        return Outcome(0, 0, self._same_reply(said, peft, self.ids[17], NEW_TOKENS) + " tokens")

    def generate_chat(self) -> Outcome:
        """The reply to a conversation, and with a variable that Qwen3's template reads."""
        messages = [{"role": "system", "content": " Play well. "}, {"role": "user", "content": "P _ O\n_ _ G é ✓\n"}]
        path = self.directory / "chat.json"
        remarks = []
        for variables in [{}, {"enable_thinking": False}]:
            path.write_text(json.dumps({"messages": messages} | variables if variables else messages), encoding="utf-8")
            said = self.lapwing.generate(self.model_dir, "--chat", path, count=4)
            prompt = reference.conversation(self.tokenizer, messages, **variables)["ids"]
            remarks.append(self._same_reply(said, self.model, prompt, 4))
        return Outcome(0, 0, " + ".join(remarks) + " tokens")

    def train(self) -> Outcome:
        """A new adapter, which must adapt the same layers as PEFT with the same settings, with the same scale."""
        run = self._trained("new")
        told = self.directory / "told"
        make_adapter(self.model_dir, told, Lora(**({"rank": 4, "alpha": 8} | self.case.lora)), self.seed)
        self._same_terms(told, run / "adapter")
        changed = max(t.abs().max().item() for name, t in _tensors(run / "adapter").items() if "lora_B" in name)
        return Outcome(self.score_with(run / "adapter"), 1e-3, f"B up to {changed:.2g}")

    def train_on(self) -> Outcome:
        """Adapters from PEFT, which must keep their terms and change their values."""
        worst = {}
        for name in ["patterns", "head"]:
            start = self.adapter_dir(name)
            run = self._trained(f"on-{name}", "--adapter", start)
            self._same_terms(start, run / "adapter")
            before, after = _tensors(start), _tensors(run / "adapter")
            moved = max((after[n] - before[n]).abs().max().item() for n in after)
            # At most the rate in each of two steps.
            if not 0 < moved < 0.03:
                raise Wrong(f"{name}: two steps at rate 0.01 moved it by {moved:g}")
            worst[name] = self.score_with(run / "adapter")
        name = max(worst, key=worst.get)
        return Outcome(worst[name], 1e-3, f"worst: {name}")

    def _same_terms(self, wanted: Path, found: Path) -> None:
        """Fails unless both adapters have terms of the same ranks and scales in the same places, as PEFT reads them."""
        terms = []
        for adapter in [wanted, found]:
            layers = reference.load_adapted(self.model_dir, adapter).named_modules()
            loras = {name: module for name, module in layers if isinstance(module, LoraLayer)}
            terms.append({name: (module.r["default"], module.scaling["default"]) for name, module in loras.items()})
        if terms[0] != terms[1]:
            place = next(n for n in terms[0] | terms[1] if terms[0].get(n) != terms[1].get(n))
            raise Wrong(f"{place}: rank and scale {terms[1].get(place)} instead of {terms[0].get(place)}")

    def _trained(self, label: str, *options: str | Path) -> Path:
        """The run directory of a short training in which something was learned."""
        config = self.directory / "train.toml"
        lora = "\n".join(f"{key} = {json.dumps(value)}" for key, value in self.case.lora.items())
        config.write_text(TRAINING.format(lora=lora), encoding="utf-8")
        for seed in range(1, 6):
            run = self.directory / f"run-{label}-{seed}"
            self.lapwing.run(
                "train", config, "--model", self.model_dir, "--steps", "2", "--seed", str(seed), "--out", run, *options
            )
            if any(t.any() for name, t in _tensors(run / "adapter").items() if "lora_B" in name):
                return run
        raise Wrong("returns never differed with five seeds: nothing was learned")

    def _same_reply(self, said: dict, model: reference.Model, prompt: list[int], count: int) -> str:
        """Fails unless the reply is transformers' own; how many tokens it has."""
        with torch.no_grad():
            wanted = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=count)
        wanted = wanted[0, len(prompt) :].tolist()
        if said["ids"] != wanted:
            first = next(
                (i for i, pair in enumerate(zip(said["ids"], wanted)) if pair[0] != pair[1]),
                min(len(said["ids"]), len(wanted)),
            )
            top = reference.logits(model, prompt + wanted[:first])[-1].topk(2).values
            raise Wrong(
                f"token {first} of {len(said['ids'])} is not that of {len(wanted)} by transformers, whose logit leads "
                f"by {(top[0] - top[1]).item():.1g}"
            )
        text = self.tokenizer.decode(wanted, skip_special_tokens=True)
        if said["text"] != text:
            raise Wrong(f"text {said['text']!r} is not transformers' {text!r}")
        return str(len(wanted))

    def _end_a_reply(self) -> None:
        """Declares the last new token among the first 16 of a reply to end replies, so that one ends there."""
        reply = reference.greedy(self.model, self.ids[17], 16)
        stop_early(self.model_dir, max(reply, key=reply.index))
        self.model = reference.load_model(self.model_dir)


class Merged:
    """A checkpoint with an adapter merged by lapwing, compared with PEFT's."""

    def __init__(self, bench: Bench, name: str):
        self.bench = bench
        self.adapter = bench.adapter_dir(name)
        self.out = bench.directory / f"merged-{name}"
        self.ids = bench.ids[150]
        self.untied = name == "head" and bench.case.checkpoint.tied

    def merge(self) -> Outcome:
        """Merges; the other checks use the result."""
        bench = self.bench
        bench.lapwing.run("merge", "--model", bench.model_dir, "--adapter", self.adapter, "--out", self.out)
        return Outcome(0, 0)

    def files(self) -> Outcome:
        """The same files with the same tensors of the same types; tensors without an adapter are bit-identical."""
        bench = self.bench
        before, after = _layout(bench.model_dir), _layout(self.out)
        if self.untied:
            embedding = next(file for file, tensors in before.items() if "model.embed_tokens.weight" in tensors)
            before[embedding]["lm_head.weight"] = before[embedding]["model.embed_tokens.weight"]
        if before != after:
            raise Wrong("files, names, types or shapes differ from the original's")
        self._same_index()

        config, wanted = (reference.read_json(d / "config.json") for d in [self.out, bench.model_dir])
        if self.untied:
            wanted["tie_word_embeddings"] = False
        if config != wanted:
            raise Wrong("config.json differs from the original's")
        others = [path.name for path in bench.model_dir.iterdir() if path.suffix != ".safetensors"]
        for name in set(others) - {"config.json", "model.safetensors.index.json"}:
            if (self.out / name).read_bytes() != (bench.model_dir / name).read_bytes():
                raise Wrong(f"{name} differs from the original's")

        adapted = self._exact()
        old, new = _tensors(bench.model_dir), _tensors(self.out)
        for name in old.keys() - adapted.keys():
            if not torch.equal(old[name], new[name]):
                raise Wrong(f"{name} is not adapted and yet changed")
        text = "P _ O left é ✓ <|im_end|>"
        if reference.load_tokenizer(self.out).encode(text) != bench.tokenizer.encode(text):
            raise Wrong("AutoTokenizer reads it otherwise")
        return Outcome(0, 0, "one untied" if self.untied else "")

    def rounding(self) -> Outcome:
        """The error of every merged weight, as a part of what rounding allows.

        That is half a step of the stored type, and the rounding of rank + 1 sums in float32. PEFT's weights, which it
        sums in its own way, must then be within twice that: in 16 bits, the next number at most.
        """
        own, theirs = 0.0, 0.0
        merged, by_peft = _tensors(self.out), self._by_peft().state_dict()
        for name, (exact, terms, rank) in self._exact().items():
            stored, peft = merged[name].double(), by_peft[name]
            largest = torch.stack([exact, stored, peft]).abs().amax(0)
            allowed = _step(largest, merged[name].dtype) / 2 + (rank + 1) * 2.0**-24 * terms
            own = max(own, ((stored - exact).abs() / allowed).max().item())
            theirs = max(theirs, ((peft - exact).abs() / allowed).max().item())
            if ((stored - peft).abs() > 2 * allowed).any():
                raise Wrong(f"{name} is more than one rounding away from PEFT's")
        return Outcome(own, 1.0, f"PEFT's own: {theirs:.2g}")

    def log_probs(self) -> Outcome:
        """How far the merged checkpoint is from base + adapter, against how far PEFT's own merged one is."""
        with torch.no_grad():
            wanted = reference.log_probs(reference.load_adapted(self.bench.model_dir, self.adapter), self.ids)
            got = reference.log_probs(reference.load_model(self.out), self.ids)
            theirs = reference.log_probs(self._by_peft(), self.ids)
        own, peft = ((x - wanted).abs().max().item() for x in [got, theirs])
        # Both are rounding, so neither is always the smaller; the constant is float32 within the reference.
        return Outcome(own, 2 * peft + 2e-5, f"PEFT's own: {peft:.2g}")

    def score(self) -> Outcome:
        """lapwing on its merged checkpoint against transformers on the same."""
        scored = self.bench.lapwing.score(self.out, "--ids", self.bench.ids_file(150), ids=self.ids)
        return Outcome(_distance(scored, reference.load_model(self.out), self.ids), self.bench.bound)

    def _exact(self) -> dict[str, tuple[torch.Tensor, torch.Tensor, int]]:
        """By name of each adapted weight: its float64 sum, the sum of the terms' magnitudes, and the rank."""
        model = reference.load_adapted(self.bench.model_dir, self.adapter)
        found = {}
        with torch.no_grad():
            for name, module in model.base_model.model.named_modules():
                if isinstance(module, LoraLayer):
                    weight = module.get_base_layer().weight
                    a, b = module.lora_A["default"].weight, module.lora_B["default"].weight
                    terms = weight.abs() + module.scaling["default"] * b.abs() @ a.abs()
                    found[f"{name}.weight"] = (weight + module.get_delta_weight("default"), terms, a.shape[0])
        return found

    def _by_peft(self) -> torch.nn.Module:
        """PEFT's own merge in the stored type, upcast."""
        base = reference.load_model(self.bench.model_dir, getattr(torch, self.bench.case.checkpoint.dtype))
        if self.untied:
            base.lm_head.weight = torch.nn.Parameter(base.lm_head.weight.detach().clone())
        return PeftModel.from_pretrained(base, self.adapter).merge_and_unload().double()

    def _same_index(self) -> None:
        """Fails unless the index of a sharded checkpoint is the original's, but for a new head."""
        path = self.bench.model_dir / "model.safetensors.index.json"
        if not path.exists():
            return
        before, after = reference.read_json(path), reference.read_json(self.out / path.name)
        if self.untied:
            before["weight_map"]["lm_head.weight"] = before["weight_map"]["model.embed_tokens.weight"]
        if before["weight_map"] != after["weight_map"]:
            raise Wrong("the weight_map differs from the original's")
        bytes_there = sum(t.nbytes for t in _tensors(self.out).values())
        if after["metadata"]["total_size"] != bytes_there:
            raise Wrong(f"the index says total_size {after['metadata']['total_size']}, there are {bytes_there}")


def _worst(merged: dict[str, Merged], check: Callable[[Merged], Outcome]) -> Outcome:
    """The outcome that comes closest to its bound."""
    outcomes = {}
    for name, one in merged.items():
        try:
            if check is not Merged.merge and not one.out.exists():
                raise Wrong("nothing was merged")
            outcomes[name] = check(one)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong}") from wrong
    name = max(outcomes, key=lambda n: outcomes[n].worst / (outcomes[n].bound or 1))
    worst = outcomes[name]
    remarks = [o.remark for o in outcomes.values() if o.remark] if worst.bound == 0 else [worst.remark]
    label = [f"worst: {name}"] if worst.bound else []
    return Outcome(worst.worst, worst.bound, "; ".join(filter(None, label + remarks)))


def _distance(found: torch.Tensor, model: reference.Model, ids: list[int]) -> float:
    """The largest difference from the model's log-probs."""
    with torch.no_grad():
        wanted = reference.log_probs(model, ids)
    if found.shape != wanted.shape:
        raise Wrong(f"{len(found)} log-probs instead of {len(wanted)}")
    return (found - wanted).abs().max().item()


def _step(magnitude: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The distance between neighbouring numbers of a type at these magnitudes, in float64."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(magnitude.clamp(min=info.smallest_normal)).exponent
    return torch.ldexp(torch.tensor(info.eps, dtype=torch.float64), exponent - 1)


def _layout(directory: Path) -> dict[str, dict[str, tuple]]:
    """Type and shape by name of tensor, by name of weight file."""
    layout = {}
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}
            layout[path.name] = {n: (s.get_dtype(), tuple(s.get_shape())) for n, s in slices.items()}
    return layout


def _tensors(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of all weight files."""
    return {name: t for path in directory.glob("*.safetensors") for name, t in load_file(path).items()}


def header(lapwing: Lapwing) -> str:
    """When, and what of which version."""
    libraries = " ".join(f"{name} {version(name)}" for name in ["torch", "transformers", "peft", "safetensors"])
    used = next(line for line in lapwing.run("adapters").splitlines() if "will be used" in line)
    device = used.split("<-")[0].split(":", 1)[1].strip()
    now = datetime.datetime.now(datetime.UTC)
    return f"{lapwing.run('--version').strip()} on {device}, {now:%Y-%m-%d %H:%M} UTC\nagainst {libraries}, float64\n"


def examine(bench: Bench) -> bool:
    """Runs all checks of a checkpoint and prints a line for each."""
    fine = True
    for name, check in bench.checks():
        try:
            outcome = check()
            passed = outcome.worst <= outcome.bound
            numbers = f"{outcome.worst:8.2g} {outcome.bound:8.2g}" if outcome.bound else f"{'same':>8} {'':8}"
            remark = outcome.remark
        except Wrong as wrong:
            passed, numbers, remark = False, f"{'':17}", str(wrong)
        fine &= passed
        line = f"{bench.case.name:22} {name:22} {numbers}  {'PASS' if passed else 'FAIL'}  {remark}"
        print(line.rstrip(), flush=True)
    return fine


def main() -> int:
    """Makes each checkpoint and checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", type=Path, required=True, metavar="FILE", help="the program, built for release")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave everything in this new directory")
    parser.add_argument("--only", metavar="NAME", help="only checkpoints whose name contains this")
    parser.add_argument("--seed", type=int, default=1000, help="for other weights and ids than the last time")
    args = parser.parse_args()

    lapwing = Lapwing(args.lapwing)
    print(header(lapwing))
    print(f"{'checkpoint':22} {'check':22} {'worst':>8} {'bound':>8}")
    fine = True
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary)
        for i, case in enumerate(CASES):
            if args.only is None or args.only in case.name:
                fine &= examine(Bench(lapwing, root / case.name, case, args.seed + 100 * i))
    print("\neverything agrees" if fine else "\nNOT everything agrees")
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
