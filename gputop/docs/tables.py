"""Tables and lists of the manual, made from what is declared elsewhere: fields, metrics, settings, checks."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from gputop.config import SETTINGS, spelled
from gputop.docs.markdown import listing, table
from gputop.glossary import GROUPS, TERMS
from gputop.hosts.columns import COLUMNS as HOST_COLUMNS
from gputop.model import (
    Cgroup,
    Disk,
    Engine,
    File,
    Frame,
    Gpu,
    GpuShare,
    Host,
    Io,
    Memory,
    Metric,
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

_WORDS: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false"}


def field_tables() -> str:
    """A table for each kind of object in a frame: field, type, meaning."""
    parts = []
    for kind in _kinds(Frame):
        hints, annotated = get_type_hints(kind), get_type_hints(kind, include_extras=True)
        rows = (
            (f"`{field.name}`", _type(hints[field.name], field), _help(annotated[field.name], field))
            for field in fields(kind)
        )
        parts.append(f"### {kind.__name__.lower()}\n\n{table(('field', 'type', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _kinds(kind: Any) -> list[Any]:
    """The kinds of objects that stand in one, itself first."""
    found = [kind]
    for at in found:
        for hint in get_type_hints(at).values():
            found.extend(inner for inner in _inside(hint) if inner not in found)
    return found


def _inside(hint: Any) -> Iterator[Any]:
    if is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _inside(part)


def _type(hint: Any, field: Any) -> str:
    if field.default is field.default_factory is MISSING:
        return f"{_word(hint)}, needed"
    default = getattr(field.default, "value", field.default)  # of an enum
    if default in (None, (), ""):
        return _word(hint)
    return f"{_word(hint)}, else {str(default).lower().removesuffix('.0')}"


def _word(hint: Any) -> str:
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin in (Union, types.UnionType):
        return _word(next(part for part in parts if part is not type(None)))
    if origin is Literal:
        return "word"
    if origin is frozenset:
        return f"list of {_word(parts[0])}"
    if origin is tuple:
        return f"list of {_word(parts[0])}" if parts[-1] is Ellipsis else f"[{', '.join(map(_word, parts))}]"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "word"
    if isinstance(hint, type) and is_dataclass(hint):
        return hint.__name__.lower()
    return f"[{', '.join(get_type_hints(hint))}]"


def _help(hint: Any, field: Any) -> str:
    """What it means: of a metric as it is declared, of all others as its type is annotated."""
    unit, said = field.metadata.get("unit", Unit.WORD), field.metadata.get("help")
    for note in getattr(hint, "__metadata__", ()):
        said = note
    more = [unit.value] if unit not in (Unit.WORD, Unit.FLAG, Unit.COUNT) else []
    words = ", ".join(_words(hint))
    return " ".join([said or "", *(f"({one})" for one in (*more, words) if one)])


def _words(hint: Any) -> Iterator[str]:
    """The words that a field may hold, where there are only some."""
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
    elif isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(member.value) for member in hint)
    elif not is_dataclass(hint):
        for part in get_args(hint):
            yield from _words(part)


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
        rows = ((f"`{metric.name}`", _unit(metric.unit), _with_tier(metric)) for metric in metrics(owner))
        parts.append(f"## {place}\n\n{table(('metric', 'unit', 'meaning'), rows)}")
    return "\n\n".join(parts)


def metric_page(name: str) -> str:
    """One metric in each place that has it; KeyError where there is none."""
    found = [(place, metric) for place, owner in PLACES.items() for metric in metrics(owner) if metric.name == name]
    if not found:
        raise KeyError(name)
    rows = ((f"{place}, {_unit(metric.unit)}", _with_tier(metric)) for place, metric in found)
    return f"## {name}\n\n{listing(rows)}\n"


def metric_names() -> list[str]:
    """The names of all metrics, each once."""
    return list(dict.fromkeys(metric.name for owner in PLACES.values() for metric in metrics(owner)))


def _with_tier(metric: Metric) -> str:
    return metric.help if metric.tier == "core" else f"{metric.help}; {metric.tier}"


def setting_list() -> str:
    """Every setting."""
    return listing(
        (f"`{setting.key}` = {_written(setting.default)}", f"{setting.help}. It may be {setting.allowed}.")
        for setting in SETTINGS
    )


def column_list() -> str:
    """Every column of the process table."""
    from gputop.columns import COLUMNS

    return listing((f"{column.title} (`{column.id}`)", column.definition) for column in COLUMNS)


def glossary_list() -> str:
    """Every term of the glossary, by group; what a finding calls the state of a GPU comes from its rule."""
    from gputop.docs import rules

    parts = []
    for group, title in GROUPS.items():
        parts.append(f"## {title}\n\n{listing((term.name, term.text) for term in TERMS[group])}")
        if group == "gpu state":
            parts.append(
                f"A finding sets the state of its GPUs. By state, the questions of its rules:\n\n{rules.state_list()}"
            )
    return "\n\n".join(parts)


def alias_list() -> str:
    """What a field of the filter is called as well."""
    from gputop.ui.table.filter import ALIASES

    rows = ((f"`{name}`", ", ".join(f"`{other}`" for other in others)) for name, others in ALIASES.items())
    return table(("field", "also"), rows)


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


def host_column_table() -> str:
    """The columns of the overview of hosts watched by ssh, which has no recorded metrics."""
    columns = (column for column in HOST_COLUMNS if not column.recorded)
    return table(("column", "value"), ((column.title, column.help) for column in columns))


def series_list() -> str:
    """Every exported series that is no metric of the model, with its labels."""
    from gputop.prometheus.families import OWN_FAMILIES  # late, as all of Prometheus: few read its page

    labels = {one.name: f" ({', '.join(one.labels)})" if one.labels else "" for one in OWN_FAMILIES}
    return listing((f"`{one.name}`{labels[one.name]}", f"{one.help}.") for one in OWN_FAMILIES)


def host_rule_table() -> str:
    """The recording rules: one series for each host."""
    from gputop.prometheus.rules import RECORDING_RULES

    return table(("series", "meaning"), ((f"`{rule.name}`", rule.help) for rule in RECORDING_RULES))


def alert_table() -> str:
    """The alert rules."""
    from gputop.prometheus.rules import ALERT_RULES

    rows = ((f"`{rule.name}`", rule.severity, rule.hold, f"`{rule.expr}`") for rule in ALERT_RULES)
    return table(("alert", "severity", "for", "condition"), rows)


def dcgm_table() -> str:
    """What the metrics of DCGM exporter are called here."""
    from gputop.prometheus.dcgm import DCGM_METRICS

    rows = (
        (
            f"{one.before}{' (optional)' if one.optional else ''}",
            "same" if one.since == one.before else one.since,
            f"`{one.ours}`" if one.ours else "none",
            one.note,
        )
        for one in DCGM_METRICS
    )
    return table(("before 4.9", "since 4.9", "gputop", "unit, remark"), rows)


def dcgm_label_table() -> str:
    """What the labels of DCGM exporter are called here."""
    from gputop.prometheus.dcgm import DCGM_LABELS

    return table(("DCGM exporter", "gputop"), DCGM_LABELS.items())


TABLES: dict[str, Callable[[], str]] = {
    "metrics": metric_tables,
    "settings": setting_list,
    "columns": column_list,
    "host_columns": host_column_table,
    "glossary": glossary_list,
    "aliases": alias_list,
    "checks": check_list,
    "fields": field_tables,
    "signatures": signature_list,
    "rules": rule_pages,
    "levels": level_list,
    "recipes": recipe_table,
    "series": series_list,
    "host_rules": host_rule_table,
    "alerts": alert_table,
    "dcgm": dcgm_table,
    "dcgm_labels": dcgm_label_table,
}
