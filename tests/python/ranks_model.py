#!/usr/bin/env python3
"""Measures how the ranks of a run exchange gradients, and predicts the cost of a step on up to a thousand ranks.

    python3 -m venv .venv && .venv/bin/pip install mpi4py numpy
    mpirun --oversubscribe -n 4 .venv/bin/python tests/python/ranks_model.py           # measures, then fits
    .venv/bin/python tests/python/ranks_model.py [--slower 4] [--latency 50e-6] ...    # predicts, from the fit below

If mpirun is Open MPI's and the import fails, set MPI4PY_MPIABI=openmpi. docs/clusters.md has the results.
"""

import argparse
import time
from math import ceil, log2

import numpy as np

PART = 64 << 20  # bytes of a message, as in train/cli/src/mpi.rs
PATIENCE, PAUSE = 50, 100e-6  # polls before the first pause, and the pause in seconds, as there
SIZES = [0.25, 1, 4, 16, 35, 140]  # MB
# Seconds of a message (an assumption for Ethernet; in shared memory we measured 1 to 20 us), and to copy, upload and add a byte
# of a gradient (lapwing on llvmpipe, 2026-11-24; numpy, as measured here, takes a tenth).
LATENCY, ADD = 50e-6, 1.0e-9

# ------------------------------------------------------------------------------------------------------------ measuring


def wait(request):
    polls = 0
    while not request.Test():
        polls += 1
        time.sleep(0 if polls < PATIENCE else PAUSE)


def parts(array):
    view = array.view(np.uint8)
    return [view[i : i + PART] for i in range(0, len(view), PART)]


def ours(comm, own, total, buffer):
    """Sums in the order of the ranks on rank 0 and broadcasts the sum. Returns rank 0's seconds of each part."""
    started = time.perf_counter()
    adding = 0.0
    length = np.array([own.nbytes])
    if comm.rank == 0:
        total[:] = own
        for rank in range(1, comm.size):
            for part in parts(length) + parts(buffer):
                wait(comm.Irecv(part, rank))
            before = time.perf_counter()
            total += buffer
            adding += time.perf_counter() - before
    else:
        for part in parts(length) + parts(own):
            wait(comm.Isend(part, 0))
    gathered = time.perf_counter()
    for part in parts(length) + parts(total):
        wait(comm.Ibcast(part, 0))
    ended = time.perf_counter()
    return gathered - started - adding, adding, ended - gathered


def measure(world, repetitions):
    from mpi4py import MPI

    show = print if world.rank == 0 else lambda *_: None
    show(MPI.Get_library_version().split(",")[0])
    show("ranks     MB   ours ms: receive    add  broadcast    all (+spread)   Allreduce (+spread)   ratio")
    rows = []
    for size in range(2, world.size + 1):
        comm = world.Split(world.rank < size)
        for mb in SIZES if world.rank < size else []:
            own = np.random.default_rng(world.rank).standard_normal(int(mb * 250_000), dtype=np.float32)
            total, buffer, reduced = np.empty_like(own), np.empty_like(own), np.empty_like(own)
            times, all_reduce = [], []
            for _ in range(repetitions + 1):
                comm.Barrier()
                times.append(ours(comm, own, total, buffer))
                comm.Barrier()
                before = time.perf_counter()
                comm.Allreduce(own, reduced)
                all_reduce.append(time.perf_counter() - before)
            assert np.allclose(total, reduced, atol=1e-4)
            times, all_reduce = np.array(times[1:]) * 1e3, np.array(all_reduce[1:]) * 1e3  # the first run allocates
            best, whole = times.min(0), times.sum(1)
            rows.append((size, own.nbytes, *best / 1e3))
            show(f"{size:5} {mb:6} {best[0]:18.2f} {best[1]:6.2f} {best[2]:10.2f} {whole.min():8.2f} (+{np.ptp(whole):7.2f})"
                 f" {all_reduce.min():9.2f} (+{np.ptp(all_reduce):7.2f}) {whole.min() / all_reduce.min():9.1f}")
        world.Barrier()
    if world.rank == 0 and rows:
        size, nbytes, receive, add, broadcast = np.array(rows).T
        # Two messages for a gradient. Open MPI sends a broadcast to up to 4 ranks to one after the other.
        each = [("receive", receive / (size - 1), 2), ("add", add / (size - 1), 1), ("broadcast", broadcast / (size - 1), 2)]
        for name, seconds, messages in each:
            slope, start = np.polyfit(nbytes, seconds, 1, w=1 / seconds)
            if start < 0:
                slope, start = np.mean(seconds / nbytes), 0
            error = np.abs((start + slope * nbytes) / seconds - 1)
            print(f"{name:9}: {start / messages * 1e6:4.0f} us a message, {1e-9 / slope:5.2f} GB/s = {slope * 1e9:.2f} ns a byte;"
                  f" errors of the fit: median {np.median(error):.0%}, at most {error.max():.0%}")


# ----------------------------------------------------------------------------------------------------------- predicting

