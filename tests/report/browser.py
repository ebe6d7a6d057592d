"""A headless Chromium spoken to through two pipes: it tells what a page logged and how wide it came out.

The protocol is JSON between zero bytes (``--remote-debugging-pipe``), so no package is needed for it.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_SECONDS = 180
_OVERFLOWING = """(() => {
  const wide = document.documentElement.clientWidth;
  const inBox = (one) => {
    for (let up = one; up; up = up.parentElement) if (getComputedStyle(up).overflowX !== 'visible') return true;
    return false;
  };
  return [...document.querySelectorAll('body *')].filter((one) => one.getBoundingClientRect().right > wide + 0.5)
    .filter((one) => !inBox(one)).slice(0, 5).map((one) => one.outerHTML.slice(0, 150));
})()"""


def find_browser():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def _high_pipe():
    """A pipe whose ends are in nobody's way."""
    low = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low]
    for end in low:
        os.close(end)
    return high


class Browser:
    """One process with one page."""

    def __init__(self, path, folder):
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run", "about:blank"]
        (inward, self._to), (self._from, outward) = _high_pipe(), _high_pipe()
        silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in (0, 1, 2)]
        # The browser reads commands from 3 and writes answers to 4.
        moved = [(os.POSIX_SPAWN_DUP2, inward, 3), (os.POSIX_SPAWN_DUP2, outward, 4)]
        self._process = os.posix_spawn(path, [path, *flags], os.environ, file_actions=[*silent, *moved])
        os.close(inward)
        os.close(outward)
        self._unread, self._number, self._session, self._events = b"", 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._to)
        os.kill(self._process, signal.SIGTERM)
        os.waitpid(self._process, 0)
        os.close(self._from)

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _next(self):
        deadline = time.monotonic() + _SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._from, 1 << 20)
            assert part, "the browser ended"
            self._unread += part
        message, self._unread = self._unread.split(b"\0", 1)
        return json.loads(message)

    def open(self, page, width, *, dark=False, height=900):
        """Load a page of a file at a width."""
        self._events = []
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self._events):
            self._events.append(self._next())

    def run(self, script):
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self):
        """Everything the page logged as a warning or an error, thrown errors, and requests beyond the page itself."""
        self.run("0")  # whatever was logged before has arrived with its answer
        found = []
        for event in self._events:
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(told["exceptionDetails"])
            elif method == "Runtime.consoleAPICalled" and told["type"] in {"error", "warning", "assert"}:
                found.append(told["args"])
            elif method == "Log.entryAdded" and told["entry"]["level"] in {"error", "warning"}:
                found.append(told["entry"])
            elif method == "Network.requestWillBeSent" and told["type"] != "Document":
                found.append(told["request"]["url"])
        return found

    def overflow(self):
        """How many pixels the page is wider than the window, and what sticks out."""
        wide = self.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return wide, self.run(_OVERFLOWING)

    def picture(self, path):
        """The whole page as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))
