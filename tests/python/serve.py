"""The real openai client against `lapwing serve`: lists, replies, streams, scores, repetitions and refusals.

    .venv/bin/python tests/python/serve.py --lapwing target/release/lapwing

Starts the server by itself, with the built-in model unless --model and --adapter name another, on a port that is free. Ends
with 1 if anything is not as it must be. Wants only `openai` of requirements.txt.
"""

import argparse
import math
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai

CHECKS = []


def check(what, holds, told=""):
    """One line of the table."""
    CHECKS.append(holds)
    print(f"{'ok  ' if holds else 'FAIL'}  {what}{': ' if told else ''}{told}", flush=True)


def start(lapwing, more):
    """Starts the server and returns it with its address, once it is ready."""
    command = [lapwing, "serve", "--port", "0", "--name", "served", *more]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"is served at (http://\S+)", line)
        if found:
            # Read on, so that the pipe never fills.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server, found[1]
    sys.exit(f"the server ended with {server.wait()}")


def refused(kind, what, ask):
    """Whether a request fails as this exception of the client's."""
    try:
        ask()
    except kind as error:
        body = error.body if isinstance(error.body, dict) else {}
        check(f"{what} is {kind.__name__}", bool(body.get("message")), f"{body.get('param')}, {body.get('code')}")
    except openai.OpenAIError as error:
        check(f"{what} is {kind.__name__}", False, repr(error))
    else:
        check(f"{what} is {kind.__name__}", False, "it was answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", required=True, help="the program")
    parser.add_argument("--model", help="a model other than the built-in model")
    parser.add_argument("--adapter", help="an adapter for it, or a run")
    arguments = parser.parse_args()
    more = []
    for name in ["model", "adapter"]:
        if getattr(arguments, name):
            more += [f"--{name}", getattr(arguments, name)]
    server, url = start(arguments.lapwing, more)
    try:
        examine(openai.OpenAI(base_url=url, api_key="none", max_retries=0))
        began = time.monotonic()
        server.send_signal(signal.SIGINT)
        check("Ctrl-C ends it with 130", server.wait(10) == 130, f"after {time.monotonic() - began:.2f} s")
    finally:
        server.kill()
    print(f"{sum(CHECKS)} of {len(CHECKS)} as they must be, with openai {openai.__version__}")
    sys.exit(0 if all(CHECKS) else 1)


def examine(client):
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "go"}]

    def chat(**more):
        return client.chat.completions.create(model="served", messages=messages, **more)

    def complete(prompt, **more):
        return client.completions.create(model="served", prompt=prompt, **more)

    listed = client.models.list().data
    check("the model is listed", [model.id for model in listed] == ["served"], listed[0].owned_by)
    check("the model is found", client.models.retrieve("served").id == "served")

    said = chat(max_tokens=12, seed=1)
    check("a chat is answered", said.choices[0].message.role == "assistant", repr(said.choices[0].message.content))
    check("a reply ends for a reason", said.choices[0].finish_reason in ["stop", "length"], said.choices[0].finish_reason)
    same = chat(max_completion_tokens=12, seed=1)
    check("a seed repeats", same.choices == said.choices)
    wild = [chat(max_tokens=12, temperature=3, seed=seed).choices[0].message.content for seed in range(4)]
    check("seeds differ", len(set(wild)) > 1, f"{len(set(wild))} of 4 replies")

    more = {"max_tokens": 24, "temperature": 2, "seed": 7, "n": 2, "logprobs": True, "top_logprobs": 3}
    whole = chat(**more)
    texts, told, usage, chunks = ["", ""], [[], []], None, 0
    for chunk in chat(stream=True, stream_options={"include_usage": True}, **more):
        chunks += 1
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.logprobs:
                told[choice.index] += choice.logprobs.content
    check("a stream says the same", texts == [choice.message.content for choice in whole.choices], f"{chunks} chunks")
    check("so do its log-probs", told == [choice.logprobs.content for choice in whole.choices])
    check("and its usage", usage == whole.usage, f"{usage.completion_tokens} tokens")
    tokens = [token for choice in whole.choices for token in choice.logprobs.content]
    good = all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in tokens)
    falls = all(a.logprob >= b.logprob for t in tokens for a, b in zip(t.top_logprobs, t.top_logprobs[1:]))
    likely = all(math.fsum(math.exp(top.logprob) for top in t.top_logprobs) <= 1.0001 for t in tokens)
    check("log-probs are some", good and falls and likely, f"{len(tokens)} tokens")

    drawn = complete("go left", max_tokens=10, temperature=0, logprobs=1, echo=True)
    told = drawn.choices[0].logprobs
    check("an echo begins with the prompt", drawn.choices[0].text.startswith("go left"), repr(drawn.choices[0].text))
    scored = complete(drawn.choices[0].text, max_tokens=0, logprobs=1, echo=True).choices[0].logprobs
    # A text has not always the tokens that it was drawn as, least of all when a letter is made of several.
    common = 0
    for one, other in zip(told.tokens, scored.tokens):
        if one != other or "\ufffd" in one:
            break
        common += 1
    pairs = list(zip(told.token_logprobs, scored.token_logprobs))[1:common]
    gap = max(abs(a - b) for a, b in pairs)
    check("what was drawn is scored alike", gap <= 1e-6, f"{common} of {len(told.tokens)} tokens, {gap:.1e} apart")
    many = complete(["go", "left", [50, 51, 52]], n=2, max_tokens=4, seed=3)
    check("three prompts, two replies each", [choice.index for choice in many.choices] == list(range(6)))
    full = complete("go", max_tokens=40, temperature=2, seed=4).choices[0].text
    cut = full[len(full) // 2 :][:2]
    stopped = complete("go", max_tokens=40, temperature=2, seed=4, stop=[cut]).choices[0]
    check("a stop text stops", (stopped.text, stopped.finish_reason) == (full.split(cut)[0], "stop"), repr(cut))

    def one(seed):
        return chat(max_tokens=8 + seed, temperature=1.5, seed=seed).choices[0].message.content

    began = time.monotonic()
    alone = [one(seed) for seed in range(8)]
    between = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(one, range(8)))
    times = f"{between - began:.2f} s one by one, {time.monotonic() - between:.2f} s together"
    check("eight clients get what each would alone", alone == together, times)

    refused(openai.NotFoundError, "another model", lambda: client.models.retrieve("gpt"))
    refused(
        openai.NotFoundError,
        "a chat with another model",
        lambda: client.chat.completions.create(model="gpt", messages=messages),
    )
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    refused(openai.BadRequestError, "a tool", lambda: chat(tools=[tool]))
    refused(openai.BadRequestError, "a response format", lambda: chat(response_format={"type": "json_object"}))
    refused(openai.BadRequestError, "a penalty", lambda: chat(presence_penalty=1.0))
    refused(openai.BadRequestError, "an unknown field", lambda: chat(extra_body={"min_p": 0.1}))
    refused(openai.BadRequestError, "a temperature below 0", lambda: chat(temperature=-1))
    refused(openai.BadRequestError, "too many tokens", lambda: complete("go", max_tokens=10_000_000))
    refused(openai.RateLimitError, "a full queue", lambda: flood(client, messages))
    check("and then it goes on", bool(chat(max_tokens=2).choices))


def flood(client, messages):
    """More at once than the queue takes; raises what the first of them got that was sent away."""

    def ask(_):
        client.chat.completions.create(model="served", messages=messages, n=20, temperature=1000, max_tokens=100)

    with ThreadPoolExecutor(12) as pool:
        for done in [pool.submit(ask, number) for number in range(12)]:
            done.result()


if __name__ == "__main__":
    main()
