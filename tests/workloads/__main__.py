"""python -m tests.workloads [--rules] [NAME ...]: plays the workloads and their twins; what was measured, as a table.

Without --rules only the signals are measured, which takes less than a minute a case. With it each case is watched for
as long as its rule may take, and every finding is printed with the second at which it came.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gputop.diagnose.finding import Finding
from gputop.diagnose.rule import RULES
from tests.workloads.cases import CASES, Case
from tests.workloads.confine import NotCovered
from tests.workloads.signals import outside, short, shown, signals
from tests.workloads.stage import Performance, Play, perform


def found(seen: Performance) -> Iterator[tuple[float, Finding]]:
    """Findings in the order they came, each with the second at which it did; again when it becomes more severe."""
    known: set[tuple[str, str, bool]] = set()
    for update in seen.updates:
        for finding in update.findings:
            if (what := (finding.rule, finding.severity, finding.primary)) not in known:
                known.add(what)
                yield update.frame.wall_s - seen.since_s, finding


def verdict(case: Case, healthy: bool, rules: set[str]) -> list[str]:
    """What is wrong with the rules that spoke."""
    wrong = [f"{rule} spoke" for rule in case.must_not if rule in rules]
    if case.plants not in RULES:
        print(f"    there is no rule {case.plants} yet")
    elif (case.plants in rules) is healthy:
        wrong.append(f"{case.plants} {'spoke' if healthy else 'was silent'}")
    return wrong


def play(case: Case, *, healthy: bool, rules: bool) -> bool:
    """Plays one, prints what was seen; whether it is as it should be."""
    title = f"{case.name} ({case.plants})" + (", healthy twin" if healthy else "")
    try:
        (seen,) = perform(Play(case, healthy), seconds=case.seconds if rules else case.look_s)
    except NotCovered as why:
        print(f"{title}: not covered: {why}", flush=True)
        return True
    of, bounds = shown(signals(seen)), case.twin if healthy else case.shows
    findings = list(found(seen))
    wrong = outside(of, bounds)
    if rules:
        wrong += verdict(case, healthy, {finding.rule for _, finding in findings})
    print(f"{title}: {'; '.join(wrong) if wrong else 'ok'}")
    print("   ", ", ".join(f"{name} {short(value)}" for name, value in of.items() if value is not None), flush=True)
    for after_s, one in findings:
        place = "primary, " if one.primary else ""
        print(f"    {after_s:4.0f} s {one.rule} ({place}{one.severity}): {one.headline}", flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="parts of names; all without")
    parser.add_argument("--rules", action="store_true", help="as long as the rules need")
    parser.add_argument("--no-twins", action="store_true", help="only those with a fault")
    options = parser.parse_args()
    twins = (False,) if options.no_twins else (False, True)
    wanted = [case for case in CASES if not options.name or any(part in case.name for part in options.name)]
    played = [play(case, healthy=healthy, rules=options.rules) for case in wanted for healthy in twins]
    return 0 if all(played) else 1


if __name__ == "__main__":
    sys.exit(main())
