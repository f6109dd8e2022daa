"""Pages opened in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request


def opened(window: Browser, file: Path, **options: Any) -> Iterator[Page]:
    said: list[str] = []
    asked: list[str] = []

    def note_message(message: ConsoleMessage) -> None:
        said.append(message.text)

    def note_error(error: Exception) -> None:
        said.append(str(error))

    def note_request(request: Request) -> None:
        asked.append(request.url)

    shown = window.new_page(**options)
    shown.set_default_timeout(5000)
    shown.on("console", note_message)
    shown.on("pageerror", note_error)
    shown.on("request", note_request)
    shown.goto(file.as_uri())
    yield shown
    shown.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
