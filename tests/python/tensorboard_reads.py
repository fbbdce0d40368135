#!/usr/bin/env python3
"""Whether TensorBoard and trackio read what lapwing exports.

    python3 -m venv .venv && .venv/bin/pip install tensorboard "trackio[tensorboard]"
    .venv/bin/python tests/python/tensorboard_reads.py --lapwing target/debug/lapwing

Makes a short run with --tensorboard, resumes it, exports it, too, and compares every number that the readers find with
metrics.jsonl. Without trackio that part is left out, and said so.
"""

import argparse
import csv
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path


def single(number):
    """The same number in 32 bits, as an event file has it."""
    return struct.unpack("f", struct.pack("f", number))[0]


def tag(kind, name):
    for prefix, group in [("seconds_", "time/"), ("tokens_", "tokens/")]:
        if name.startswith(prefix):
            return group + name.removeprefix(prefix)
    if name in ("kl", "clip_fraction", "grad_norm", "loss", "lr", "first_ratio_error"):
        return "loss/" + name
    return {"step": "train/", "evaluation": "eval/"}[kind] + name


def expected(metrics):
    """By tag: the steps and values that metrics.jsonl has."""
    found = {}
    for line in metrics:
        for name, value in line.items():
            is_metric = name not in ("kind", "step", "time") and isinstance(value, (int, float))
            if line["kind"] in ("step", "evaluation") and is_metric:
                found.setdefault(tag(line["kind"], name), []).append((line["step"], single(value)))
        if line["kind"] == "warning":
            found.setdefault("warnings/" + line["check"], []).append((line["step"], single(line["value"])))
    evaluated = [line["step"] for line in metrics if line["kind"] == "evaluation"]
    [baselines] = [line for line in metrics if line["kind"] == "baselines"]
    levels = {"best_possible_return": baselines["best_possible"]}
    for player in ["random", "scripted"]:
        levels |= {f"{player}_{name}": baselines[player][name] for name in ["return_mean", "success_rate"]}
    for name, value in levels.items():
        found["baselines/" + name] = [(step, single(value)) for step in evaluated]
    return found


def with_tensorboard(folder, wanted):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    found = {name: [(e.step, e.value) for e in reader.Scalars(name)] for name in reader.Tags()["scalars"]}
    assert found == wanted, {name: (found.get(name), wanted.get(name)) for name in found.keys() | wanted.keys()
                             if found.get(name) != wanted.get(name)}
    print(f"TensorBoard: {len(found)} tags, {sum(map(len, found.values()))} numbers, all equal ({folder.name})")


def with_trackio(run, out, wanted, metrics):
    os.environ["TRACKIO_DIR"] = str(run / "trackio")
    try:
        import trackio
    except ImportError:
        print("trackio: not installed, left out")
        return
    from trackio.sqlite_storage import SQLiteStorage

    # Each into a project of its own, which must be new. Columns get short names there: return_mean is returnmean.
    trackio.import_csv(str(out / "steps.csv"), project="tables", name="steps")
    rows = SQLiteStorage.get_logs("tables", "steps")
    steps = [line for line in metrics if line["kind"] == "step"]
    assert [(row["step"], row["returnmean"]) for row in rows] == [(line["step"], line["return_mean"]) for line in steps], rows
    trackio.import_tf_events(str(run / "tensorboard"), project="events", name="run")
    rows = [row for name in SQLiteStorage.get_runs("events") for row in SQLiteStorage.get_logs("events", name)]
    for name, told in wanted.items():
        found = sorted((row["step"], row[name]) for row in rows if name in row)
        assert found == told, (name, found, told)
    print(f"trackio: {len(steps)} lines of steps.csv, and {len(wanted)} tags of the event files, all equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", default="target/debug/lapwing")
    lapwing = str(Path(parser.parse_args().lapwing).resolve())
    with tempfile.TemporaryDirectory() as home:
        run, out = Path(home) / "run", Path(home) / "out"

        def call(*arguments):
            subprocess.run([lapwing, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        small = ["--set", "eval.every=2", "--set", "eval.episodes=5"]
        call("train", "frozen-lake", *small, "--steps", 3, "--out", run, "--tensorboard")
        call("train", "--resume", run, "--steps", 5)
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        wanted = expected(metrics)
        # The files of the run, with each step once although it was resumed, and the exported files.
        with_tensorboard(run / "tensorboard", wanted)
        call("export", run, "--format", "tensorboard", "--out", out / "events")
        with_tensorboard(out / "events", wanted)
        call("export", run, "--format", "csv", "--out", out / "csv")
        for name, kind in [("steps", "step"), ("evaluations", "evaluation")]:
            with open(out / "csv" / f"{name}.csv", newline="") as file:
                rows = list(csv.DictReader(file))
            lines = [line for line in metrics if line["kind"] == kind]
            assert len(rows) == len(lines) > 0
            for row, line in zip(rows, lines):
                filled = {name: text for name, text in row.items() if text != ""}
                told = {name: value for name, value in line.items() if name != "kind"}
                assert filled.keys() == told.keys(), (filled, told)
                for name, text in filled.items():
                    assert text == told[name] or float(text) == told[name], (name, text, told[name])
        print("tables: every cell is that of metrics.jsonl")
        with_trackio(run, out / "csv", wanted, metrics)


if __name__ == "__main__":
    sys.exit(main())
