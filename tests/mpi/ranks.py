#!/usr/bin/env python3
"""Runs on several ranks with a real mpirun: they end with the bytes of a run in one process. ./check --all runs it.

    ranks.py LAPWING MPIRUN [KILLS]

LAPWING is a program with the feature `mpi`, MPIRUN that of the MPI library it was built with, and KILLS how many runs lose a
random rank at a random moment (default 2).
"""
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAPWING, MPIRUN = sys.argv[1:3]
KILLS = int(sys.argv[3]) if len(sys.argv) > 3 else 2
# Seconds in which a run ends after it lost a rank.
PATIENCE = 10

FEW = ["frozen-lake", "--set", "train.groups=4", "--set", "eval.episodes=6"]
SMALL = FEW + ["--steps", "2", "--set", "eval.every=1"]
# Several batches, updates and games, turn-level credit, ratios of episodes, and a reference from the warm-up.
RICH = SMALL + [
    "--warmup=1", "--set", "warmup.episodes=4", "--set", "train.group_size=4", "--set", "train.tokens_per_batch=600",
    "--set", "train.minibatches=2", "--set", 'train.ratio="episode"', "--set", "train.beta=0.1", "--set", "policy.constrain=true",
    "--set", 'mix=[{name="snake",share=0.5}]',
]  # fmt: skip
# Long enough to be killed in the middle.
LONG = FEW + ["--steps", "40", "--set", "eval.every=10", "--set", "checkpoint.every=5"]

# A machine for tests has fewer cores than ranks, and its user is root.
os.environ |= {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "LP_NUM_THREADS": "1",
}


def command(ranks: int, *arguments: object) -> list[str]:
    start = [MPIRUN, "-n", str(ranks)] if ranks > 1 else []
    return [*start, LAPWING, *map(str, arguments)]


def train(ranks: int, *arguments: object) -> None:
    ended = subprocess.run(command(ranks, "-q", "train", *arguments), capture_output=True, text=True)
    assert ended.returncode == 0, f"{ranks} ranks: {ended.stderr}"


def refused(wanted: str, *line: str) -> None:
    """The command fails and prints this text."""
    ended = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert ended.returncode != 0 and wanted in ended.stderr, f"wanted {wanted!r}, found {ended.stderr}"
    print(f"refused: {wanted}")


def left(run: Path) -> list[object]:
    """All that a run leaves, except for times."""
    weights = [path.read_bytes() for path in sorted(run.glob("*/adapter_model.safetensors"))]
    lines = [json.loads(line) for name in ("metrics", "episodes") for line in (run / f"{name}.jsonl").read_text().splitlines()]
    test = json.loads((run / "test.json").read_text())
    lines += [test["baselines"], *test["sampled"], *test["greedy"]]
    return [weights, [{k: v for k, v in line.items() if k != "time" and not k.startswith("seconds_")} for line in lines]]


def processes(run: Path) -> list[int]:
    """The ranks of the run in this directory."""
    found = subprocess.run(["pgrep", "-f", f"^{LAPWING} .*{run}"], capture_output=True, text=True)
    return [int(line) for line in found.stdout.split()]


def steps_done(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_text().count('"kind":"step"') if path.exists() else -1


def interrupted(ranks: int, run: Path, *arguments: object, after: float, stop) -> tuple[float, str]:
    """Starts a run, waits until it trains and then for `after` seconds, and stops it. Returns the seconds until it ends and what
    it prints."""
    with tempfile.TemporaryFile("w+") as log:
        started = subprocess.Popen(command(ranks, "train", *arguments), stdout=log, stderr=log)
        done = steps_done(run)
        while steps_done(run) == done:
            assert started.poll() is None, "the run ended before it was stopped"
            time.sleep(0.02)
        time.sleep(after)
        stop(started)
        stopped = time.monotonic()
        started.wait(timeout=60)
        while processes(run):
            time.sleep(0.02)
        # A process that ends may still lock the run when it has no command line any more.
        with open(run / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
        seconds = time.monotonic() - stopped
        log.seek(0)
        return seconds, log.read()


def kill_a_rank(run: Path):
    def kill(_: subprocess.Popen) -> None:
        ranks = processes(run)
        if ranks:  # else the run has just ended
            os.kill(random.choice(ranks), signal.SIGKILL)

    return kill


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="lapwing-ranks-"))
    for name, arguments in (("small", SMALL), ("rich", RICH)):
        for ranks in (1, 2, 3, 4):
            train(ranks, *arguments, "--out", home / f"{name}-{ranks}")
            assert left(home / f"{name}-{ranks}") == left(home / f"{name}-1"), f"{name}: {ranks} ranks"
        print(f"{name}: 1, 2, 3 and 4 ranks leave the same bytes")

    train(1, *LONG, "--out", home / "long")
    wanted = left(home / "long")

    run = home / "stopped"
    terminate = subprocess.Popen.terminate
    # Open MPI kills the ranks after so many seconds, which must suffice for a step.
    os.environ["OMPI_MCA_odls_base_sigkill_timeout"] = "5"
    seconds, text = interrupted(3, run, *LONG, "--out", run, after=1, stop=terminate)
    assert text.count("and saved; resume with") == 1, text
    del os.environ["OMPI_MCA_odls_base_sigkill_timeout"]
    train(2, "--resume", run)
    assert left(run) == wanted
    print(f"SIGTERM: saved once, ended after {seconds:.1f} s; resumed from 3 ranks with 2, and ended with the same bytes")

    longest, random_numbers = 0.0, random.Random(1)
    for number in range(KILLS):
        run, ranks = home / f"killed-{number}", random_numbers.choice([2, 3, 4])
        after = random_numbers.uniform(0, 2)
        seconds, text = interrupted(ranks, run, *LONG, "--out", run, after=after, stop=kill_a_rank(run))
        assert seconds < PATIENCE, f"{seconds} s: {text}"
        longest = max(longest, seconds)
        train(random_numbers.choice([1, 2, 3]), "--resume", run)
        assert left(run) == wanted, f"kill {number} of {ranks} ranks after {after:.2f} s"
    print(f"{KILLS} runs lost a rank: ended within {longest:.1f} s, resumed and ended with the same bytes")

    two = [MPIRUN, "-n", "1", LAPWING, "train", "--out", str(home / "a"), ":", "-n", "1", LAPWING, "train", "--steps", "3"]
    refused("has other arguments than rank 0", *two)
    refused("only `lapwing train` is one command on several", *command(2, "eval", run))
    refused("this learner trains in one process", *command(2, "train", "frozen-lake-dqn", "--out", home / "dqn"))
    refused("train.lr", *command(2, "train", "--set", "train.lr=fast"))
    for folder in ("a", "dqn"):
        assert not (home / folder).exists(), "a refused run leaves no directory"
    subprocess.run(["rm", "-r", home], check=True)


main()
