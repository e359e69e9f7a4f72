"""Debian's Chromium for tests; a module loads it by ``pytest_plugins = ("browser_fixtures",)``.

One browser serves all modules of a run's process, which come last: while it is open, playwright's event loop runs in
this thread, and no other can. Where the package ``chromium-headless-shell`` is installed, that is the one: the same
engine without what surrounds its pages, and it opens one in half the time. What a page's scripts throw, and what its
console calls an error, fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
SHELL = Path("/usr/bin/chromium-headless-shell")
EXECUTABLE = SHELL if SHELL.exists() else CHROMIUM

ARGUMENTS = (
    "--no-sandbox",
    # Chromium 150 puts sandboxed frames into processes of their own, and then takes a frame's offset off the place of
    # an emulated tap twice: pointer events arrive where they should, the click lands above.
    # It also keeps a page of another site from sending to this machine, where a test's server is.
    "--disable-features=IsolateSandboxedIframes,LocalNetworkAccessChecks",
)


TWICE_THE_TEXT = "document.documentElement.style.fontSize = '200%'"
"""As a person sets it who reads no smaller text."""


def becomes_true(page: Any, expression: str, arg: object = None) -> None:
    """Wait until a page's expression, or its function of ``arg``, is true.

    Playwright's ``wait_for_function`` evaluates a string inside the page. A page's policy forbids that, which shows
    only where the expression is not true at the first look. A page that is just giving way to the next one has
    nothing to be true of: no body, nothing in focus, or no scripts at all.
    """
    from playwright.sync_api import Error

    failed: Error | None = None
    for _ in range(1200):
        try:
            if page.evaluate(expression, arg):
                return
        except Error as error:
            failed = error
        page.wait_for_timeout(25)
    raise AssertionError(f"never true: {expression}") from failed


def enter_the_hit(page: Any) -> None:
    """Wait until a HIT's script listens and the worker's page has led the keyboard there; keys before that are lost."""
    page.frame_locator("#hit").locator(".now").wait_for()
    becomes_true(page, "document.activeElement.id === 'hit'")


def compose(page: Any, word: str) -> None:
    """Write a word by an input method and take it with Enter, which comes as a key of the method's own."""
    devtools = page.context.new_cdp_session(page)
    devtools.send(
        "Input.imeSetComposition", {"text": word, "selectionStart": len(word), "selectionEnd": len(word)}
    )
    key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229}
    devtools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **key})
    devtools.send("Input.insertText", {"text": word})
    devtools.send("Input.dispatchKeyEvent", {"type": "keyUp", **key})


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable[..., Any]]:
    """Starts a file of Debian's Chromium with arguments; tests are skipped where it or playwright is missing."""
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing")
    api = pytest.importorskip("playwright.sync_api", reason="pip package playwright is missing")
    with api.sync_playwright() as playwright:
        yield lambda file, *words: playwright.chromium.launch(executable_path=str(file), args=list(words))


@pytest.fixture(scope="session")
def browser(launch: Callable[..., Any]) -> Iterator[Any]:
    """Chromium whose taps land where they should."""
    chromium = launch(EXECUTABLE, *ARGUMENTS)
    yield chromium
    chromium.close()


@pytest.fixture(scope="session")
def isolating_browser(launch: Callable[..., Any]) -> Iterator[Any]:
    """Chromium with a HIT's frame in a process of its own, as people have it; the shell does so where it is told."""
    chromium = launch(EXECUTABLE, "--no-sandbox", "--site-per-process")
    yield chromium
    chromium.close()


@pytest.fixture
def new_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens windows without cookies; ``tolerate`` is a console error that the test brings about itself."""
    contexts: list[Any] = []
    faults: list[str] = []
    over = False

    def opened(*, tolerate: str | None = None, **options: Any) -> Any:
        def heard(message: Any) -> None:
            if over and "net::ERR_" in message.text:
                return  # the test's server is gone already, and a page that renews itself has asked it again
            if message.type == "error" and (tolerate is None or tolerate not in message.text):
                faults.append(message.text)

        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: faults.append(str(error)))
        return page

    yield opened
    over = True
    for context in contexts:
        context.close()
    assert faults == []
