"""A real Chromium over the DevTools protocol on a pipe: no driver, no package, no port."""

import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from select import select
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATH = next((path for path in map(shutil.which, NAMES) if path), None)


class Chromium:
    """One browser with one tab. `complaints` collects dialogs, errors, refused content and requests."""

    def __init__(self, folder: Path, *, width: int = 1200, height: int = 900) -> None:
        assert PATH is not None
        # DevTools reads from descriptor 3 and writes to 4; ours must not be those while they are moved there.
        to_read, self._to = _high_pipe()
        self._from, to_write = _high_pipe()
        self._process = subprocess.Popen(
            [PATH, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--no-first-run", "--disable-background-networking", "--disable-component-update",
             f"--window-size={width},{height}", f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=lambda: (os.dup2(to_read, 3), os.dup2(to_write, 4)),
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        tabs = self._wait_for_tab()
        attached = self.call("Target.attachToTarget", targetId=tabs[0], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _wait_for_tab(self) -> list[str]:
        for _ in range(100):
            found = self.call("Target.getTargets")["targetInfos"]
            tabs = [one["targetId"] for one in found if one["type"] == "page"]
            if tabs:
                return tabs
            time.sleep(0.1)
        raise TimeoutError("Chromium opened no tab")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next(30)
            assert answer is not None, f"no answer to {method}"
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def settle(self, seconds: float = 0.3) -> None:
        """Give the page time, and take what it says meanwhile."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            message = self._next(left)
            if message is not None:
                self._note(message)

    def _next(self, seconds: float) -> dict[str, Any] | None:
        while b"\0" not in self._buffer:
            if not select([self._from], [], [], seconds)[0]:
                return None
            self._buffer += os.read(self._from, 2**20)
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method", ""), event.get("params", {})
        if method == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if not url.startswith(("file:", "data:", "about:")):
                self.complaints.append(f"request: {url}")
        elif method in (
            "Page.javascriptDialogOpening",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ):
            self.complaints.append(f"{method}: {json.dumps(params)[:500]}")

    def open(self, html: Path, *, dark: bool = False, width: int = 1200, height: int = 900) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Page.navigate", url=html.as_uri())
        self.wait("document.readyState == 'complete'")
        self.settle()

    def wait(self, condition: str, seconds: float = 10) -> None:
        """Until a condition of the page holds."""
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            self.settle(0.05)

    def run(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)
        self.settle()

    def drag(self, x: float, y: float, to_x: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y)
        for part in (0.3, 0.7, 1.0):
            self.call(
                "Input.dispatchMouseEvent",
                type="mouseMoved",
                x=x + (to_x - x) * part,
                y=y,
                button="left",
                buttons=1,
            )
        self.mouse("mouseReleased", to_x, y)
        self.settle()

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle(0.15)


def _high_pipe() -> tuple[int, int]:
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]
