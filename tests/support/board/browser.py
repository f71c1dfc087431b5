"""A headless Chromium, driven by its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the tests may be root's
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_BOUND_S = 120.0
_PAUSE_S = 0.05
# With pipes a browser reads commands from 3 and writes answers to 4.
_PLACED = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4);"
    " os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """One tab. Each call waits for its answer."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._unread, self._last_id, self._session = b"", 0, ""
        # What the page has said on its console, and what it has thrown.
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        body = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            body["sessionId"] = self._session
        os.write(self._commands, json.dumps(body).encode() + b"\0")
        deadline = time.monotonic() + _BOUND_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _BOUND_S
        while not self.ask(f"!!({expression})"):
            page = self.ask("document.body.innerText.slice(0, 2000)")
            assert time.monotonic() < deadline, (expression, page, self.said)
            time.sleep(_PAUSE_S)

    def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x: float, to_x: float, y: float) -> None:
        for kind, at in (("mousePressed", x), ("mouseMoved", to_x), ("mouseReleased", to_x)):
            self.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int, *, phone: bool = False, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )

    def theme(self, theme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, path: Path) -> None:
        """What is seen now, as a PNG."""
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], deadline - time.monotonic())
            read = os.read(self._answers, 1 << 20) if ready else b""
            assert read, "the browser does not answer"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(said["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(f"{said['entry']['level']}: {said['entry']['text']}")
        elif method == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(said["args"]))


@contextmanager
def opened_browser(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in a folder."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    assert program is not None, "Chromium is missing: apt-get install chromium"
    command_end, commands = _pipe()
    answers, answer_end = _pipe()

    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _PLACED, str(command_end), str(answer_end)),
            *(program, *_OPTIONS, f"--user-data-dir={folder / 'profile'}", "about:blank"),
        ],
        pass_fds=(command_end, answer_end),
        env={**os.environ, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_end)
    os.close(answer_end)
    try:
        yield Browser(commands, answers)
    finally:
        process.kill()
        process.wait()
        os.close(commands)
        os.close(answers)


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are numbered higher than those that the browser expects."""
    ends = os.pipe()
    reading, writing = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return reading, writing
