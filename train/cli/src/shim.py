"""Connects a Gymnasium or TextArena environment to lapwing (docs/environments.md).

    lapwing shim > shim.py
    lapwing play --game "exec:python3 shim.py FrozenLake-v1" --set 'game.options.actions=["left","down","right","up"]'

    python3 shim.py FrozenLake-v1 [is_slippery=false ...]     a Gymnasium environment with discrete actions
    python3 shim.py textarena:Wordle-v0 [...]                 a TextArena environment for one player; actions are texts

The words after the name are arguments of the environment. Their values are JSON, or else text.
"""

import json
import os
import random
import re
import sys

# Standard output is for answers. Anything else that is printed there, by C libraries too, goes to standard error.
out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def plain(picture):
    """Replaces escape codes: the highlighted cell becomes P, and the letters of other colours are listed below."""
    names = "gray red green yellow blue magenta cyan white crimson".split()
    text, notes, codes = "", [], []
    for code, letter in re.findall(r"\x1b\[([\d;]*)m|(.)", re.sub(r"^ *\(.*\)\n", "", picture, flags=re.M), re.DOTALL):
        if not letter:
            # A reset ends all nested colours.
            codes = [] if code in ("", "0") else codes + [int(number) for number in code.split(";")]
            continue
        notes += [f"{names[number - 30]}: {letter}" for number in codes if 30 <= number <= 38]
        text += "P" if any(40 <= number <= 48 for number in codes) else letter
    return "\n".join([text.strip("\n"), *dict.fromkeys(notes)])


class Gymnasium:
    def __init__(self, name, arguments):
        import gymnasium

        modes = gymnasium.make(name, **arguments).metadata.get("render_modes", [])
        if "ansi" in modes:
            arguments = {"render_mode": "ansi"} | arguments
        self.env = gymnasium.make(name, **arguments)
        if not isinstance(self.env.action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"{name} has the actions {self.env.action_space}, and only discrete ones can be named")

    def reset(self, seed=None, luck=None):
        observation, _ = self.env.reset(seed=seed)
        if luck is not None:
            import numpy

            # The scene is set. Chance events from here on follow another seed.
            self.env.unwrapped.np_random = numpy.random.default_rng(luck)
        return self.answer(observation, None, False)

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.env.step(action)
        # At a time limit the episode could have continued, so a critic must not learn that the state is worth nothing.
        return self.answer(observation, reward, terminated or truncated) | {"truncated": bool(truncated and not terminated)}

    def answer(self, observation, reward, done):
        text = plain(self.env.render()) if self.env.render_mode == "ansi" else None
        raw = observation.tolist() if hasattr(observation, "tolist") else observation
        seen = {"text": text, "raw": raw} if text else raw
        return {"observation": seen, "reward": None if reward is None else float(reward), "done": bool(done)}


class TextArena:
    def __init__(self, name, arguments):
        import textarena

        self.env = textarena.make(name, **arguments)

    def reset(self, seed=None, luck=None):
        # Its games draw from Python's global generator, so each session keeps a state of it.
        random.seed(seed)
        self.env.reset(num_players=1, seed=seed)
        if luck is not None:
            random.seed(luck)
        self.chance = random.getstate()
        return self.answer(False)

    def step(self, action):
        random.setstate(self.chance)
        done, _ = self.env.step(action)
        self.chance = random.getstate()
        return self.answer(done)

    def answer(self, done):
        _, observation = self.env.get_observation()
        reward = (self.env.close()[0] or {}).get(0) if done else None
        return {"observation": {"text": str(observation)}, "reward": reward, "done": bool(done)}


def main():
    name, *rest = sys.argv[1:] or sys.exit(__doc__)
    arguments = {key: value(text) for key, _, text in (word.partition("=") for word in rest)}
    kind, name = (TextArena, name.removeprefix("textarena:")) if name.startswith("textarena:") else (Gymnasium, name)
    sessions = {}
    for line in sys.stdin:
        message = json.loads(line)
        session, data = message["session"], message.get("data", {})
        if message["type"] == "close":
            sessions.pop(session, None)
            continue
        try:
            if message["type"] == "reset" and session not in sessions:
                sessions[session] = kind(name, arguments)
            answer = {"type": "observation", "data": getattr(sessions[session], message["type"])(**data)}
        except Exception as error:
            cure = f"; install it with: pip install {error.name}" if isinstance(error, ModuleNotFoundError) else ""
            problem = f"{type(error).__name__}: {error}{cure}"
            answer = {"type": "error", "data": {"message": problem, "code": "EXECUTION_ERROR"}}
        print(json.dumps({"session": session} | answer), file=out, flush=True)


main()
