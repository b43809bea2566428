"""Rules about gputop itself: what it costs, and what it cannot see."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Abstained, Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.sums import KEPT_S
from gputop.diagnose.unjudged import unjudged
from gputop.diagnose.view import View
from gputop.model import Role

_READS_A_SECOND = 250  # threads that are looked at


@rule(
    "self-overhead",
    "Does gputop itself cost too much?",
    level=Level.NEVER,
    state="",
    short="",
    number="M1",
    rows=(),
    needs=(),
    alone=True,
)
def self_overhead(view: View) -> Iterator[Finding]:
    """Its CPU time, the time inside driver calls, and threads that are looked at less often than they should be."""
    host, frame = view.host(), view.frame
    evidence = []
    seconds = min(view.limit("window_s"), KEPT_S)  # there is no longer memory of it
    cost, driver = (view.mean("monitor", name, seconds) for name in ("cost_percent", "driver_percent"))
    if view.above(cost, "cpu_percent"):
        text = f"gputop uses {cost or 0:.1f} % of a core"
        evidence.append(Evidence(text=text, value=cost, unit="%", limit=view.limit("cpu_percent")))
    if view.above(driver, "driver_percent"):
        text = f"calls of the driver take {10 * (driver or 0):.0f} ms a second of a GPU"
        evidence.append(Evidence(text=text, value=driver, unit="%", limit=view.limit("driver_percent")))
    if slow := frame.note("slow"):
        evidence.append(Evidence(text=slow.text))
    threads = sum(process.threads or 0 for process in frame.processes if process.role is Role.TRAINER)
    every_s = threads / _READS_A_SECOND
    if view.above(every_s, "threads_s"):
        text = f"{threads} threads of trainers are looked at every {every_s:.0f} s only"
        evidence.append(Evidence(text=text, value=every_s, unit="s", limit=view.limit("threads_s")))
    if evidence:
        yield view.found(
            host,
            "info",
            "is watched at some cost",
            evidence=tuple(evidence),
            steps=tuple(_cheaper(asks_driver=bool(frame.gpus))),
            confidence=0.9,
        )


def _cheaper(*, asks_driver: bool) -> Iterator[Step]:
    yield Step(text="look less often", command="gputop --interval 5")
    if asks_driver:
        yield Step(text="leave out the activity of the units", command="gputop --gpm off")
        yield Step(text="leave the driver alone", command="gputop --no-nvml")


@rule(
    "blind-spots",
    "What could not be judged, and why?",
    level=Level.NEVER,
    state="",
    short="",
    number="M2",
    rows=(),
    needs=(),
    partly=("busy_percent", "gpus"),
    alone=True,
)
def blind_spots(view: View) -> Iterator[Finding]:
    """What other rules could not read, though somebody could: with the rules that are silent for want of it.

    And GPUs in use of which no rule can say anything, as who works on them cannot be seen or has only begun.
    """
    spots: dict[tuple[str, str], list[str]] = {}
    unlocks: dict[str, None] = {}
    for one in view.abstained:
        for missing in one.missing:
            if missing.reason in ("denied", "unsupported"):
                rules = spots.setdefault((missing.metric, missing.reason), [])
                if one.rule not in rules:
                    rules.append(one.rule)
                if unlock := _unlock(one):
                    unlocks[unlock] = None
    if spots:
        silent = {rule for rules in spots.values() for rule in rules}
        yield view.found(
            view.host(),
            "info",
            f"cannot be judged by {len(silent)} {'rule' if len(silent) == 1 else 'rules'} for want of "
            f"{len(spots)} {'signal' if len(spots) == 1 else 'signals'}",
            evidence=tuple(
                Evidence(text=f"{metric} is {reason}: {', '.join(rules)} cannot judge")
                for (metric, reason), rules in spots.items()
            ),
            steps=tuple(Step(text=unlock) for unlock in unlocks),
            confidence=1.0,
            grade="driver",
        )
    for gpu, missing in unjudged(view):
        view.abstain(gpu, missing)


def _unlock(one: Abstained) -> str | None:
    return one.unlock or next((missing.unlock for missing in one.missing if missing.unlock), None)
