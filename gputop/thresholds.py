"""The numbers of the rules, as the package ships them and with what a site sets instead."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources

from gputop import toml

Thresholds = Mapping[str, Mapping[str, float]]


def shipped() -> dict[str, dict[str, float]]:
    """The tables of diagnose/thresholds.toml."""
    raw = (resources.files("gputop") / "diagnose" / "thresholds.toml").read_bytes()
    return {table: dict(values) for table, values in toml.parse(raw).items() if isinstance(values, dict)}


def merged(site: Mapping[str, object]) -> tuple[Thresholds, list[str]]:
    """The tables with a site's numbers in them, and what of those is not used, in words."""
    tables, unused = shipped(), []
    for name, values in site.items():
        if name not in tables or not isinstance(values, dict):
            unused.append(f"{name!a:.40} is no table of thresholds")
            continue
        for key, value in values.items():
            if key not in tables[name] and key not in ("on_s", "window_s"):
                unused.append(f"{name}.{key!a:.40} is no threshold")
            elif isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
                unused.append(f"{name}.{key} must be a number")
            else:
                tables[name][key] = float(value)
    return tables, unused
