"""Two headless browsers behind one interface: Chromium over the DevTools protocol, Firefox over WebDriver BiDi.

Needs nothing but Python and Debian's packages `chromium` and `firefox-esr`, which are installed if they are missing.
"""

import base64
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

# The exit status of a test that cannot run here and has printed why.
SKIPPED = 77

# Seconds without a message from the browser after which a test gives up.
PATIENCE = 600

# What reaches beyond the window, or beyond the frame that it stands in; tables scroll by themselves. The width is given, since
# a phone's window grows with its content.
WIDER = """[document.documentElement, ...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll *, svg *, .live')
    && e.getBoundingClientRect().right > Math.min(WIDTH, (e.closest('.card') || document.body).getBoundingClientRect().right) + 1
    || e.scrollWidth > WIDTH && e === document.documentElement)
    .map(e => e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 20)).slice(0, 5)"""

counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(what, is_so, told=""):
    counts["passed" if is_so else "failed"] += 1
    print(f"{'ok    ' if is_so else 'FAILED'} {what}{'' if is_so else f': {told}'}", flush=True)


def skip(what, why):
    counts["skipped"] += 1
    print(f"SKIPPED {what}: {why}", flush=True)


def finish():
    """Prints the counts and returns the exit status."""
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    return 1 if counts["failed"] else SKIPPED if counts["skipped"] else 0


class ScriptError(Exception):
    """An error in the page."""


class Missing(Exception):
    """A browser that is not here and cannot be installed."""


def program(package, *names):
    """Returns the path of the first of these programs; installs Debian's package if there is none."""
    found = [path for path in map(shutil.which, names) if path]
    if not found and shutil.which("apt-get"):
        command = ["apt-get", "install", "--yes", "--no-install-recommends", package]
        if subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            subprocess.run(["apt-get", "update"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = [path for path in map(shutil.which, names) if path]
    if not found:
        raise Missing(f"{package} is not here, and `apt-get install {package}` did not install it")
    return found[0]


class Browser:
    """What both browsers share: numbered commands, and the events that arrive between their answers."""

    def __init__(self):
        self.number, self.events = 0, []

    def answer(self, number):
        """Returns the answer to a command. Keeps the events that come before it."""
        while (message := self.message()).get("id") != number:
            self.events.append(message)
        return message

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.message())

    def until(self, expression, patience=30):
        """Returns the value of the expression as soon as it is true, or its last value."""
        limit = time.monotonic() + patience
        while not (value := self.eval(expression)) and time.monotonic() < limit:
            time.sleep(0.05)
        return value

    def told(self, method):
        return [event["params"] for event in self.events if event.get("method") == method]

    def wider(self, width):
        return self.eval(WIDER.replace("WIDTH", str(width)))

    def close(self):
        """Ends the browser, also one that does not answer any more."""
        try:
            self.quit()
            self.process.wait(20)
        except (SystemExit, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        # The last files of the profile are written by processes that end later.
        time.sleep(0.2)


class Chromium(Browser):
    """A page of a headless chromium, driven by its DevTools protocol over a pair of pipes."""

    name = "chromium"

    def __init__(self, home, flags=("--disable-gpu",)):
        super().__init__()
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        # The browser reads commands from 3 and writes answers to 4.
        def wire():
            low = [os.dup(theirs_in), os.dup(theirs_out)]
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(low)]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        command = [program("chromium", "chromium", "chromium-browser", "google-chrome"), "--headless=new", "--no-sandbox", *flags,
                   # In a container, /dev/shm may hold 64 MB only.
                   "--disable-dev-shm-usage",
                   "--remote-debugging-pipe", "--no-first-run", f"--user-data-dir={home / 'chromium'}", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=wire, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.reader, self.writer = os.fdopen(ours_in, "rb", 0), os.fdopen(ours_out, "wb", 0)
        self.rest, self.session = b"", None
        self.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(home / "downloads"))
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility", "DOM"]:
            self.ask(f"{domain}.enable")
        self.ask("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)

    def message(self):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reader], [], [], PATIENCE)
            part = ready and self.reader.read(1 << 16)
            if not part:
                sys.exit("the browser ended by itself")
            self.rest += part
        one, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(one)
        if message.get("method") == "Target.attachedToTarget":
            # A worker: its console and its requests count, too.
            for domain in ["Runtime", "Log", "Network"]:
                self.send(f"{domain}.enable", {}, message["params"]["sessionId"])
        return message

    def send(self, method, parameters, session):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        self.writer.write(json.dumps(command).encode() + b"\0")
        return self.number

    def ask(self, method, **parameters):
        return self.ask_in(self.session, method, **parameters)

    def ask_in(self, session, method, **parameters):
        message = self.answer(self.send(method, parameters, session))
        if "error" in message:
            sys.exit(f"{method}: {message['error']}")
        return message["result"]

    def eval(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise ScriptError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def key(self, name):
        for kind in ["keyDown", "keyUp"]:
            code = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Tab": 9, "Enter": 13}[name]
            text = {"text": "\r"} if name == "Enter" and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **text)

    def files(self, selector, paths):
        """Puts files into a file input, as the visitor's choice would."""
        root = self.ask("DOM.getDocument")["root"]["nodeId"]
        node = self.ask("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.ask("DOM.setFileInputFiles", files=[str(path) for path in paths], nodeId=node)

    def size(self, width, height, scheme):
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def load(self, url, width, height, scheme):
        self.size(width, height, scheme)
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.ask("Page.navigate", url=url)
        self.wait("Page.loadEventFired")
        # Charts are drawn once their size is known.
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, path):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self):
        """Returns the errors and warnings of the page and its workers."""
        found = [f"exception: {told['exceptionDetails'].get('exception', {}).get('description')}" for told in self.told("Runtime.exceptionThrown")]
        found += [f"console: {told['args']}" for told in self.told("Runtime.consoleAPICalled")
                  if told["type"] in ("error", "warning", "assert")]
        return found + [f"log: {told['entry']['text']}" for told in self.told("Log.entryAdded")
                        if told["entry"]["level"] in ("error", "warning")]

    def requests(self):
        return [told["request"]["url"] for told in self.told("Network.requestWillBeSent")]

    def nameless(self):
        """Returns the roles of the elements that have no name in the accessibility tree."""
        named = ("button", "link", "image", "img", "combobox", "textbox", "spinbutton", "progressbar", "region", "heading")
        nodes = [node for node in self.ask("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
        return [node["role"]["value"] for node in nodes if node["role"]["value"] in named and not node.get("name", {}).get("value")]

    def quit(self):
        self.ask_in(None, "Browser.close")


class WebSocket:
    """The client's side of one WebSocket (RFC 6455), for text messages."""

    def __init__(self, port, path):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.file = self.socket.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        status = self.file.readline()
        if b" 101 " not in status:
            sys.exit(f"the browser refused the WebSocket: {status}")
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def send(self, text, opcode=1):
        data = text if isinstance(text, bytes) else text.encode()
        size, mask = len(data), os.urandom(4)
        length = bytes([128 | size]) if size < 126 else bytes([254]) + size.to_bytes(2) if size < 65536 else bytes([255]) + size.to_bytes(8)
        whole = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data) ^ int.from_bytes(whole)).to_bytes(size)
        self.socket.sendall(bytes([128 | opcode]) + length + mask + masked)

    def receive(self):
        text = b""
        while True:
            head = self.file.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                sys.exit("the browser ended by itself")
            size = head[1] & 127
            if size > 125:
                size = int.from_bytes(self.file.read(2 if size == 126 else 8))
            data = self.file.read(size)
            if head[0] & 15 == 9:
                self.send(data, opcode=10)
            elif head[0] & 15 < 3:
                text += data
                if head[0] & 128:
                    return text.decode()


