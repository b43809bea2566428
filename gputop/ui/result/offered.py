"""Which keys do something in a result now, and what they are called there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gputop.ui.keys.declared import Key
from gputop.ui.result.content import Content
from gputop.ui.result.tab import Tab

_ALWAYS = frozenset({"result-close", "result-tab", "result-tab-back"})


def here(keys: Sequence[Key], content: Content | None, tab: Tab | None) -> list[Key]:
    """The keys of the screen, its own first."""
    found = [_named(key, content, tab) for key in keys if "result" in key.on and _offered(key, content, tab)]
    return sorted(found, key=lambda key: key.group != "RESULT")


def _offered(key: Key, content: Content | None, tab: Tab | None) -> bool:
    if key.group != "RESULT" or key.id in _ALWAYS:
        return True
    if content is None or tab is None:
        return False
    if key.id.startswith("result-view-"):
        return int(key.id[12:]) <= len(content.tabs)
    if key.id == "result-turn" and len(content.ranks) > 1:
        return True
    if key.id in ("result-path", "result-scp"):
        return bool(content.about.files)
    if key.id == "result-diff":
        return bool(content.about.older) and content.compare is not None
    if key.id == "result-again":
        return content.again
    return key.id in tab.keys


def _named(key: Key, content: Content | None, tab: Tab | None) -> Key:
    if key.id == "result-take" and tab:
        return replace(key, title=tab.takes or key.title)
    if key.id == "result-turn" and content and len(content.ranks) > 1:
        return replace(key, title="Next rank")
    if key.id == "result-gap" and tab and "result-find" in tab.keys:
        return replace(key, title="Next found")
    return key
