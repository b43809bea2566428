"""What would make a finding surer, and what would make it leave."""

from __future__ import annotations

from collections.abc import Iterator

from gputop import thresholds, units
from gputop.diagnose import Finding
from gputop.diagnose.steady import OFF_FACTOR
from gputop.ui.advice.scene import Scene, Table
from gputop.ui.draw import Run, fit

NAME, NUMBER = 26, 8  # cells
_TIMES = ("window_s", "on_s")


def surer(finding: Finding, scene: Scene) -> Iterator[list[Run]]:
    """For each key that looks into its process what that would have to find; nothing where nothing is to be found."""
    from gputop.profile.parts import LINALG, PARTS  # late: with all that reads profiles and traces
    from gputop.trace.signatures import SIGNATURES

    wanted = _confirming(finding)
    parts = [part.text for part in (*PARTS, LINALG) if part.name in wanted]
    asked = [one.question for one in SIGNATURES.values() if one.name in wanted]
    if parts and (key := scene.pressed("profile", "a profile of its stacks: ")):
        yield [*key, Run(f"often {' or '.join(parts)}", "text")]
    if asked and (key := scene.pressed("torch", "a trace that says yes to: ")):
        yield [*key, Run(" ".join(asked), "text")]


def _confirming(finding: Finding) -> frozenset[str]:
    from gputop.diagnose.rules import RULES  # late

    rules = (RULES[id] for id in (finding.rule, *finding.causes) if id in RULES)
    return frozenset(name for rule in rules for name in rule.confirmed_by)


def leaving(asked: Table) -> str:
    """For how long it must not hold, and by which limits."""
    return f"{units.ago(OFF_FACTOR * asked['on_s'][0])} in which it does not hold, by limits further back than to come:"


def limits(rule: str, asked: Table, width: int) -> Iterator[list[Run]]:
    """What its rule held numbers against: each limit, by how much further back it is for leaving, what it means."""
    written = thresholds.written()
    for name, (limit, further) in asked.items():
        table, _, short = name.rpartition(".")
        number = next((one for one in written.get(table or rule, ()) if one.name == short), None)
        if number is None or short in _TIMES:
            continue
        yield [
            Run(fit(name, NAME), "text"),
            Run(f"{limit:>{NUMBER}.4g} {'' if short.endswith('_s') else f'±{further:.2g}':<{NUMBER}}", "text"),
            Run(fit(number.help, max(0, width - NAME - 2 * NUMBER - 1)).rstrip(), "dim"),
        ]
