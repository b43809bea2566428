"""From what an action ended in, or from what is kept of it, to what the screen shows; heavy, so made in a thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar

from textual.screen import Screen

from gputop.actions.pyspy import ProfileResult, StackResult
from gputop.actions.torch_trace import Traced
from gputop.profile import report
from gputop.profile.store import StoredProfile
from gputop.safe.files import Refused
from gputop.ui.result.content import Content
from gputop.ui.result.profile_tabs import of_profile_kept
from gputop.ui.result.stacks import of_stacks

Made = TypeVar("Made")
Result = StackResult | ProfileResult | Traced | StoredProfile


def content(result: Result, rank: int = 0) -> Content:
    """All that the screen needs; of several ranks this one. Refused says why it cannot be shown."""
    found = _content(result, rank)
    if isinstance(result, StoredProfile) or not result.recorded:
        return found
    about = replace(found.about, what=f"{found.about.what}, recorded")
    said = replace(found.says, words=("Recorded for this demo, not measured now.", *found.says.words))
    return replace(found, about=about, says=said, again=False, compare=None)


def _content(result: Result, rank: int) -> Content:
    if isinstance(result, StackResult):
        return of_stacks(result)
    if isinstance(result, ProfileResult):
        if result.profile is None or result.page is None or result.kept is None:
            raise Refused(": ".join((result.text, *result.lines[:1])))
        return of_profile_kept(result.profile, result.page, result.kept)
    # late: stacks need no trace
    from gputop.ui.result.trace_tabs import of_files, of_traced

    if isinstance(result, Traced):
        return of_traced(result, rank)
    if isinstance(result.meta.get("traces"), list):
        return of_files(result, rank)
    profile = result.open()
    return of_profile_kept(profile, report.page(profile, result.title), result)


def read_in_background(
    screen: Screen[Any],
    work: Callable[[], Made],
    ready: Callable[[Made], object],
    refused: Callable[[str], object],
    failed: Callable[[Exception], str],
) -> None:
    """Do it; then `ready`, or `refused` with the reason, in the screen's thread, if it is still there."""
    app = screen.app

    def pass_on(tell: Callable[[Any], object], what: Any) -> None:
        if screen.is_attached:
            tell(what)

    def run() -> None:
        try:
            made = work()
        except (Refused, OSError) as error:
            app.call_later(pass_on, refused, str(error))
        except Exception as error:  # the program lives
            app.call_later(pass_on, refused, failed(error))
        else:
            app.call_later(pass_on, ready, made)

    Thread(target=run, name="result", daemon=True).start()
