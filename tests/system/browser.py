"""Drives a headless Chromium by the DevTools protocol, over pipes."""
import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

from harness import LIMIT_S, Skip

# As root it needs --no-sandbox; the rest keeps it from asking anybody else.
OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-pipe",
           "--proxy-server=direct://", "--hide-scrollbars"]


class BrowserError(Exception):
    pass


class Page:
    """One tab. It records what the page logs, and each address that it asks for."""

    def __init__(self, process, to_browser, from_browser):
        self.process, self.to, self.source = process, to_browser, from_browser
        self.buffer, self.number, self.session = b"", 0, None
        self.problems, self.addresses = [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def read_message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.source], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise BrowserError("the browser does not answer")
            part = os.read(self.source, 1 << 20)
            if not part:
                raise BrowserError(f"the browser ended: {self.process.wait(timeout=10)}")
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def take_event(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.addresses.append(p["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(p["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{p['entry']['text']} {p['entry'].get('url', '')}")

    def call(self, command, **parameters):
        self.number += 1
        message = {"id": self.number, "method": command, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + LIMIT_S
        while True:
            answer = self.read_message(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise BrowserError(f"{command}: {answer['error']}")
                return answer["result"]
            self.take_event(answer)

    def open(self, address):
        self.call("Page.navigate", url=address)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, what, expression, limit_s=LIMIT_S):
        """Waits until the expression is true, and returns its value."""
        deadline = time.monotonic() + limit_s
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            assert time.monotonic() < deadline, f"not {what} in {limit_s} s: {self.text()}"
            time.sleep(0.05)

    def text(self):
        return self.evaluate("document.body.innerText")

    def set_size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def set_colours(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def key(self, name, code=0):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, text="\r" if name == "Enter" and kind == "keyDown" else "")

    def picture(self, path):
        """A picture of the whole page, as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser():
    """Yields a tab of a browser of its own."""
    program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    if not program:
        raise Skip("chromium is not installed (scripts/deps.sh browser)")
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def place_pipes():
        # Out of the way first: one may have the number of the other.
        a, b = os.dup(to_read), os.dup(from_write)
        os.dup2(a, 3)
        os.dup2(b, 4)

    with tempfile.TemporaryDirectory(prefix="evb-test-browser-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen([program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"], preexec_fn=place_pipes,
                                   close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True, env={**os.environ, "HOME": profile})
        os.close(to_read)
        os.close(from_write)
        try:
            page = Page(process, to_write, from_read)
            yield page
            with contextlib.suppress(BrowserError, OSError):
                page.session = None
                page.call("Browser.close")
        finally:
            os.close(to_write)
            os.close(from_read)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