# Layers, width, all query and all key heads, width of the MLP (config.json of Qwen2.5), and predicted seconds on an H100:
# a decoded token of 1, 25 and 100 sequences, a prompt of 216 tokens, an update of 536 tokens (tests/compilers/predict.py,
# which has no measurements of these models).
MODELS = {
    "0.5B": (24, 896, 896, 128, 4864, (0.0061, 0.0209, 0.0232), 0.0240, 0.0697),
    "3B": (36, 2048, 2048, 256, 11008, (0.0185, 0.0727, 0.0802), 0.0994, 0.4297),
    "7B": (28, 3584, 3584, 512, 18944, (0.0245, 0.1040, 0.1251), 0.1939, 0.8428),
}
RANK = 16
# A step of frozen-lake-paper: 100 episodes of 8 turns, a prompt of 216 tokens, a reply of 128 (assumed), 25 episodes in
# the update: 4 batches of up to 8192 tokens.
EPISODES, TURNS, PROMPT, REPLY, BATCHES, BATCH = 100, 8, 216, 128, 4, 8192
# Bytes: a seat and an episode in a message, a batch (all measured with the built-in model and scaled by tokens).
SEAT, EPISODE, BATCH_BYTES = 29, 21e3, 300e3
HOST = 12e-9  # rank 0's seconds for each byte of an episode: reading, metrics, packing (measured)
SEGMENT = 32 << 10  # of Open MPI's broadcast to more than 4 ranks, a chain (coll/libnbc)
RANKS = [1, 2, 4, 10, 30, 100, 300, 1000]


def parameters(layers, width, queries, keys, mlp):
    shapes = [(queries, width), (keys, width), (keys, width), (width, queries), (mlp, width), (mlp, width), (width, mlp)]
    return layers * RANK * sum(n + k for n, k in shapes)


class Step:
    """A training step of one model on some ranks, with links of `speed` bytes/s."""

    def __init__(self, model, ranks, gbit, weak, options, way="today"):
        *shape, decode, prompt, update = MODELS[model]
        self.n, self.way, self.latency, self.speed = ranks, way, options.latency, gbit * 1e9 / 8
        self.episodes = EPISODES * (ranks if weak else 1)
        larger = BATCHES if "large" in way else 1  # batches of all a rank's tokens
        self.batches = BATCHES // larger * (ranks if weak else 1)
        self.size = 4 * parameters(*shape) // (2 if "half" in way else 1)
        self.add = 0 if "overlap" in way else options.add
        each = self.episodes / ranks
        token = np.interp(each, [1, 25, 100], decode)
        self.play = options.slower * TURNS * (prompt + REPLY * token)
        # The reference costs half as much again.
        self.batch = options.slower * 1.5 * update * BATCH * larger / 536
        self.batch_bytes = BATCH_BYTES * larger
        self.host = HOST * EPISODE * self.episodes

    def message(self, size):
        return self.latency + size / self.speed

    def broadcast(self, size):
        n, hops = self.n, ceil(log2(self.n)) if self.n > 1 else 0
        length = min(hops, self.n - 1) * self.latency
        if n <= 4:
            return length + (n - 1) * self.message(size)
        if size < 65536:
            return length + hops * self.message(size)
        return length + self.message(size) + (n - 2) * self.message(SEGMENT)

    def gradient(self):
        return 2 * self.latency + self.size * (1 / self.speed + self.add)

    def formula(self):
        """Seconds of computing on one rank, and all seconds of the step."""
        n, empty = self.n, 2 * self.latency
        rounds = ceil(self.batches / n)
        compute = self.play + self.host + rounds * self.batch
        if n == 1:
            return compute, compute
        share = EPISODE * self.episodes / n
        wait = self.broadcast(SEAT * self.episodes) + (n - 1) * (empty + share / self.speed)
        wait += self.broadcast(2) + (n - 1) * empty  # states
        left = self.batches
        for _ in range(rounds if "tree" not in self.way and "slices" not in self.way else 0):
            used = min(n, left)
            left -= used
            wait += self.broadcast((used - 1) * self.batch_bytes)
            wait += (used - 1) * self.gradient() + (n - used) * empty
        if "tree" in self.way or "slices" in self.way:  # each rank adds neighbouring batches, in a tree fixed by their numbers
            wait += (self.batches - rounds) * self.message(self.batch_bytes) + rounds * self.size * self.add
        if "slices" in self.way:
            wait += 2 * (n - 1) * self.message(self.size / n) + self.size * self.add
        elif "tree" in self.way:
            wait += ceil(log2(min(n, self.batches))) * self.gradient()
        if "slices" not in self.way:
            wait += self.broadcast(self.size)
        return compute, compute + wait

    def simulation(self, spread=0.0, seed=1):
        """The same from one event to the next: who waits for whom. `spread`: of the computing times, relative."""
        n, random = self.n, np.random.default_rng(seed)
        slow = lambda seconds: seconds * (1 + spread * random.standard_normal(n)).clip(0.2)

        def broadcast(now, size):
            """When each rank has it."""
            hops = min(ceil(log2(n)), n - 1)
            now += hops * self.latency
            if n <= 4:
                return now + np.arange(n) * self.message(size)
            if size < 65536:
                return now + np.ceil(np.log2(np.arange(n) + 1)) * self.message(size)
            segments = np.full(ceil(size / SEGMENT), SEGMENT / self.speed)
            segments[-1] = (size - SEGMENT * (len(segments) - 1)) / self.speed
            sent = np.cumsum(segments)
            there, arrives = now + self.latency + sent, [now, now + self.latency + sent[-1]]
            for _ in range(2, n):  # a segment goes on when it is there and the one before it has gone
                there = np.maximum.accumulate(there + self.latency - (sent - segments)) + sent
                arrives.append(there[-1])
            return np.array(arrives)

        def gather(now, ready, size, add):
            for rank in range(1, n):
                now = max(now, ready[rank]) + 2 * self.latency + size[rank] / self.speed + size[rank] * add
            return now

        ready = broadcast(0.0, SEAT * self.episodes) + slow(self.play)
        share = np.full(n, EPISODE * self.episodes / n)
        now = gather(ready[0], ready, share, 0) + self.host
        left = self.batches
        while left > 0:
            used = np.arange(n) < left
            starts = broadcast(now, (used.sum() - 1) * self.batch_bytes)
            starts[0] = starts[min(1, n - 1)]  # rank 0 computes when its broadcast is done
            ready = starts + used * slow(self.batch)
            now = gather(ready[0], ready, used * self.size, self.add)
            left -= n
        now = broadcast(now, self.size).max()
        now = broadcast(now, 2).max()
        return now + (n - 1) * 2 * self.latency


