#!/usr/bin/env python3
"""Loads a report in a real browser, headless, from disk, and checks its content.

Without --report it makes two short runs first, and puts a reply that would break a careless page into one of them. It then
steps through an episode by the keyboard, and fails if the console has an error, if anything but the file was asked for, if
something has no name that a screen reader could tell, or if something is wider than a phone. Pictures of it are left in
--pictures. Needs nothing but Python and Debian's chromium, which is installed if it is missing.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTILE = 'right</script><img src=x onerror="window.broken=1"><!-- \u2028 \x00 <script>window.broken=1</script>'


class ScriptError(Exception):
    """An error in the page."""


class Browser:
    """A page of a headless chromium, driven by its DevTools protocol over a pair of pipes."""

    def __init__(self, profile):
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        # The browser reads commands from 3 and writes answers to 4.
        def wire():
            low = [os.dup(theirs_in), os.dup(theirs_out)]
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(low)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--no-first-run", f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=wire, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self.rest, self.number, self.events, self.session = b"", 0, [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"]:
            self.ask(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.rest:
            part = self.reader.read(1 << 16)
            if not part:
                sys.exit("the browser ended by itself")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def ask(self, method, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        self.writer.write(json.dumps(command).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    sys.exit(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.message())

    def eval(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ScriptError(f"{expression}: {answer['exceptionDetails']['exception']['description']}")
        return answer["result"].get("value")

    def key(self, name):
        for kind in ["keyDown", "keyUp"]:
            code = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}[name]
            text = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text)

    def load(self, page, width, height, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.ask("Page.navigate", url=page.as_uri())
        self.wait("Page.loadEventFired")
        # Charts are drawn once their size is known.
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, path, whole=True):
        parameters = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
            parameters["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **parameters)["data"]))

    def complaints(self):
        """Returns the errors of the page and its network requests."""
        found = []
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(f"exception: {told['exceptionDetails']}")
            if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
                found.append(f"console: {told['args']}")
            if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {told['entry']['text']}")
        return found

    def requests(self):
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [told["request"]["url"] for told in sent]

    def close(self):
        self.ask("Browser.close")
        self.process.wait(20)


def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not found:
        subprocess.run(["apt-get", "install", "--yes", "--no-install-recommends", "chromium"], check=True)
        found = shutil.which("chromium")
    return found or sys.exit("wanted chromium on the path")


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


failures = []


def check(what, is_so, told=""):
    print(f"{'ok    ' if is_so else 'FAILED'} {what}{'' if is_so else f': {told}'}")
    if not is_so:
        failures.append(what)


# What reaches beyond the window, or beyond the frame that it stands in; tables scroll by themselves. The width is given, since
# a phone's window grows with its content.
WIDER = """[document.documentElement, ...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll *, svg *, .live')
    && e.getBoundingClientRect().right > Math.min(WIDTH, (e.closest('.card') || document.body).getBoundingClientRect().right) + 1
    || e.scrollWidth > WIDTH && e === document.documentElement)
    .map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 20)).slice(0, 5)"""


def look_at(browser, page, pictures):
    name = page.stem
    print(f"{page.name}, {page.stat().st_size / 1000:.0f} kB")
    for scheme in ["light", "dark"]:
        browser.load(page, 1280, 900, scheme)
        check(f"{name}: {scheme} colours are those asked for",
              browser.eval("document.documentElement.classList.contains('dark')") == (scheme == "dark"))
        browser.picture(pictures / f"{name}-{scheme}.png")
    check(f"{name}: charts are drawn", browser.eval("document.querySelectorAll('.chart path.line').length") > 0)
    check(f"{name}: the switch turns the colours", not browser.eval(
        "document.getElementById('theme').click(), document.documentElement.classList.contains('dark')"))
    check(f"{name}: no reply became markup", browser.eval("window.broken === undefined && !document.querySelector('img')"))

    # The keyboard, with the focus nowhere, then on the replay itself.
    for replay in browser.eval("[...document.querySelectorAll('.replay')].map(e => e.id)"):
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

    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    told = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
    nameless = [role for role, text in told if role in ("button", "link", "image", "img", "combobox", "region", "heading") and not text]
    check(f"{name}: everything has a name", len(told) > 50 and not nameless, nameless)

    for width in [320, 375]:
        browser.load(page, width, 800, "light")
        wider = browser.eval(WIDER.replace("WIDTH", str(width)))
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
        browser = Browser(Path(home) / "profile")
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
            time.sleep(0.2)
    print(f"pictures are in {arguments.pictures}")
    sys.exit(f"{len(failures)} failed" if failures else 0)


main()
