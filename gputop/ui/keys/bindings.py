"""The declared keys as Textual's bindings: those of each screen, and those that work above every dialog."""

from __future__ import annotations

from collections.abc import Iterable

from textual.binding import Binding, BindingType

from gputop.ui.keys.declared import KEYS, Key, Place

NO_KEY = "no_key"  # no terminal sends it
EVERYWHERE = frozenset({"quit", "interrupt", "suspend"})  # the app does these


def on(place: Place) -> list[BindingType]:
    """The keys of a screen, which knows by their ids what they do, or why not now."""
    here = [key for key in KEYS if place in key.on and key.id not in EVERYWHERE]
    # at once, not after a round by the focus: the next key may be for what this one opens
    return [_binding(key, f"press('{key.id}')", priority=True) for key in here]


def everywhere(*, typing: bool = False) -> list[BindingType]:
    """The keys that are the app's on any screen; where one types, a letter is a letter, whatever it is remapped to."""
    return [_binding(key, f"app.{key.action}", typing) for key in KEYS if key.id in EVERYWHERE]


def keymap(changes: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Other keys for some actions, as `App.set_keymap` takes them."""
    return {id: ",".join(keys) or NO_KEY for id, keys in changes}


def _binding(key: Key, action: str, typing: bool = False, *, priority: bool = False) -> Binding:
    names = [name for name in key.keys if not typing or len(name) > 1]
    keys = ",".join(names) or NO_KEY
    return Binding(keys, action, key.title, show=False, id=None if typing else key.id, priority=priority)
