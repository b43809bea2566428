"""The rules as the manual has them: all in a list, or one in full with its numbers and where they come from."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence

from gputop import thresholds
from gputop.diagnose.further_reading import CHOICES
from gputop.diagnose.limits import DEFAULTS
from gputop.diagnose.rule import Level, Rule
from gputop.diagnose.rules import RULES
from gputop.docs.markdown import listing, table
from gputop.thresholds import Threshold

Tables = Mapping[str, Mapping[str, float]]
LEVELS = {
    Level.HARDWARE: "hardware fault, or hang",
    Level.USE: "GPU not in use",
    Level.CAUSE: "cause of a starved GPU: folded into the finding that it starves",
    Level.STARVED: "input too slow",
    Level.RANKS: "ranks wait for each other",
    Level.DEVICE: "temperature, power and clocks: primary only from a tenth of GPU time lost",
    Level.LINK: "slow link to the GPU",
    Level.EFFICIENCY: "busy, but inefficient",
    Level.BESIDE: "separate problem, such as memory: primary if nothing else is",
    Level.HEALTHY: "healthy",
    Level.NEVER: "worth knowing, never primary",
}
SOURCES = """\
Shares are 0 to 1, names in `_percent` 0 to 100, names in `_s` seconds; `NAME_exit` is the threshold for clearing.
Sources: `[S0]` to `[S4]` guides to slow training, `[hdr]` NVIDIA's headers, `[DCGM]` NVIDIA's DCGM, `[M]` measured,
`[src]` source code of another tool, `[I]` inferred. `gputop docs diagnosis` shows how a site overrides them."""


def rule_list() -> str:
    """Every rule with its question, by group."""
    parts = []
    groups = dict.fromkeys(rule.group for rule in RULES.values())
    for group in groups:
        rules = [rule for rule in RULES.values() if rule.group == group]
        rows = ((f"`{rule.id}` (level {rule.level.value})", rule.question) for rule in rules)
        parts.append(f"**{group}**\n\n{listing(rows)}")
    return "\n\n".join(parts)


def state_list() -> str:
    """Every state that a finding gives a GPU, with the questions of its rules."""
    states = dict.fromkeys(rule.state for rule in RULES.values() if rule.state)
    return listing(
        (state, " ".join(rule.question for rule in RULES.values() if rule.state == state)) for state in states
    )


def level_list() -> str:
    """What comes first when several rules hold."""
    return listing((f"{level.value}", f"{words}.") for level, words in LEVELS.items())


def rule_pages() -> str:
    """Every rule in full, without its thresholds."""
    return "\n\n".join(rule_page(rule.id).rstrip("\n") for rule in RULES.values())


def rule_page(id: str) -> str:
    """One rule in full, without its thresholds; KeyError where there is none."""
    rule = RULES[id]
    return "\n\n".join((f"## {rule.id}", rule.question, *_what(rule))) + "\n"


def threshold_page(id: str, site: Tables | None = None) -> str:
    """The thresholds of one rule and those its group shares; KeyError where there is none. `site`: those in effect."""
    rule = RULES[id]
    return "\n\n".join((f"## {rule.id}", rule.question, *_thresholds(rule, site))) + "\n"


def whole_page(id: str, site: Tables | None = None) -> str:
    """One rule in full with its thresholds; KeyError where there is none. `site`: those in effect."""
    rule = RULES[id]
    return "\n\n".join((f"## {rule.id}", rule.question, *_what(rule), *_thresholds(rule, site))) + "\n"


def _thresholds(rule: Rule, site: Tables | None) -> Iterator[str]:
    yield _numbers(rule.id, site)
    if rule.group not in RULES and (shared := _numbers(rule.group, site)):
        yield "Shared by the rules of this group:"
        yield shared
    yield SOURCES


def threshold_pages(site: Tables | None = None) -> str:
    """The thresholds of every rule, after those that several rules share."""
    tables = [name for name in thresholds.written() if name not in RULES]
    shared = (f"## {name}\n\n{_users(name)}\n\n{_numbers(name, site)}" for name in tables)
    each = (f"## {id}\n\n{RULES[id].question}\n\n{_numbers(id, site)}" for id in RULES)
    return "\n\n".join((*shared, *each, SOURCES)) + "\n"


def _users(table: str) -> str:
    """What uses a table that belongs to no rule."""
    return "Used by `gputop explain`." if table.startswith("paste-") else "Shared by several rules."


def _what(rule: Rule) -> Iterator[str]:
    if rule.judge.__doc__:
        yield inspect.cleandoc(rule.judge.__doc__)
    if rule.id in CHOICES:
        yield CHOICES[rule.id]
    state = f", shown as `{rule.state}`" if rule.state else ""
    yield f"Group {rule.group}, level {rule.level.value} ({LEVELS[rule.level]}){state}."
    yield _needed(rule)
    if rule.confirmed_by:
        yield f"Confirmed by a stack, a trace or the program: {', '.join(rule.confirmed_by)}."


def _needed(rule: Rule) -> str:
    """The metrics without which the check is skipped."""
    if not rule.needs and not rule.partly:
        return "Needs no particular metric."
    parts = [_either(rule.needs)] if rule.needs else []
    parts += [f"for some of its checks {_either(rule.partly)}"] if rule.partly else []
    return f"Needs: {'; '.join(parts)}. Without one of them, the check is skipped."


def _either(needs: Sequence[str]) -> str:
    """Names of metrics; of `one or other` either will do."""
    return ", ".join(
        f"either {' or '.join(f'`{name}`' for name in choice)}" if len(choice) > 1 else f"`{choice[0]}`"
        for choice in (need.split(" or ") for need in needs)
    )


def _numbers(name: str, site: Tables | None) -> str:
    """The thresholds of a table; a number that a site set stands beside the shipped one."""
    written = list(thresholds.written().get(name, ()))
    if name in RULES:
        given = {number.name for number in written}
        written += [Threshold(key, value, "") for key, value in DEFAULTS.items() if key not in given]
    here = (site or {}).get(name, {})
    rows = [
        (f"`{number.name}`", _here(number.value, here.get(number.name)), number.help or _unsaid(number.name))
        for number in written
    ]
    return table(("threshold", "value", "meaning and source"), rows) if rows else ""


def _unsaid(name: str) -> str:
    """What a threshold means that has the same meaning everywhere."""
    return {"window_s": "measured over this time", "on_s": "must hold this long before it is shown"}.get(
        name, "threshold for clearing"
    )


def _here(shipped: float, here: float | None) -> str:
    return f"{shipped:g}" if here is None or here == shipped else f"{here:g} (shipped: {shipped:g})"
