"""A headless Chromium, driven through ChromeDriver with the standard library alone (W3C WebDriver is HTTP and JSON)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id, as the standard has it
_WAIT_S = 20.0


class Browser:
    """One window."""

    def __init__(self, driver: str, *, language: str, width: int, height: int, dark: bool) -> None:
        self._driver = driver
        options = {
            "binary": CHROMIUM,
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                f"--window-size={width},{height}",
                *(["--force-dark-mode", "--blink-settings=preferredColorScheme=0"] if dark else []),
            ],
            "prefs": {"intl.accept_languages": language},
        }  # fmt: skip
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        self._call("POST", f"{self._session}/url", {"url": address})

    def type(self, selector: str, text: str) -> None:
        """Replace what stands in a field."""
        element = self._find(selector)
        self._call("POST", f"{element}/clear", {})
        self._call("POST", f"{element}/value", {"text": text})

    def choose(self, selector: str, file: Path) -> None:
        """Choose a file in a file field."""
        self._call("POST", f"{self._find(selector)}/value", {"text": str(file)})

    def click(self, selector: str) -> None:
        self._call("POST", f"{self._find(selector)}/click", {})

    def run(self, script: str) -> Any:
        """What a script in the page returns."""
        return self._call("POST", f"{self._session}/execute/sync", {"script": script, "args": []})

    def text(self, selector: str) -> str:
        return str(self.run(f"return document.querySelector({json.dumps(selector)}).innerText"))

    def spoken(self, selector: str) -> str:
        """The name that a screen reader says."""
        return str(self._call("GET", f"{self._find(selector)}/computedlabel"))

    def wait_for(self, script: str) -> Any:
        """Wait until `script` returns something true, and return that."""
        end = time.monotonic() + _WAIT_S
        while not (found := self.run(script)):
            if time.monotonic() > end:
                raise AssertionError(f"it never became true: {script}; the page reads: {self.text('body')}")
            time.sleep(0.05)
        return found

    def complaints(self) -> list[str]:
        """What the browser's console holds since it was last asked: errors of scripts, violations of the policy."""
        return [entry["message"] for entry in self._call("POST", f"{self._session}/se/log", {"type": "browser"})]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/screenshot")))

    def emulate_print(self) -> None:
        """Show the page as it would be printed."""
        asked = {"cmd": "Emulation.setEmulatedMedia", "params": {"media": "print"}}
        self._call("POST", f"{self._session}/goog/cdp/execute", asked)

    def on_phone(self, width: int, height: int) -> None:
        """Show the page as a phone does, whose screen is narrower than a window of Chromium can be."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        asked = {"cmd": "Emulation.setDeviceMetricsOverride", "params": screen}
        self._call("POST", f"{self._session}/goog/cdp/execute", asked)

    def printed(self) -> bytes:
        """The page on A4, as PDF."""
        paper = {
            "page": {"width": 21.0, "height": 29.7},
            "margin": dict.fromkeys(["top", "bottom", "left", "right"], 1.2),
        }
        return base64.b64decode(self._call("POST", f"{self._session}/print", paper))

    def close(self) -> None:
        self._call("DELETE", self._session)

    def _find(self, selector: str) -> str:
        found = self._call("POST", f"{self._session}/element", {"using": "css selector", "value": selector})
        return f"{self._session}/element/{found[_ELEMENT]}"

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._driver + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error


@contextlib.contextmanager
def browser(
    *, language: str = "en-US,en", width: int = 900, height: int = 900, dark: bool = False
) -> Iterator[Browser]:
    """A browser that is gone after the block."""
    assert DRIVER is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}", "--silent"])
    try:
        _wait_until_it_listens(port)
        opened = Browser(f"http://127.0.0.1:{port}", language=language, width=width, height=height, dark=dark)
        try:
            yield opened
        finally:
            opened.close()
    finally:
        driver.terminate()
        driver.wait(20)


def _wait_until_it_listens(port: int) -> None:
    end = time.monotonic() + _WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
