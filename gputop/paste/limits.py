"""The numbers by which a pasted text is judged: those of thresholds.toml, a site's in their place."""

from __future__ import annotations

from functools import cache

from gputop.thresholds import Thresholds, shipped


class Limits:
    """A table of them: `limits["dip"]`."""

    def __init__(self, table: str) -> None:
        self._table = table

    def __getitem__(self, name: str) -> float:
        return _tables()[self._table][name]


def adopt(site: Thresholds | None) -> None:
    """Judge by the numbers of a site from here on; by ours where it has none."""
    _site.clear()
    if site is not None:
        _site.append(site)


_site: list[Thresholds] = []
_shipped = cache(shipped)


def _tables() -> Thresholds:
    return _site[0] if _site else _shipped()
