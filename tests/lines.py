#!/usr/bin/env python3
"""Prints the lines of product code of each package: `tests/lines.py [REPOSITORY]`.

Product code is what the program and its libraries are built from: Rust, WGSL, and the parts of the report's page. Blank lines and
comments count. Tests do not: folders `tests`, `benches`, `examples` and `fuzz`, files `tests.rs` and `*_tests.rs`, and
`#[cfg(test)]` items inside other files.
"""

import pathlib
import subprocess
import sys

KINDS = {".rs", ".wgsl", ".js", ".css", ".html", ".jinja"}
NOT_PRODUCT = {"tests", "benches", "examples", "experiments", "fuzz", "docs", "fixtures"}


def is_product(path: pathlib.PurePath) -> bool:
    is_test = path.name in ("tests.rs", "testing.rs") or path.stem.endswith("_tests")
    return path.suffix in KINDS and not is_test and not NOT_PRODUCT & set(path.parts)


def without_tests(lines: list[str]) -> int:
    """The number of lines without `#[cfg(test)]` items, which end with a line that is indented as they begin."""
    count, at = 0, 0
    while at < len(lines):
        line = lines[at]
        if line.strip() != "#[cfg(test)]":
            count, at = count + 1, at + 1
            continue
        indent = line[: len(line) - len(line.lstrip())]
        at += 1
        while at < len(lines) and not lines[at].rstrip().endswith((";", "{")):
            at += 1
        if at < len(lines) and lines[at].rstrip().endswith("{"):
            while at < len(lines) and lines[at].rstrip() != indent + "}":
                at += 1
        at += 1
    return count


def package(path: pathlib.PurePath) -> str:
    parts = path.parts
    return "/".join(parts[:2]) if parts[0] == "train" else parts[0]


def main() -> None:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
    tracked = subprocess.check_output(["git", "-C", root, "ls-files"], text=True).splitlines()
    rust: dict[str, int] = {}
    other: dict[str, int] = {}
    for path in map(pathlib.PurePath, tracked):
        if is_product(path) and (root / path).is_file():
            lines = (root / path).read_text(encoding="utf-8").splitlines()
            counts = rust if path.suffix == ".rs" else other
            counts[package(path)] = counts.get(package(path), 0) + without_tests(lines)
    print(f"{'':12} {'Rust':>7} {'other':>7}")
    for name in sorted(rust | other):
        print(f"{name:12} {rust.get(name, 0):7,} {other.get(name, 0):7,}")
    print(f"{'all':12} {sum(rust.values()):7,} {sum(other.values()):7,}")


main()
