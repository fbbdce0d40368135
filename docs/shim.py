"""Puts a Gymnasium or TextArena environment behind JSON lines, for lapwing: docs/environments.md.

    lapwing play --game "exec:python3 docs/shim.py FrozenLake-v1" --set 'game.options.actions=["left","down","right","up"]'

    python3 shim.py FrozenLake-v1 [is_slippery=false ...]     an environment of Gymnasium, with discrete actions
    python3 shim.py textarena:Wordle-v0 [...]                 one of TextArena, for one player; actions are texts

What follows the name are arguments of the environment, their values JSON (or else text).
"""

import json
import os
import random
import sys

# Only answers go to standard output. Whatever else is printed there, by C libraries too, goes to standard error.
out = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


def value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


class Gymnasium:
    def __init__(self, name, arguments):
        import gymnasium

        self.env = gymnasium.make(name, **arguments)
        if not isinstance(self.env.action_space, gymnasium.spaces.Discrete):
            raise ValueError(f"{name} has the actions {self.env.action_space}, and only discrete ones can be named")

    def reset(self, seed=None, luck=None):
        observation, _ = self.env.reset(seed=seed)
        if luck is not None:
            import numpy

            # The scene is set: what chance does from here on follows from another seed.
            self.env.unwrapped.np_random = numpy.random.default_rng(luck)
        return self.answer(observation, None, False)

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.env.step(action)
        return self.answer(observation, reward, terminated or truncated)

    def answer(self, observation, reward, done):
        text = self.env.render() if self.env.render_mode == "ansi" else None
        plain = observation.tolist() if hasattr(observation, "tolist") else observation
        told = {"text": text, "raw": plain} if text else plain
        return {"observation": told, "reward": None if reward is None else float(reward), "done": bool(done)}


class TextArena:
    def __init__(self, name, arguments):
        import textarena

        self.env = textarena.make(name, **arguments)

    def reset(self, seed=None, luck=None):
        # Its games draw from the one generator that Python has: each session has its own state of it.
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
            answer = {"type": "error", "data": {"message": f"{type(error).__name__}: {error}", "code": "EXECUTION_ERROR"}}
        print(json.dumps({"session": session} | answer), file=out, flush=True)


main()
