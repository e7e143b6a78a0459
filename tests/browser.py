"""In: an address. Out: what headless Chromium shows of it, over its DevTools protocol; no driver is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 120.0


def browser() -> str:
    """Path of Chromium: KLINEPRED_BROWSER, else what is on the path; without one the test skips, and in CI fails."""
    found = os.environ.get("KLINEPRED_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no browser: install one of {', '.join(NAMES)}, or name it in KLINEPRED_BROWSER"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Page:
    """One tab."""

    def __init__(self, line: ClientConnection, port: int) -> None:
        self._line = line
        self._port = port
        self._number = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        self._number += 1
        self._line.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            said = json.loads(self._line.recv(timeout=PATIENCE_S))
            if said.get("id") == self._number:
                assert "error" not in said, said
                return dict(said["result"])

    def open(self, url: str) -> None:
        """Go there; an address that differs behind the `#` alone is loaded anew too."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)

    def ask(self, script: str) -> Any:
        """The value of an expression in the page; None where it raises."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression as soon as it is true.

        Raises
        ------
        AssertionError
            It never is; the message holds the text of the page.
        """
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit:
            if value := self.ask(script):
                return value
            time.sleep(0.2)
        raise AssertionError(f"{script} is not true of: {self.text()[:2000]}")

    def text(self) -> str:
        """All visible text."""
        return str(self.ask("document.body.innerText") or "")

    @contextmanager
    def inner(self) -> Iterator[Page]:
        """The document in the page's sandboxed frame, which Chromium keeps in a process of its own."""
        limit = time.monotonic() + PATIENCE_S
        while not (frames := [target for target in _targets(self._port) if target["type"] == "iframe"]):
            assert time.monotonic() < limit, f"no frame in: {self.text()[:2000]}"
            time.sleep(0.2)
        with connect(frames[0]["webSocketDebuggerUrl"], max_size=None, open_timeout=PATIENCE_S) as line:
            yield Page(line, self._port)

    def picture(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def open_page(folder: Path, *, width: int = 1800, height: int = 1000) -> Iterator[Page]:
    """A fresh Chromium with its profile in `folder`, and one empty tab."""
    words = [
        *(browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *(f"--window-size={width},{height}", f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"),
    ]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            port = _port(folder / "DevToolsActivePort", process)
            (tab,) = [target for target in _targets(port) if target["type"] == "page"]
            with connect(tab["webSocketDebuggerUrl"], max_size=None, open_timeout=PATIENCE_S) as line:
                yield Page(line, port)
        finally:
            process.terminate()


def _targets(port: int) -> list[dict[str, str]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE_S) as answer:
        found: list[dict[str, str]] = json.load(answer)
    return found


def _port(path: Path, process: subprocess.Popen[bytes]) -> int:
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        assert process.poll() is None, "the browser ended by itself"
        if path.is_file() and (lines := path.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.1)
    raise AssertionError("the browser opens no port")
