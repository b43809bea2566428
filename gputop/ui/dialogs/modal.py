"""A screen over the main one, that goes once: a second key on its way must not take the screen below with it."""

from __future__ import annotations

from typing import Generic, TypeVar

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Modal(ModalScreen[Answer], Generic[Answer], inherit_bindings=False):
    """What everything that opens over the main screen is."""

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        """Go, with an answer; nothing happens once it has gone. Textual would close whatever is on top."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
