"""Environments of others through the program, against the real libraries: Gymnasium's lake through `lapwing shim` beside lapwing's own,
a game of TextArena through the shim, and a server of the openenv package over a WebSocket.

    tests/python/bridge.py --lapwing target/debug/lapwing

Wants gymnasium, textarena and openenv only, of the versions in requirements.txt.
"""

import argparse
import collections
import json
import math
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["left", "down", "right", "up"]
MAP = ["SFFF", "FHFH", "FFFH", "HFFG"]
ACTIONS = f"game.options.actions={json.dumps(WORDS)}"
SHIM = f"exec:{sys.executable} {ROOT / 'train/cli/src/shim.py'}"


class Lapwing:
    def __init__(self, program):
        self.program = str(Path(program).resolve())

    def __call__(self, *arguments, said=None, fails=False):
        done = subprocess.run([self.program, *arguments], input=said, capture_output=True, text=True, timeout=600)
        if (done.returncode != 0) != fails:
            sys.exit(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stderr if fails else done.stdout


def native(*settings):
    options = [f"game.options.map={json.dumps(MAP)}", *settings]
    return ["--game", "frozen-lake"] + [word for option in options for word in ("--set", option)]


def foreign(arguments, *settings):
    options = [ACTIONS, *settings]
    return ["--game", f"{SHIM} FrozenLake-v1 {arguments}"] + [word for option in options for word in ("--set", option)]


def place(text, of):
    """The cell, as a number from 0, that an observation shows."""
    if of == "gymnasium":
        return "".join(re.findall(r"^[PSFHG]{4}$", text, re.MULTILINE)).index("P")
    cells = [line.split() for line in text.splitlines() if re.fullmatch(r"[P_OG*X](?: [P_OG*X])*", line)]
    [found] = [4 * row + column for row, line in enumerate(cells) for column, cell in enumerate(line) if cell == "P"]
    return found


def way(to):
    """Actions that lead to a cell over firm ice."""
    open_, seen = collections.deque([(0, [])]), {0}
    while open_:
        cell, actions = open_.popleft()
        if cell == to:
            return actions
        for action in range(4):
            other = moved(cell, action)
            if other not in seen and MAP[other // 4][other % 4] in "SF":
                seen.add(other)
                open_.append((other, actions + [action]))


def moved(cell, action):
    row, column = divmod(cell, 4)
    row = min(max(row + [0, 1, 0, -1][action], 0), 3)
    column = min(max(column + [-1, 0, 1, 0][action], 0), 3)
    return 4 * row + column


def ending(shown, of):
    """What a game by hand comes to: its turns, the last reward, how it ended if it did, and the last cell."""
    rewards = re.findall(r": reward (\S+)", shown)
    over = re.search(r"over after (\d+) turns?: (success|no success), return (\S+)", shown)
    pieces = re.split(r": reward \S+\n\n", shown)
    last = re.split(r"\nturn \d+/\d+> |\nover after ", pieces[-1])[0]
    return len(rewards), float(rewards[-1]), over and over.groups(), place(last, of)


def firm(lapwing):
    """Every action in every cell, by hand: reward, end, success and next cell."""
    checked = 0
    for cell in range(16):
        if MAP[cell // 4][cell % 4] not in "SF":
            continue
        for action in range(4):
            said = "".join(f"{WORDS[a]}\n" for a in [*way(cell), action])
            ours = lapwing("play", "--human", *native(), said=said)
            theirs = lapwing("play", "--human", *foreign("is_slippery=false"), said=said)
            a, b = ending(ours, "native"), ending(theirs, "gymnasium")
            if a != b or a[3] != moved(cell, action):
                sys.exit(f"cell {cell}, {WORDS[action]}: natively {a}, through the bridge {b}")
            checked += 1
    print(f"firm lake: {checked} of {checked} transitions equal (reward, end, success, next cell)")


def slippery(lapwing, episodes):
    """How often each way is taken: a third each, on both sides, within 4.5 standard errors."""
    worst = {}
    for of, arguments in [
        ("native", native("game.options.slippery=true")),
        ("gymnasium", foreign("is_slippery=true", 'game.options.luck="luck"')),
    ]:
        out = lapwing("play", *arguments, "--episodes", str(episodes), "--json")
        counts, returns = collections.defaultdict(collections.Counter), []
        for line in out.splitlines():
            turns = json.loads(line)["turns"]
            returns.append(sum(turn["reward"] for turn in turns))
            for turn, following in zip(turns, turns[1:]):
                if turn["action"] is not None:
                    before, after = place(turn["observation"], of), place(following["observation"], of)
                    counts[before, WORDS.index(turn["action"])][after] += 1
        worst[of], seen = 0, 0
        for (cell, action), found in counts.items():
            ends = collections.Counter(moved(cell, (action + turn) % 4) for turn in (-1, 0, 1))
            # The last step of an episode has no turn after it: only where none of the three ends it, all are seen.
            if any(MAP[end // 4][end % 4] in "HG" for end in ends):
                continue
            total = sum(found.values())
            if set(found) - set(ends):
                sys.exit(f"{of}: from {cell} by {WORDS[action]} to {set(found) - set(ends)}")
            if total < 60:
                continue
            seen += 1
            for end, ways in ends.items():
                p = ways / 3
                error = math.sqrt(p * (1 - p) / total) or 1
                worst[of] = max(worst[of], abs(found[end] / total - p) / error)
        if worst[of] > 4.5 or not seen:
            sys.exit(f"{of}: {worst[of]:.1f} standard errors off, {seen} pairs of cell and action")
        print(f"slippery lake, {of}: {episodes} episodes, {seen} pairs of cell and action, worst {worst[of]:.2f} standard errors")


def textarena(lapwing, home):
    """A game of free text: every reply arrives unchanged."""
    template = home / "textarena.jinja"
    template.write_text('{% block action %}{"action": {{ ("[" ~ action ~ "]") | tojson }}}{% endblock %}')
    arguments = ["--game", f"{SHIM} textarena:GuessTheNumber-v0", "--set", f'game.options.template="{template}"']
    numbers = json.dumps([str(n) for n in range(1, 21)])
    shown = lapwing("play", "--human", *arguments, "--set", f"game.options.actions={numbers}",
                    said="".join(f"{n}\n" for n in (10, 5, 15, 3, 8, 12, 18, 1, 2, 4)))
    said = len(re.findall(r": reward ", shown))
    if not said or "10" not in shown:
        sys.exit(f"textarena: {shown}")
    print(f"TextArena GuessTheNumber-v0: {said} turns played; {shown.strip().splitlines()[-1]}")


def serve(port, capacity):
    """An echo, on openenv's own server."""
    import uvicorn
    from openenv.core.env_server.http_server import create_app
    from openenv.core.env_server.interfaces import Environment
    from openenv.core.env_server.types import Action, Observation, State

    class Said(Action):
        message: str

    class Echoed(Observation):
        text: str

    class Echo(Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def reset(self, seed=None, episode_id=None):
            self.heard = 0
            return Echoed(text=f"seed {seed}", done=False)

        def step(self, action):
            self.heard += 1
            return Echoed(text=f"you said {action.message}", reward=0.5, done=self.heard == 3)

        @property
        def state(self):
            return State(step_count=self.heard)

    app = create_app(Echo, Said, Echoed, env_name="echo", max_concurrent_envs=capacity)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def openenv(lapwing, home):
    template = home / "echo.jinja"
    template.write_text('{% block action %}{% if action %}{"message": {{ action | tojson }}}{% endif %}{% endblock %}')
    for capacity in (1, 4):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([sys.executable, __file__, "--serve", f"{port}:{capacity}"])
        try:
            # Importing its libraries takes a while.
            for _ in range(1200):
                with socket.socket() as probe:
                    if server.poll() is not None or probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            game = ["--game", f"ws://127.0.0.1:{port}/ws", "--set", ACTIONS, "--set", f'game.options.template="{template}"']
            if capacity == 1:
                shown = lapwing("play", "--human", *game, "--seed", "7", said="left\nup\ndown\n")
                for text in ("seed 7", "you said left", "you said up", "over after 3 turns: success, return 1.5"):
                    assert text in shown, shown
                told = lapwing("play", *game, "--episodes", "2", "--quiet", fails=True)
                assert "MAX_CONCURRENT_ENVS" in told, told
                print(f"openenv, one session: played by hand; a second at once: {told.strip()}")
            else:
                told = json.loads(lapwing("eval", *game, "--episodes", "4", "--json", "--quiet"))
                assert told["episodes"] == 4, told
                print(f"openenv, four sessions: eval, return {told['return_mean']}, length {told['episode_length_mean']}")
        finally:
            server.kill()
            server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lapwing", metavar="PROGRAM")
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--only", choices=["firm", "slippery", "textarena", "openenv"])
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(*map(int, arguments.serve.split(":")))
    lapwing = Lapwing(arguments.lapwing)
    with tempfile.TemporaryDirectory() as home:
        parts = {
            "openenv": lambda: openenv(lapwing, Path(home)),
            "textarena": lambda: textarena(lapwing, Path(home)),
            "slippery": lambda: slippery(lapwing, arguments.episodes),
            "firm": lambda: firm(lapwing),
        }
        for name, part in parts.items():
            if arguments.only in (None, name):
                part()


main()
