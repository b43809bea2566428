"""The declared keys as Textual's bindings: those of the main screen, and those that work above every dialog."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from gputop.ui.keys import KEYS, Key

EVERYWHERE = frozenset({"quit", "interrupt", "suspend"})  # the app does these


def main() -> list[BindingType]:
    """The keys of the main screen."""
    return [_binding(key, key.action) for key in KEYS if key.id not in EVERYWHERE]


def everywhere(*, typing: bool = False) -> list[BindingType]:
    """The keys that are the app's on any screen; where one types, a letter is a letter."""
    return [
        _binding(key, f"app.{key.action}", [name for name in key.keys if not typing or len(name) > 1])
        for key in KEYS
        if key.id in EVERYWHERE
    ]


def _binding(key: Key, action: str, names: list[str] | None = None) -> Binding:
    return Binding(",".join(key.keys if names is None else names), action, key.title, show=False)
