#!/usr/bin/env python3
"""Prints a table of every kernel that AMD GPUs run, as Mesa's Radeon driver compiles it. Needs no such GPU.

    tests/compilers/gpus.py FOLDER             a line for each group of kernels, compared with the record, gpus.txt
    tests/compilers/gpus.py --all FOLDER       also a line for each kernel
    tests/compilers/gpus.py --record FOLDER    writes the part of the record for this version of Mesa

FOLDER has the SPIR-V files of the example `translations`. Fails if a group spills or uses scratch memory and did neither in the
record, or if the share of multiply-adds in its hot loops or blocks fell. Exits with 77 if a part is missing, and names it.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

RECORD = pathlib.Path(__file__).with_suffix(".txt")
# Each card with its names in old and new versions of Mesa.
CARDS = {"rdna2": ["navi21"], "rdna3": ["gfx1100", "navi31"], "gcn5": ["vega10"]}
COLUMNS = ["registers", "spilled", "scratch", "waves", "share", "block"]
FOR_PROCESSORS = ["attention_lanes", "matmul_lanes", "matmul_rows"]
# A group is a shader and an entry point, with these constants.
GROUPING = re.compile(r"\.((?:HEAD_SIZE|LAYOUT|WIDE|ROWS)-\d+)(?=\.|$)")
# Instructions that only steer the ones around them.
HINT = re.compile(r"s_(nop|clause|delay_alu|wait\w*|code_end|(set_)?inst_prefetch\w*)\b")
MULTIPLY_ADD = re.compile(r"v_((dual_|pk_)?(fma|mad|mac)\w*_f(16|32)|dot\d|s?wmma)")


def is_chosen(name):
    """Whether a GPU with immediates and subgroups runs this kernel. The others are for browsers and for processors."""
    shader, *rest = name.split(".")
    # On GPUs a block of keys has 32 rows.
    if "sum_items" in rest and "ROWS-32" not in rest:
        return False
    for_processors = shader.endswith("_texture") or shader in FOR_PROCESSORS
    return not for_processors and not {"uniform", "group", "GROUP-8"} & set(rest)


def hottest(listing):
    """Returns the instructions of the hot loop and its multiply-adds, or None without a loop, and those of the hot block. Among the
    loops that contain no other, the hot loop is the longest of those with the most multiply-adds. A loop reaches from a label to
    the last branch back to it, a block from a label, branch or barrier to the next."""
    labels, loops, code, cuts = {}, {}, [], [0]
    for line in listing:
        if label := re.match(r"(BB\d+):", line):
            labels[label[1]] = len(code)
            cuts.append(len(code))
            continue
        # RDNA 3 has instructions of two operations, which count as two.
        for operation in map(str.strip, line.split(";")[0].split("::")):
            if operation and not HINT.match(operation):
                code.append(bool(MULTIPLY_ADD.match(operation)))
            if re.match(r"s_(c?branch|barrier)", operation):
                cuts.append(len(code))
            target = re.match(r"s_c?branch\w* (BB\d+)", operation)
            if target and target[1] in labels:
                loops[labels[target[1]]] = len(code)
    inner = [code[start:end] for start, end in loops.items() if not any(start < other < end for other in loops)]
    blocks = [code[start:end] for start, end in zip(cuts, [*cuts[1:], len(code)])]
    return tuple(max(((len(part), sum(part)) for part in parts), key=lambda part: part[::-1], default=None) for parts in (inner, blocks))


def kernel(block):
    """Returns the name and the numbers of a kernel from the output of radv.c."""
    head, *listing = block.splitlines()
    name, *pairs = head.split()
    of = {key: int(value) for key, value in (pair.split("=") for pair in pairs)}
    loop, block = hottest(listing)
    numbers = {"registers": of["vgprs"], "spilled": of["spilled_vgprs"] + of["spilled_sgprs"], "scratch": of["scratch_size"],
               "waves": of["subgroups_per_simd"], "share": 100 * loop[1] // loop[0] if loop else "-",
               "block": 100 * block[1] // max(block[0], 1) if block[1] else "-",
               "loop": loop[0] if loop else "-", "subgroup": of["subgroup"], "shared": of["lds_size"],
               "instructions": of["instructions"], "latency": of["latency"], "cycles": of["inverse_throughput"]}
    return name.removesuffix(".spv"), numbers


def compile_for(names, program, files):
    """Compiles for a card. Returns the version of Mesa, and the kernels."""
    def run(name, files):
        env = os.environ | {"RADV_FORCE_FAMILY": name, "MESA_SHADER_CACHE_DISABLE": "true"}
        return subprocess.run([program, *files], env=env, capture_output=True, text=True)

    known = next((name for name in names if run(name, []).returncode == 0), None)
    if known is None:
        skip(f"this Vulkan driver makes none of {names}: {run(names[0], []).stderr}")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = list(pool.map(lambda at: run(known, files[at : at + 16]), range(0, len(files), 16)))
    if failed := [part.stderr for part in parts if part.returncode != 0]:
        sys.exit(f"{known}: {failed[0]}")
    blocks = [block for part in parts for block in re.split(r"^kernel ", part.stdout, flags=re.MULTILINE)[1:]]
    return parts[0].stdout.split()[1], dict(map(kernel, blocks))


def grouped(kernels, columns):
    """Returns the worst numbers of each group."""
    groups = {}
    for name, numbers in kernels.items():
        groups.setdefault(".".join(name.split(".")[:2] + GROUPING.findall(name)), []).append(numbers)

    def worst(members, column):
        values = [numbers[column] for numbers in members if numbers[column] != "-"]
        return (min if column in ("waves", "share", "block") else max)(values, default="-")

    return {group: [worst(members, column) for column in columns] for group, members in groups.items()}


def table(head, rows):
    rows = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(" ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows) + "\n"


def worse(head, now, recorded):
    """Yields what is worse than the record, and what the record lacks."""
    for group in sorted(now.keys() ^ recorded.keys()):
        yield f"{group}: {'not in the record' if group in now else 'no longer a group, but in the record'}"
    for group in sorted(now.keys() & recorded.keys()):
        for column, new, old in zip(head, map(str, now[group]), recorded[group]):
            spills = column.endswith(("spilled", "scratch")) and old == "0" != new
            if spills or (column.endswith(("share", "block")) and old != "-" and (new == "-" or int(new) < int(old))):
                yield f"{group}: {column} {new}, recorded {old}"


def skip(reason):
    print(f"SKIPPED: {reason}", file=sys.stderr)
    sys.exit(77)


def main():
    *options, folder = sys.argv[1:] or [""]
    files = sorted(path for path in pathlib.Path(folder).glob("*.spv") if is_chosen(path.stem))
    if not files or set(options) - {"--all", "--record"}:
        sys.exit(__doc__)
    chosen = os.environ.get("VK_DRIVER_FILES", "")
    manifests = [chosen, *map(str, pathlib.Path("/usr/share/vulkan/icd.d").glob("radeon_icd*.json"))]
    manifest = next((path for path in manifests if "radeon" in path), None)
    if manifest is None:
        skip("Mesa's Radeon driver is not installed (Debian: mesa-vulkan-drivers)")
    # Vulkan loaders before 1.3.207 read the second.
    os.environ |= {"VK_DRIVER_FILES": manifest, "VK_ICD_FILENAMES": manifest}
    head, now, version = [], {}, ""
    with tempfile.TemporaryDirectory() as temporary:
        build = ["cc", "-O1", "-o", f"{temporary}/radv", RECORD.with_name("radv.c"), "-lvulkan"]
        if subprocess.run(build).returncode != 0:
            skip("radv.c does not compile (Debian: gcc libc6-dev libvulkan-dev)")
        for card, names in CARDS.items():
            version, kernels = compile_for(names, build[3], files)
            if "--all" in options:
                print(table([card, *next(iter(kernels.values()))], [[name, *of.values()] for name, of in kernels.items()]))
            head += [f"{card}:{column}" for column in COLUMNS]
            for group, numbers in grouped(kernels, COLUMNS).items():
                now[group] = now.get(group, []) + numbers
    print(text := table([f"Mesa-{version}", *head], [[group, *numbers] for group, numbers in now.items()]))
    parts = RECORD.read_text().split("\n\n") if RECORD.exists() else []
    record = {part.split()[0]: part for part in parts}
    if "--record" in options:
        record[f"Mesa-{version}"] = text
        RECORD.write_text("\n".join(part.rstrip("\n") + "\n" for _, part in sorted(record.items())))
        return
    if f"Mesa-{version}" not in record:
        skip(f"{RECORD.name} has no part for Mesa {version} to compare with")
    recorded = {line.split()[0]: line.split()[1:] for line in record[f"Mesa-{version}"].splitlines()[1:]}
    found = list(worse(head, now, recorded))
    print(*found, f"{len(files)} kernels for {len(CARDS)} cards, {len(found)} differences from {RECORD.name}", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
