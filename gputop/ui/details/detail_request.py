"""What is asked of the source about one process, and what is known of it: the newest, or the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputop import units
from gputop.diagnose import Finding
from gputop.model import Detail, Frame, Identity, Missing, Part, Process
from gputop.source import OTHERS_ENVIRONMENT, DetailWish, Source
from gputop.ui.details.process_view import ProcessView
from gputop.ui.details.tabs import ProcessTab
from gputop.ui.gpus.state import GpuHistory
from gputop.ui.theme import Look

LOADERS_WISH: tuple[Part, ...] = ("children",)  # for the pane of the loaders


class DetailRequest:
    """One process, and what is to be read of it."""

    def __init__(self, source: Source, identity: Identity, frame: Frame) -> None:
        self.identity = identity
        self.others = False
        self._source = source
        self._process: Process = frame.by_identity[identity]
        self._frame = self._newest = frame
        self._revealed: frozenset[str] = frozenset()
        self._found: Detail | Missing = Missing(metric="details", reason="stale")
        self._held: dict[str, Detail] = {}  # by tab, what was read last
        self._tab = ""
        self._gone = ""

    def ask(self, frame: Frame, tab: ProcessTab, *, held: bool) -> None:
        """Ask for what the tab shows. A picture that is held keeps what it has, and is given what it has not."""
        self._newest, self._tab = frame, tab.id
        if (process := frame.by_identity.get(self.identity)) is not None:
            self._process, self._frame = process, frame
        kept = self._held.get(tab.id)
        if held and (self._gone or (kept and not any(one.reason == "stale" for one in kept.missing))):
            self._found = kept or self._found
            return
        parts = (*tab.parts, *LOADERS_WISH) if tab.loaders else tab.parts
        wish = DetailWish(parts=parts, revealed=self._revealed, others_environment=self.others)
        self._found = self._source.inspect(self.identity, wish)
        if isinstance(self._found, Detail):
            self._held[tab.id] = self._found
        self._gone = self._why_gone(process is not None)

    def _why_gone(self, listed: bool) -> str:
        """Why it is not of now; nothing while it lives."""
        found = self._found
        if isinstance(found, Detail):
            return ""
        age_s = self._newest.mono_s - self._frame.mono_s
        if found.reason == "lost":
            return f"exited {units.ago_text(age_s)} ago" if age_s >= 1 else "exited"
        if listed:
            return ""
        return "not started yet" if age_s < 0 else f"not here: last seen {units.ago_text(age_s)} before"

    def view(self, past: GpuHistory, look: Look, findings: Sequence[Finding] = ()) -> ProcessView:
        """What there is to draw; of a process that has ended all in one weight."""
        found = self._found
        if self._gone or (isinstance(found, Missing) and found.reason == "stale"):
            found = self._held.get(self._tab, found)
        look = replace(look, faded=True) if self._gone else look
        return ProcessView(
            process=self._process, frame=self._frame, found=found, past=past, look=look, gone=self._gone,
            findings=findings,
        )  # fmt: skip

    @property
    def unread(self) -> bool:
        """Whether something that was asked for is still being read."""
        return not self._gone and self._missing("stale")

    @property
    def withheld(self) -> bool:
        """Whether its environment would be shown if root asked for it."""
        return isinstance(self._found, Detail) and OTHERS_ENVIRONMENT in self._found.missing

    def _missing(self, reason: str) -> bool:
        found = self._found
        return any(one.reason == reason for one in (found.missing if isinstance(found, Detail) else (found,)))

    def reveal(self, name: str) -> None:
        """Show this secret, or hide it; what is not secret stays as it is."""
        detail = self._held.get("environment")
        if detail and any(one.name == name and one.secret for one in detail.environment or ()):
            self._revealed ^= {name}
            self._forget()

    def hide(self) -> None:
        """Hide every secret."""
        if self._revealed or self.others:
            self._revealed, self.others = frozenset(), False
            self._forget()

    def _forget(self) -> None:
        """What is no longer asked to be shown is not kept either."""
        self._held.pop("environment", None)
