"""Work of a result that may take long, in a daemon thread: the screen never waits for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any, TypeVar

from textual.screen import Screen

from gputop.safe.files import Refused

Made = TypeVar("Made")


def read_in_background(
    screen: Screen[Any],
    work: Callable[[], Made],
    ready: Callable[[Made], object],
    refused: Callable[[str], object],
    failed: Callable[[Exception], str],
) -> None:
    """Do it; then `ready`, or `refused` with the reason, on the screen's side, if it is still there."""
    app = screen.app

    def told(tell: Callable[[Any], object], what: Any) -> None:
        if screen.is_attached:
            tell(what)

    def run() -> None:
        try:
            made = work()
        except (Refused, OSError) as error:
            app.call_later(told, refused, str(error))
        except Exception as error:  # the program lives
            app.call_later(told, refused, failed(error))
        else:
            app.call_later(told, ready, made)

    Thread(target=run, name="result", daemon=True).start()
