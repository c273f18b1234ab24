"""A real browser without a window, driven through a pipe by the DevTools protocol: pages, keys, sizes, colours, pictures.

Debian's package ``chromium-headless-shell`` (or ``chromium``) is all that it needs: no driver, no download, no port. It reads the
protocol from file descriptor 3 and writes it to 4, each message ended by a zero byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ANSWER_S = 30.0
DESKTOP = (1280, 900)
PHONE = (390, 844)
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}


def found_browser() -> str | None:
    """The program, if there is one."""
    return os.environ.get("BROKERHA_TEST_BROWSER") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, program: str, size: tuple[int, int] = DESKTOP) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="brokerha-browser-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
            "--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", "about:blank",
        ]  # fmt: skip
        # The shell moves the two ends to the numbers that the browser expects.
        script = f'exec "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, "browser", *command],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._numbers = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        """All that the page reported: requests, faults of scripts, breaches of the policy."""
        target = self._ask("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._ask("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self._ask(f"{domain}.enable")
        self.resize(size)

    # ---- what a test asks for

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self.events.clear()
        self._ask("Page.navigate", {"url": url})
        self.until("document.readyState === 'complete'")

    def resize(self, size: tuple[int, int], *, scale: float = 1.0) -> None:
        """Another window; a narrow one is a phone."""
        terms = {"width": size[0], "height": size[1], "deviceScaleFactor": scale, "mobile": size[0] < 600}
        self._ask("Emulation.setDeviceMetricsOverride", terms)

    def colours(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        self._ask("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        terms = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self._ask("Runtime.evaluate", terms)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, limit_s: float = ANSWER_S) -> Any:
        """Wait until an expression is true; what it gives then."""
        deadline = time.monotonic() + limit_s
        while not (value := self.value(expression)):
            assert time.monotonic() < deadline, f"not true within {limit_s:.0f} s: {expression}\n{self.text()[:2000]}"
            time.sleep(0.05)
        return value

    def text(self) -> str:
        """All text that is shown."""
        return str(self.value("document.body.innerText"))

    def press(self, key: str) -> None:
        """One key down and up."""
        code, text = _KEYS[key]
        terms = {"key": key, "code": key, "windowsVirtualKeyCode": code, **({"text": text} if text else {})}
        self._ask("Input.dispatchKeyEvent", {"type": "keyDown", **terms})
        self._ask("Input.dispatchKeyEvent", {"type": "keyUp", **terms})

    def spoken(self) -> list[tuple[str, str]]:
        """What a screen reader finds: (role, name) of each node that is not ignored, in order."""
        nodes = self._ask("Accessibility.getFullAXTree")["nodes"]
        return [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write what is shown as PNG; ``whole`` for all of the page."""
        shot = self._ask("Page.captureScreenshot", {"format": "png", "captureBeyondViewport": whole, **self._clip(whole=whole)})
        file.write_bytes(base64.b64decode(shot["data"]))

    def _clip(self, *, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def faults(self) -> list[str]:
        """Exceptions of scripts, and what the browser refused to load or to do."""
        self.value("0")
        found = [str(each["params"]["exceptionDetails"]) for each in self.events if each["method"] == "Runtime.exceptionThrown"]
        entries = [each["params"]["entry"] for each in self.events if each["method"] == "Log.entryAdded"]
        # A failed request is written there too; whether that is a fault is the test's to say.
        return found + [entry["text"] for entry in entries if entry["source"] in {"security", "javascript", "violation"}]

    def requested(self) -> list[str]:
        """Addresses of all requests since the page was opened."""
        return [each["params"]["request"]["url"] for each in self.events if each["method"] == "Network.requestWillBeSent"]

    # ---- the pipe

    def _ask(self, method: str, terms: dict[str, Any] | None = None) -> Any:
        self._numbers += 1
        message: dict[str, Any] = {"id": self._numbers, "method": method, "params": terms or {}}
        if self._session:
            message["sessionId"] = self._session
        _write_all(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            found = self._next(deadline)
            if found.get("id") == self._numbers:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]
            if "method" in found:
                self.events.append(found)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "the browser does not answer"
            more = os.read(self._from, 1 << 16)
            assert more, f"the browser has ended: {self._process.wait(5)}"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def close(self) -> None:
        """End the browser."""
        for end in (self._to, self._from):
            with contextlib.suppress(OSError):
                os.close(end)
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        self._profile.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def browsing(url: str, size: tuple[int, int] = DESKTOP) -> Iterator[Browser]:
    """A browser at a page."""
    program = found_browser()
    assert program is not None, "install chromium-headless-shell (Debian), or name a browser in BROKERHA_TEST_BROWSER"
    with Browser(program, size) as browser:
        browser.open(url)
        yield browser


def _write_all(end: int, data: bytes) -> None:
    while data:
        data = data[os.write(end, data) :]
