"""What transformers and PEFT compute with a checkpoint, in float64.

Weights are upcast from the dtype they are stored in, which loses nothing. Within a float64 model transformers still
squares for the norms and takes the rotary angles in float32, so the numbers are good to about 1e-5.
"""

import json
import os
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
# Libraries that deprecate each other's functions, and PEFT's advice on tied heads.
warnings.simplefilter("ignore")
torch.set_num_threads(1)

Model = PreTrainedModel | PeftModel


def read_json(path: Path):
    """What a JSON file holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value) -> None:
    """Writes JSON that people can read."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")


def load_model(directory: Path, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    """The checkpoint's model; in float64 by default."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa")
    return model.eval()


def load_adapted(directory: Path, adapter: Path) -> PeftModel:
    """The checkpoint's model in float64 with a PEFT adapter beside its weights, which wants gradients."""
    model = PeftModel.from_pretrained(load_model(directory), adapter, is_trainable=True)
    return model.double().eval()


def load_tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    """The checkpoint's tokenizer with its chat template."""
    return AutoTokenizer.from_pretrained(directory)


def logits(model: Model, ids: list[int]) -> torch.Tensor:
    """Logits of every position: (tokens, vocabulary)."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def log_probs(model: Model, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of `ids[1:]`, each after what precedes it, at temperature 1."""
    rows = torch.log_softmax(logits(model, ids)[:-1], dim=-1)
    return rows.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


@torch.no_grad()
def greedy(model: Model, ids: list[int], count: int) -> list[int]:
    """The likeliest `count` tokens after `ids`, whatever they are."""
    text = list(ids)
    for _ in range(count):
        text.append(int(logits(model, text)[-1].argmax()))
    return text[len(ids) :]


def gradients(model: PeftModel, ids: list[int], weights: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The log-probs of `ids[1:]`, and by PEFT's name the gradient of `sum(log_probs * weights)`."""
    model.zero_grad()
    found = log_probs(model, ids)
    (found * weights).sum().backward()
    by_name = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            by_name[name.removeprefix("base_model.model.").replace(".default.", ".")] = parameter.grad
    return found.detach(), by_name


def conversation(tokenizer: PreTrainedTokenizerBase, messages: list[dict], **variables) -> dict:
    """A conversation with the text that its template renders and the ids of that text, no special tokens added."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **variables)
    return {"messages": messages, "text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}