class Firefox(Browser):
    """A page of a headless Firefox, driven by WebDriver BiDi."""

    name = "firefox"

    def __init__(self, home, preferences=None, environment=None):
        super().__init__()
        profile = home / "firefox"
        profile.mkdir()
        preferences = {
            "browser.download.dir": str(home / "downloads"), "browser.download.folderList": 2,
            "browser.download.always_ask_before_handling_new_types": False,
            # No requests but the page's, and no page of its own.
            "app.update.enabled": False, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False,
            "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False,
        } | (preferences or {})
        (profile / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
                                                 for name, value in preferences.items()))
        log = home / "firefox.log"
        command = [program("firefox-esr", "firefox-esr", "firefox"), "--headless", "--no-remote", "--profile", str(profile),
                   "--remote-debugging-port", "0", "about:blank"]
        with log.open("w") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=os.environ | (environment or {}))
        limit = time.monotonic() + 60
        while not (found := re.search(r"BiDi listening on ws://[^:]*:(\d+)", log.read_text(errors="replace"))):
            if time.monotonic() > limit or self.process.poll() is not None:
                sys.exit(f"firefox did not start:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        self.socket = WebSocket(int(found[1]), "/session")
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent", "script.realmCreated"])
        self.context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def message(self):
        return json.loads(self.socket.receive())

    def ask(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        message = self.answer(self.number)
        if message["type"] == "error":
            sys.exit(f"{method}: {message['error']}: {message['message']}")
        return message["result"]

    def eval(self, expression):
        # The page's values as JSON, instead of the protocol's own notation.
        answer = self.ask("script.evaluate", expression=f"(async () => JSON.stringify(await ({expression})))()", awaitPromise=True,
                          target={"context": self.context}, userActivation=True)
        if answer["type"] == "exception":
            raise ScriptError(f"{expression}: {answer['exceptionDetails']['text']}")
        return json.loads(answer["result"].get("value", "null"))

    def key(self, name):
        code = {"ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Home": "\ue011", "End": "\ue010", "Tab": "\ue004", "Enter": "\ue007"}[name]
        actions = [{"type": kind, "value": code} for kind in ["keyDown", "keyUp"]]
        self.ask("input.performActions", context=self.context, actions=[{"type": "key", "id": "keys", "actions": actions}])

    def files(self, selector, paths):
        """Puts files into a file input, as the visitor's choice would."""
        answer = self.ask("script.evaluate", expression=f"document.querySelector({json.dumps(selector)})", awaitPromise=False,
                          target={"context": self.context})
        self.ask("input.setFiles", context=self.context, files=[str(path) for path in paths],
                 element={"sharedId": answer["result"]["sharedId"]})

    def size(self, width, height, _scheme):
        """Sets the size of the window. The colour scheme stays that of the profile."""
        self.ask("browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height})

    def load(self, url, width, height, scheme):
        self.size(width, height, scheme)
        self.ask("browsingContext.navigate", context=self.context, url=url, wait="complete")
        self.eval("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def picture(self, path):
        answer = self.ask("browsingContext.captureScreenshot", context=self.context, origin="document")
        path.write_bytes(base64.b64decode(answer["data"]))

    def complaints(self):
        """Returns the errors and warnings of the page and its workers."""
        return [f"{told['type']}: {told['text']}" for told in self.told("log.entryAdded") if told["level"] in ("error", "warn")]

    def requests(self):
        """Returns the requests of the page. Firefox does not report those of its workers."""
        return [told["request"]["url"] for told in self.told("network.beforeRequestSent")]

    def quit(self):
        self.ask("browser.close")
