#!/usr/bin/env python3
"""Loads the browser version in real browsers, headless, and uses it as a visitor does.

Build the page first: `./web --build`. It is served from a free port, to Chromium with its software GPU, SwiftShader, and to
Firefox ESR with Mesa's, lavapipe. Both are installed with apt-get if they are missing. Fails if the console has an error or
warning, if anything but the files of the page is requested, or if a check below fails.
"""

import argparse
import functools
import http.server
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from browser import Chromium, Firefox, Missing, ScriptError, check, finish, skip

ROOT = Path(__file__).resolve().parents[2]
SOFTWARE_GPU = ["--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
WEBGPU = {"dom.webgpu.enabled": True, "gfx.webgpu.ignore-blocklist": True, "dom.webgpu.workers.enabled": True}

# Lets a test destroy the worker's device. Added to worker.js on its first line, on its way to the browser.
HOOK = b"""{ const request = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = async function (wanted) {
    const device = await request.call(this, wanted); new BroadcastChannel('test').onmessage = () => device.destroy(); return device;
}; } """.replace(b"\n", b"")

# Records the longest time between two frames of the page.
FRAMES = """(() => { window.longestFrame = 0; let last = performance.now(); const frame = now => {
    window.longestFrame = Math.max(window.longestFrame, now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame); })()"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/worker.js":
            return super().do_GET()
        body = HOOK + (Path(self.directory) / "worker.js").read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def text(selector):
    return f"document.querySelector({json.dumps(selector)})?.textContent"


def click(browser, selector):
    browser.eval(f"document.querySelector({json.dumps(selector)}).click()")


def fill(browser, selector, value):
    browser.eval(f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})"
                 f"(document.querySelector({json.dumps(selector)}))")


def open_page(browser, url, width=1280, scheme="light"):
    """Loads the page and waits until a run can be started. Returns how long that took."""
    browser.size(width, 900, scheme)
    began = time.monotonic()
    browser.load(url, width, 900, scheme)
    ready = browser.until(f"!document.getElementById('go').disabled || {text('#error')}", 120)
    seconds = time.monotonic() - began
    check("the page is ready to train", ready is True, browser.eval(f"{text('#device')} + {text('#error')}"))
    return f"{seconds:.2f} s"


def label(browser, wanted, patience=600):
    """Waits until the button has one of these names. Returns whether it has."""
    return browser.until(f"{json.dumps(wanted)}.includes({text('#go')})", patience)


def start(browser):
    device = browser.eval(text("#device"))
    check("the device has a name and is called software", browser.eval(text("#device strong")) and "software" in device, device)
    print(f"       {browser.eval(text('#device'))}")
    click(browser, "#theme")
    check("the switch turns the colours", browser.eval("document.documentElement.classList.contains('dark')"))
    click(browser, "#theme")
    if isinstance(browser, Chromium):
        nameless = browser.nameless()
        check("everything has a name", not nameless, nameless)


def self_test(browser):
    began = time.monotonic()
    click(browser, "#selftest-run")
    ended = browser.until(f"{text('#selftest-text .badge')} || {text('#error')}", 600)
    rows = browser.eval("[...document.querySelectorAll('#selftest-rows tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
    check("the first five steps are the native ones", ended == "passed" and len(rows) == 5, f"{browser.eval(text('#selftest-text'))} {rows}")
    print(f"       self-test: {time.monotonic() - began:.1f} s; {browser.eval(text('#selftest-text'))}")


def training(browser):
    fill(browser, "#steps", "3")
    browser.eval(FRAMES)
    began = time.monotonic()
    click(browser, "#go")
    check("the button stops a run", label(browser, ["Stop"]))
    check("training goes on", browser.until(f"Number({text('#status')}.match(/Step (\\d+)/)?.[1]) > 0 || {text('#error')}", 600) is True,
          browser.eval(text("#error")))
    click(browser, "#go")
    check("a stopped run can continue", label(browser, ["Continue"]), browser.eval(text("#go")))
    at = browser.eval(text("#status"))
    check("the status names the step", "stopped" in at and "of 3" in at, at)
    check("a stopped run can be downloaded", browser.until("document.querySelectorAll('#downloads a').length >= 3"))
    click(browser, "#go")
    check("it continues to the end", label(browser, ["Train again"]), browser.eval(text("#error")))
    check("the end is announced", "complete" in browser.eval(text("#announce")), browser.eval(text("#announce")))
    print(f"       3 steps: {time.monotonic() - began:.1f} s, longest frame {browser.eval('longestFrame'):.0f} ms")
    check("the charts are drawn", browser.until("document.querySelectorAll('#curves-now .chart path.line').length >= 2"))


def download(browser, home):
    """Clicks each link. Returns the files by name."""
    found = {}
    browser.until("document.querySelectorAll('#downloads a').length >= 3")
    for name in browser.eval("[...document.querySelectorAll('#downloads a')].map(a => a.download)"):
        path = home / "downloads" / name
        path.unlink(missing_ok=True)
        click(browser, f'#downloads a[download="{name}"]')
        limit = time.monotonic() + 30
        while not (path.exists() and path.stat().st_size and not [*path.parent.glob("*.part"), *path.parent.glob("*.crdownload")]):
            if time.monotonic() > limit:
                check(f"{name} can be downloaded", False, [one.name for one in path.parent.iterdir()])
                break
            time.sleep(0.05)
        else:
            found[name] = path
    return found


def downloads(browser, home):
    files = download(browser, home)
    wanted = {"adapter_config.json", "adapter_model.safetensors", "metrics.jsonl", "episodes.jsonl"}
    check("the downloads are there", wanted <= set(files), sorted(files))
    try:
        config = json.loads(files["adapter_config.json"].read_text())
        check("adapter_config.json is PEFT's", config["peft_type"] == "LORA" and config["r"] > 0, config)
        data = files["adapter_model.safetensors"].read_bytes()
        size = int.from_bytes(data[:8], "little")
        tensors = {name: one for name, one in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
        check("adapter_model.safetensors is whole", tensors and 8 + size + max(one["data_offsets"][1] for one in tensors.values()) == len(data), len(data))
        for name in ["metrics.jsonl", "episodes.jsonl"]:
            lines = [json.loads(line) for line in files[name].read_text().splitlines()]
            check(f"{name} has lines", len(lines) > 2 and all("kind" in line for line in lines), lines[:1])
    except (KeyError, ValueError) as error:
        check("the downloads can be read", False, repr(error))
    return files


def replay(browser):
    found = browser.until("document.querySelector('#report .replay')?.id")
    if not found:
        return check("the report has a replay", False)
    at = text(f"#{found} .where")
    browser.eval(f"document.getElementById('{found}').scrollIntoView({{ block: 'center', behavior: 'instant' }}), document.getElementById('{found}').focus()")
    before = browser.eval(at)
    browser.key("ArrowRight")
    after = browser.eval(at)
    browser.key("ArrowLeft")
    check("an arrow key steps through the replay, and back", after != before and browser.eval(at) == before, (before, after, browser.eval(at)))
    browser.key("End")
    check("End goes to the end", "after " in browser.eval(at), browser.eval(at))
    browser.key("Home")
    words = f"[...document.querySelectorAll('#{found} .words ol')].map(e => e.getAttribute('aria-label'))"
    check("it has the next word of both models", browser.until(f"{words}.length === 2"), browser.eval(words))
    browser.eval("document.activeElement.blur()")


def play(browser):
    for preset in browser.eval("[...document.getElementById('play-preset').options].map(option => option.value)"):
        fill(browser, "#play-preset", preset)
        began = time.monotonic()
        click(browser, "#play-new")
        check(f"{preset}: a game starts", browser.until(f"{text('#game .numbers')}?.startsWith('Turn 1')") is True,
              (browser.eval(text("#error")), browser.eval(text("#game"))))
        first = time.monotonic() - began
        # An arrow key, that both games take.
        browser.eval("document.querySelector('#play .moves button').focus()")
        browser.key("ArrowRight")
        check(f"{preset}: a turn is played by hand", browser.until(f"/^Turn 2|^Over/.test({text('#game .numbers')}) || {text('#error')}") is True,
              (browser.eval(text("#error")), browser.eval(text("#game"))))
        print(f"       {preset}: new game {first:.2f} s, turn {time.monotonic() - began - first:.2f} s; {browser.eval(text('#game .live'))}")
    fill(browser, "#play-human", "")
    click(browser, "#play-new")
    browser.until("document.querySelector('#game .moves button')?.value === 'Next turn'")
    click(browser, "#game .moves button")
    check("the model plays, with its probabilities", browser.until("document.querySelectorAll('#game .words li').length > 1"), browser.eval(text("#error")))


def open_files(browser, files):
    browser.files("#file-input", [files["episodes.jsonl"]])
    check("a dropped episodes.jsonl is shown", browser.until("document.querySelector('#report > .note')?.textContent.includes('episodes.jsonl')"),
          browser.eval(text("#error")))
    check("it has a replay", browser.until("document.querySelector('#report .replay')?.id"))
    click(browser, "#report > .note button")
    browser.files("#file-input", [files["adapter_config.json"], files["adapter_model.safetensors"]])
    check("a dropped adapter is loaded", browser.until(f"{text('#opened')}.match(/adapter/i)"), browser.eval(text("#error")))
    print(f"       {browser.eval(text('#opened'))}")
    browser.files("#file-input", [files["adapter_config.json"]])
    check("half an adapter is refused", browser.until(f"{text('#error')}.includes('two files')"), browser.eval(text("#error")))


def shape(browser, pictures):
    browser.eval("document.activeElement.blur(), scrollTo({ top: 0, behavior: 'instant' })")
    # Charts out of sight are left out otherwise.
    browser.eval("document.head.append(Object.assign(document.createElement('style'), { "
                 "textContent: 'figure { content-visibility: visible !important }' })), 1")
    for width in [320, 390]:
        browser.size(width, 844, "light")
        # Charts are drawn again for each width.
        time.sleep(0.5)
        wider = browser.wider(width)
        check(f"nothing is wider than {width}", wider == [], wider)
    browser.picture(pictures / f"web-{browser.name}-phone.png")
    browser.size(1280, 900, "light")
    for scheme in ["light", "dark"]:
        if browser.eval("document.documentElement.classList.contains('dark')") != (scheme == "dark"):
            click(browser, "#theme")
        time.sleep(0.5)
        browser.picture(pictures / f"web-{browser.name}-{scheme}.png")


def lost_device(browser):
    fill(browser, "#steps", "50")
    click(browser, "#go")
    browser.until(f"{text('#status')}.includes(' of 50')")
    browser.eval("new BroadcastChannel('test').postMessage('lose')")
    told = browser.until("document.getElementById('error').firstChild?.textContent", 60)
    check("a lost device is reported", told and "lost" in told, told)
    print(f"       {told}")
    check("the run can continue", label(browser, ["Continue"], 5), browser.eval(text("#go")))
    click(browser, "#go")
    check("it continues", browser.until(f"/: [1-9]/.test({text('#status')}) || {text('#error')}", 120) is True,
          browser.eval(f"{text('#status')} + {text('#error')}"))


def whole_run(browser, home):
    wanted = browser.eval("document.getElementById('steps').value")
    browser.eval(FRAMES)
    began = time.monotonic()
    click(browser, "#go")
    label(browser, ["Stop"])
    check("the default run ends", label(browser, ["Train again"], 3600), browser.eval(f"{text('#status')} + {text('#error')}"))
    seconds = time.monotonic() - began
    files = download(browser, home)
    lines = [json.loads(line) for line in files["metrics.jsonl"].read_text().splitlines()]
    results = [(line.get("step"), line["success_rate"]) for line in lines if line.get("kind") == "evaluation"]
    print(f"       the default run: {wanted} steps in {seconds:.1f} s, longest frame {browser.eval('longestFrame'):.0f} ms; "
          f"held-out success by step: {', '.join(f'{step}: {rate:.3f}' for step, rate in results)}")


def without_gpu(home, url):
    home.mkdir()
    browser = Chromium(home, [])
    try:
        browser.load(url, 1280, 900, "light")
        told = browser.until(text("#error"))
        check("without a GPU the page names the cause", told and "GPU" in told, told)
    finally:
        browser.close()


def test(browser, url, home, pictures, train):
    print(f"       ready to train after {open_page(browser, url)}")
    start(browser)
    if train:
        whole_run(browser, home)
        shape(browser, pictures)
    else:
        self_test(browser)
        training(browser)
        files = downloads(browser, home)
        replay(browser)
        play(browser)
        shape(browser, pictures)
        if {"episodes.jsonl", "adapter_config.json", "adapter_model.safetensors"} <= set(files):
            open_files(browser, files)
    print(f"       ready to train, loaded again: {open_page(browser, url)}")
    check("no error or warning in the console", browser.complaints() == [], browser.complaints())
    asked = browser.requests()
    others = [one for one in asked if not one.startswith((url, "data:", f"blob:{url}", "about:"))]
    check("nothing but the page was requested", len(asked) > 4 and others == [], others)
    if not train:
        lost_device(browser)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, default=Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "web", help="what ./web --build made")
    parser.add_argument("--browser", choices=["chromium", "firefox", "all"], default="all")
    parser.add_argument("--pictures", type=Path, default=Path(tempfile.gettempdir()) / "lapwing-web", help="where pictures go")
    parser.add_argument("--train", action="store_true", help="train the whole default run, and print how long it took and its result")
    arguments = parser.parse_args()
    if not (arguments.site / "index.html").exists():
        sys.exit(f"{arguments.site} has no index.html: build the page with ./web --build")
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=arguments.site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/"
    lavapipe = next(iter(Path("/usr/share/vulkan/icd.d").glob("lvp_icd*.json")), "")
    for name in ["chromium", "firefox"] if arguments.browser == "all" else [arguments.browser]:
        print(f"{name}:")
        with tempfile.TemporaryDirectory() as home:
            home = Path(home)
            (home / "downloads").mkdir()
            try:
                if name == "chromium":
                    without_gpu(home / "bare", url)
                    browser = Chromium(home, SOFTWARE_GPU)
                else:
                    browser = Firefox(home, WEBGPU, {"VK_DRIVER_FILES": str(lavapipe), "VK_ICD_FILENAMES": str(lavapipe)})
            except Missing as error:
                skip(name, error)
                continue
            try:
                test(browser, url, home, arguments.pictures, arguments.train)
            except ScriptError as error:
                check("the page can be used", False, error)
            finally:
                browser.close()
    print(f"pictures are in {arguments.pictures}")
    sys.exit(finish())


main()
