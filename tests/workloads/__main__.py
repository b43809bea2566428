"""python -m tests.workloads [--rules] [NAME ...]: plays the workloads and their twins; what was measured, as a table.

Without --rules only the signals are measured, which takes less than a minute a case. With it each case is watched for
as long as its rule may take, and every finding is printed with the second at which it came.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from tests.workloads.cases import CASES, Case
from tests.workloads.confine import NotCovered
from tests.workloads.signals import outside, short, shown, signals
from tests.workloads.stage import Performance, Play, perform


def found(seen: Performance) -> Iterator[str]:
    """Findings in the order they came: seconds after the start, severity, rule, headline."""
    known: set[tuple[str, str]] = set()
    for update in seen.updates:
        for finding in update.findings:
            if (finding.rule, finding.severity) not in known:
                known.add((finding.rule, finding.severity))
                what = f"{'*' if finding.primary else ' '}{finding.rule} {finding.severity}: {finding.headline}"
                yield f"{update.frame.wall_s - seen.since_s:6.0f} s {what}"


def play(case: Case, *, healthy: bool, rules: bool) -> bool:
    """Plays one, prints what was seen; whether it is as it should be."""
    title = f"{case.name} ({case.plants})" + (", healthy twin" if healthy else "")
    try:
        (seen,) = perform(Play(case, healthy), seconds=case.seconds if rules else case.look_s)
    except NotCovered as why:
        print(f"{title}: not covered: {why}", flush=True)
        return True
    of, bounds = shown(signals(seen)), case.twin if healthy else case.shows
    wrong = outside(of, bounds)
    print(f"{title}: {'; '.join(wrong) if wrong else 'ok'}")
    print("   ", ", ".join(f"{name} {short(value)}" for name, value in of.items() if value is not None), flush=True)
    for line in found(seen):
        print("   ", line, flush=True)
    return not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="*", help="parts of names; all without")
    parser.add_argument("--rules", action="store_true", help="as long as the rules need")
    options = parser.parse_args()
    wanted = [case for case in CASES if not options.name or any(part in case.name for part in options.name)]
    played = [play(case, healthy=healthy, rules=options.rules) for case in wanted for healthy in (False, True)]
    return 0 if all(played) else 1


if __name__ == "__main__":
    sys.exit(main())
