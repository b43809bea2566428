"""Tables and lists of the manual, made from what is declared elsewhere: metrics, settings, columns, keys, checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gputop.config import SETTINGS, spelled
from gputop.docs.fields import field_tables
from gputop.docs.markdown import listing, table
from gputop.model import (
    Cgroup,
    Disk,
    Engine,
    File,
    Gpu,
    GpuShare,
    Host,
    Io,
    Memory,
    Mount,
    Network,
    Node,
    NvLink,
    Overview,
    PcieErrors,
    Pressure,
    Process,
    Thread,
    Unit,
    metrics,
)

if TYPE_CHECKING:
    from gputop.ui.keys.declared import Key

# where each stands in a frame, or in the details of one process
PLACES: dict[str, type] = {
    "gpus": Gpu,
    "gpus: engines": Engine,
    "gpus: nvlinks": NvLink,
    "gpus: pcie_errors": PcieErrors,
    "processes": Process,
    "processes: gpus": GpuShare,
    "host": Host,
    "host and cgroups: cpu_pressure, memory_pressure, io_pressure": Pressure,
    "host: disks": Disk,
    "host: mounts": Mount,
    "host: networks": Network,
    "host: nodes": Node,
    "cgroups and host: cgroup": Cgroup,
    "details: overview": Overview,
    "details: threads": Thread,
    "details: files": File,
    "details: io": Io,
    "details: memory": Memory,
}


def metric_tables() -> str:
    """Every metric, by its place."""
    parts = []
    for place, owner in PLACES.items():
        rows = ((f"`{metric.name}`", _unit(metric.unit), metric.help) for metric in metrics(owner))
        parts.append(f"## {place}\n\n{table(('metric', 'unit', 'meaning'), rows)}")
    return "\n\n".join(parts)


def setting_list() -> str:
    """Every setting."""
    return listing(
        (f"`{setting.key}` = {_written(setting.default)}", f"{setting.help}. It may be {setting.allowed}.")
        for setting in SETTINGS
    )


def column_list() -> str:
    """Every column of the process table."""
    from gputop.ui.table.columns import COLUMNS

    return listing((f"{column.title} (`{column.id}`)", column.help) for column in COLUMNS)


def alias_list() -> str:
    """What a field of the filter is called as well."""
    from gputop.ui.table.compare import ALIASES

    rows = ((f"`{name}`", ", ".join(f"`{other}`" for other in others)) for name, others in ALIASES.items())
    return table(("field", "also"), rows)


def key_tables(keys: Sequence[Key] | None = None) -> str:
    """Every key, by group, with the id by which it is remapped; the declared ones, or these."""
    from gputop.ui.keys.declared import GROUPS, KEYS

    parts = []
    for group in GROUPS:
        rows = ((" ".join(key.names), key.id, key.help) for key in keys or KEYS if key.group == group)
        parts.append(f"## {group.title()}\n\n{table(('key', 'id', 'does'), rows)}")
    return "\n\n".join(parts)


def check_list() -> str:
    """Every check of the doctor, by group."""
    from gputop.doctor import GROUPS, checks

    parts = []
    for group, title in GROUPS.items():
        rows = ((f"`{check.name}`", check.question) for check in checks() if check.group == group)
        parts.append(f"**{title}** (`{group}`)\n\n{listing(rows)}")
    return "\n\n".join(parts)


def signature_list() -> str:
    """Every signature of a trace, with its limits."""
    from gputop.trace.signatures import SIGNATURES

    rows = []
    for _, entry in sorted(SIGNATURES.items()):
        limits = ", ".join(f"{name} {limit:g}" for name, limit in entry.limits.items())
        rows.append((f"{entry.id} `{entry.name}`", entry.question + (f" ({limits})" if limits else "")))
    return listing(rows)


def rule_pages() -> str:
    """Every rule in full."""
    from gputop.docs import rules

    return rules.rule_pages()


def level_list() -> str:
    """What comes first when several rules hold."""
    from gputop.docs import rules

    return rules.level_list()


def key_summary() -> str:
    """The keys as the help on the screen shows them, in one table: for the README."""
    from gputop.ui.keys.declared import GROUPS, told

    rows = ((group.title(), f"`{names}`", text) for group in GROUPS for names, text in told(group))
    return table(("", "keys", "do"), rows)


def _unit(unit: Unit) -> str:
    return unit.value or "number"


def _written(default: object) -> str:
    """As one writes it in the settings file."""
    value = spelled(default)
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def recipe_table() -> str:
    """Every part of the training script and what it is for."""
    from gputop.lab.recipes import recipes

    return table(("recipe", "what it is for"), [(f"`{each.name}`", each.text) for each in recipes().values()])


TABLES: dict[str, Callable[[], str]] = {
    "metrics": metric_tables,
    "settings": setting_list,
    "columns": column_list,
    "aliases": alias_list,
    "keys": key_tables,
    "checks": check_list,
    "fields": field_tables,
    "signatures": signature_list,
    "rules": rule_pages,
    "levels": level_list,
    "recipes": recipe_table,
}
