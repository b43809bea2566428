"""What would make a finding surer, and what would make it leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputop import thresholds
from gputop.diagnose import Finding
from gputop.ui.advice.scene import Scene
from gputop.ui.draw import Run, fit

NAME, NUMBER, UNTIL = 26, 7, 18  # cells
MEANING = NAME + 1 + NUMBER + 2 + UNTIL


def surer(finding: Finding, scene: Scene) -> Iterator[list[Run]]:
    """For each key that looks into its process what that would have to find; nothing where nothing is to be found."""
    from gputop.profile.training_parts import LINALG, PARTS  # late: with all that reads profiles and traces
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


def limits(known: Mapping[str, tuple[float, float]]) -> Iterator[list[Run]]:
    """What a rule holds numbers against: each limit, where it is for leaving, and, from `MEANING` on, what it means."""
    written = thresholds.written()
    for name, (limit, leaving) in known.items():
        table, _, short = name.rpartition(".")
        number = next((one for one in written.get(table, ()) if one.name == short), None)
        if number is None:
            continue
        until = f"until {'above' if leaving > limit else 'below'} {leaving:.4g}"
        yield [
            Run(fit(short, NAME), "text"),
            Run(f" {limit:>{NUMBER}.4g}  {until:<{UNTIL}}", "text"),
            Run(number.help, "dim"),
        ]