def share(times):
    compute, total = times
    return f"{100 * (1 - compute / total):.1f}"


def predict(options):
    for name, (*shape, _, _, _) in MODELS.items():
        count, one = parameters(*shape), Step(name, 1, 1, True, options)
        print(f"\n{name}: {count:,} parameters of the adapter, {4 * count / 1e6:.1f} MB; a step on one rank computes for "
              f"{one.formula()[0]:.0f} s: {one.play:.0f} s of play, {BATCHES} batches of {one.batch:.1f} s")
        print("              in and out of rank 0 |  % of the time in communication at 1, 10, 100 Gbit/s (simulated at 10)")
        print("ranks    MB a step      messages |  100 episodes for each rank          100 episodes in all; times as fast")
        for n in RANKS[1:]:
            cells = []
            for weak in (True, False):
                steps = [Step(name, n, gbit, weak, options) for gbit in (1, 10, 100)]
                simulated = (steps[1].formula()[0], steps[1].simulation())
                cells.append(" ".join(f"{share(step.formula()):>6}" for step in steps) + f" ({share(simulated):>4})")
                speedups = [one.formula()[0] / step.formula()[1] for step in steps]
            step = Step(name, n, 10, True, options)
            rounds = step.batches // n
            copies = n - 1 if n <= 4 else 1  # of the weights that rank 0 sends itself
            megabytes = (rounds * (n - 1) * (step.size + BATCH_BYTES) + copies * step.size + (n - 1) * EPISODES * EPISODE) / 1e6
            messages = 2 * (n - 1) * (rounds + 2) + 2 * (rounds + 3)
            print(f"{n:5} {megabytes:12,.0f} {messages:13,} |  {'   '.join(cells)}  ", " ".join(f"{s:.1f}" for s in speedups))
    print("\nRanks from which communication takes 10 % and 50 %, with 100 episodes for each rank, at 1, 10, 100 Gbit/s")
    for name in MODELS:
        of = lambda n, gbit: float(share(Step(name, n, gbit, True, options).formula()))
        first = lambda percent, gbit: next((n for n in range(2, 3000) if of(n, gbit) >= percent), "more than 3000")
        print(f"{name:5}", *(f"{first(10, gbit)} and {first(50, gbit)};" for gbit in (1, 10, 100)))
    name, ways = "3B", ["today", "large", "half", "overlap", "tree", "slices", "slices+half"]
    print(f"\n{name}, 100 episodes for each rank, 10 Gbit/s: % of the time in communication, by what is changed")
    print("ranks " + " ".join(f"{way:>11}" for way in ways) + "   rank 0's reading and packing, s")
    for n in RANKS[1:]:
        steps = [Step(name, n, 10, True, options, way) for way in ways]
        print(f"{n:5} " + " ".join(f"{share(step.formula()):>11}" for step in steps) + f"   {steps[0].host:.1f}")
    print(f"\n{name}, 10 Gbit/s: simulated time, as % more than the formula, if computing times spread by 0, 10, 20 %")
    for n in RANKS[1:]:
        step = Step(name, n, 10, True, options)
        times = [step.simulation(spread) / step.formula()[1] - 1 for spread in (0, 0.1, 0.2)]
        print(f"{n:5} " + " ".join(f"{100 * more:8.1f}" for more in times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds of a message")
    parser.add_argument("--add", type=float, default=ADD, help="seconds to add a byte of a gradient")
    parser.add_argument("--slower", type=float, default=1, help="computing times, as a multiple of those of an H100")
    options = parser.parse_args()
    try:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
    except (ImportError, RuntimeError):
        world = None
    if world is not None and world.size > 1:
        measure(world, options.repetitions)
    else:
        predict(options)


main()
