#!/usr/bin/env python3
"""Loads a report in a real browser, headless, from disk, and checks its content.

Without --report it makes two short runs first, and puts a reply that would break a careless page into one of them. It then
steps through an episode by the keyboard, and fails if the console has an error, if anything but the file was asked for, if
something has no name that a screen reader could tell, or if something is wider than a phone. Pictures of it are left in
--pictures. Needs nothing but Python and Debian's chromium, which is installed if it is missing.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from browser import SKIPPED, Chromium, Missing, ScriptError, check, finish

HOSTILE = 'right</script><img src=x onerror="window.broken=1"><!-- \u2028 \x00 <script>window.broken=1</script>'


def make_reports(lapwing, home):
    """A report of one run with a hostile reply, and one of two seeds beside another config."""
    small = ["--steps", "4", "--set", "eval.every=2", "--set", "eval.episodes=6", "--set", "train.groups=2"]
    for name, more in {"one": [], "two": ["--seed", "2"], "other": ["--set", "train.lr=0.002"]}.items():
        command = [lapwing, "train", "frozen-lake", *small, *more, "--out", str(home / name)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    episodes = home / "one" / "episodes.jsonl"
    lines = episodes.read_text().splitlines()
    first = json.loads(lines[0])
    for turn in first["turns"]:
        turn["reply"] = HOSTILE
    first["turns"][0]["action"] = HOSTILE
    lines[0] = json.dumps(first)
    episodes.write_text("\n".join(lines) + "\n")
    reports = []
    for name, runs in {"one": ["one"], "several": ["one", "two", "other"]}.items():
        out = home / f"{name}.html"
        subprocess.run([lapwing, "report", *[str(home / run) for run in runs], "--out", str(out)], check=True)
        reports.append(out)
    return reports


def look_at(browser, page, pictures):
    name = page.stem
    print(f"{page.name}, {page.stat().st_size / 1000:.0f} kB")
    for scheme in ["light", "dark"]:
        browser.load(page.as_uri(), 1280, 900, scheme)
        check(f"{name}: {scheme} colours are those asked for",
              browser.eval("document.documentElement.classList.contains('dark')") == (scheme == "dark"))
        browser.picture(pictures / f"{name}-{scheme}.png")
    check(f"{name}: charts are drawn", browser.eval("document.querySelectorAll('.chart path.line').length") > 0)
    check(f"{name}: the switch turns the colours", not browser.eval(
        "document.getElementById('theme').click(), document.documentElement.classList.contains('dark')"))
    check(f"{name}: no reply became markup", browser.eval("window.broken === undefined && !document.querySelector('img')"))

    # The keyboard, with the focus nowhere, then on the replay itself.
    replays = browser.eval("[...document.querySelectorAll('.replay')].map(e => e.id)")
    check(f"{name}: there are replays", replays)
    for replay in replays:
        at = f"document.querySelector('#{replay} .where').textContent"
        live = f"document.querySelector('#{replay} .live').textContent"
        browser.eval(f"document.activeElement.blur(), document.getElementById('{replay}').scrollIntoView({{block: 'center', behavior: 'instant'}})")
        before = browser.eval(at), browser.eval(live)
        browser.key("ArrowRight")
        after = browser.eval(at), browser.eval(live)
        check(f"{replay}: an arrow key steps on", before[0].startswith("turn 1 of") and after[0] != before[0], (before, after))
        check(f"{replay}: the step is told to screen readers", after[1] != before[1], after[1])
        browser.key("ArrowLeft")
        check(f"{replay}: and back", browser.eval(at) == before[0], browser.eval(at))
        browser.eval(f"document.getElementById('{replay}').focus()")
        browser.key("End")
        check(f"{replay}: End goes to the end", browser.eval(at).startswith("after "), browser.eval(at))
        browser.key("Home")
        browser.eval(f"document.querySelector('#{replay} .turns button').focus()")
        browser.key("Tab")
        browser.key("Enter")
        check(f"{replay}: a turn is chosen with Tab and Enter", browser.eval(at).startswith("turn 2 of"), browser.eval(at))
        check(f"{replay}: the focus stays and is visible", browser.eval(
            "document.activeElement.matches('.turns button:focus-visible') && getComputedStyle(document.activeElement).outlineStyle !== 'none'"))
    browser.eval("document.querySelector('.chart svg').focus()")
    browser.key("ArrowRight")
    check(f"{name}: a chart is read with arrow keys", "step" in browser.eval("document.querySelector('figure .live').textContent"))

    nameless = browser.nameless()
    check(f"{name}: everything has a name", not nameless, nameless)

    for width in [320, 375]:
        browser.load(page.as_uri(), width, 800, "light")
        wider = browser.wider(width)
        check(f"{name}: nothing is wider than {width}", wider == [], wider)
        nav = browser.eval("document.querySelector('.top nav').clientWidth")
        check(f"{name}: the sections can be reached at {width}", nav > 100, nav)
        steps = browser.eval("[...document.querySelectorAll('.replay')].map(one => (one.querySelector('.turns').scrollIntoView("
                             "{block: 'end', behavior: 'instant'}), one.querySelector('.steps').getBoundingClientRect().top))")
        check(f"{name}: the step buttons stay in reach at {width}", all(0 <= top < 800 for top in steps), steps)
    browser.picture(pictures / f"{name}-phone.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapwing", default="target/debug/lapwing", help="the program that makes runs and reports")
    parser.add_argument("--report", type=Path, action="append", help="look at this report instead; may be repeated")
    parser.add_argument("--pictures", type=Path, default=Path(tempfile.gettempdir()) / "lapwing-report", help="where pictures go")
    arguments = parser.parse_args()
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home:
        reports = arguments.report or make_reports(str(Path(arguments.lapwing).resolve()), Path(home))
        try:
            browser = Chromium(Path(home))
        except Missing as error:
            print(f"SKIPPED: {error}")
            sys.exit(SKIPPED)
        try:
            for page in reports:
                try:
                    look_at(browser, page.resolve(), arguments.pictures)
                except ScriptError as error:
                    check(f"{page.name} can be asked", False, error)
            check("no error or warning in the console", browser.complaints() == [], browser.complaints())
            ours = {page.resolve().as_uri() for page in reports}
            others = [url for url in browser.requests() if url not in ours]
            check("nothing but the file was asked for", len(browser.requests()) > 0 and others == [], others)
        finally:
            browser.close()
    print(f"pictures are in {arguments.pictures}")
    sys.exit(finish())


main()
