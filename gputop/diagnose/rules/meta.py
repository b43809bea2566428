"""Rules on gputop itself: its cost, and what it cannot see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.diagnose.finding import Abstained, Evidence, Finding, Step
from gputop.diagnose.job_states import unjudged
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.running_means import KEPT_S
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Missing, Role
from gputop.model.metric_title import metric_title

_READS_A_FRAME = 250  # threads sampled
_LONG_STEP_S = 2.0  # between two frames


@rule(
    "self-overhead",
    "Is gputop's own overhead high?",
    level=Level.NEVER,
    state="",
    short="",
    needs=(),
    alone=True,
)
def self_overhead(view: View) -> Iterator[Finding]:
    """CPU time of gputop, time in driver calls, and threads sampled less often than needed."""
    seconds = min(view.limit("window_s"), KEPT_S)  # the history no longer covers it
    cost, driver = (view.mean("monitor", name, seconds) for name in ("cost_percent", "driver_percent"))
    evidence: list[Evidence] = []
    steps: list[Step] = []
    if view.above(cost, "cpu_percent"):
        text = f"gputop uses {cost or 0:.1f} % of a core"
        limit = view.limit("cpu_percent")
        evidence.append(Evidence(text=text, value=cost, unit="%", limit=limit, sense="healthy_to"))
        steps.append(_slower_step(view))
    if called := _driver(view, driver):
        evidence += called
        steps += (_slower_step(view), *_LEFT_ALONE)
    if late := _threads(view):
        evidence.append(late)
        steps += _sampling_steps(view, costly=bool(steps))
    if evidence:
        yield view.found(
            view.host(),
            "info",
            "gputop's own overhead is high",
            evidence=tuple(evidence),
            steps=tuple(dict.fromkeys(steps)),
            confidence=0.9,
        )


_LEFT_ALONE = (
    Step(text="Turn off GPM metrics (SM and tensor activity)", command="gputop --gpm off"),
    Step(text="Stop querying the driver", command="gputop --no-nvml"),
)


def _driver(view: View, percent: float | None) -> list[Evidence]:
    """Cost of driver calls, and the lower polling rate because of it."""
    evidence = []
    if view.above(percent, "driver_percent"):
        text = f"driver calls take {percent or 0:.1f} % of the time, all GPUs together"
        limit = view.limit("driver_percent")
        evidence.append(Evidence(text=text, value=percent, unit="%", limit=limit, sense="healthy_to"))
    if slow := view.frame.note("slow"):
        evidence.append(Evidence(text=slow.text))
    return evidence


def _threads(view: View) -> Evidence | None:
    """A fixed number is sampled per frame, whatever its interval."""
    threads = sum(process.threads or 0 for process in view.frame.processes if process.role is Role.TRAINER)
    every_s = threads / _READS_A_FRAME * view.usual_step_s
    if not view.above(every_s, "threads_s"):
        return None
    text = f"{threads} trainer threads sampled every {every_s:.0f} s only"
    return Evidence(text=text, value=every_s, unit="s", limit=view.limit("threads_s"), sense="healthy_to")


def _slower_step(view: View) -> Step:
    return Step(
        text="Lengthen the refresh interval", command=f"gputop --interval {max(5, round(2 * view.usual_step_s))}"
    )


def _sampling_steps(view: View, *, costly: bool) -> Iterator[Step]:
    """`costly`: it must sample less often for another reason."""
    if view.usual_step_s >= _LONG_STEP_S and not costly:
        text = f"Shorten the refresh interval: each refresh samples {_READS_A_FRAME} threads"
        yield Step(text=text, command="gputop --interval 1")
    yield Step(text="Open the process of interest (Enter): all of its threads are sampled then")


@rule(
    "blind-spots",
    "Which checks were skipped, and why?",
    level=Level.NEVER,
    state="",
    short="",
    needs=(),
    partly=("busy_percent", "gpus"),
    alone=True,
)
def blind_spots(view: View) -> Iterator[Finding]:
    """Metrics that cannot be read here but could be elsewhere, with the rules that abstain.

    And GPUs in use that cannot be judged because their processes are invisible or new.
    """
    spots: dict[tuple[str, str], list[str]] = {}
    whys: dict[tuple[str, str], str] = {}
    unlocks: dict[str, None] = {}
    seen: set[tuple[str, Missing, str | None]] = set()  # each rule says the same of hundreds of ranks
    for one in view.abstained:
        for missing in one.missing:
            if missing.reason in ("denied", "unsupported", "implausible"):
                if (one.rule, missing, one.unlock) in seen:
                    continue
                seen.add((one.rule, missing, one.unlock))
                rules = spots.setdefault((missing.metric, missing.reason), [])
                if one.rule not in rules:
                    rules.append(one.rule)
                if missing.reason == "implausible":
                    whys[missing.metric, missing.reason] = f" ({missing.unlock})" if missing.unlock else ""
                    unlocks[_COMPARE] = None
                elif unlock := _unlock(one):
                    unlocks[unlock] = None
    if spots:
        silent = {rule for rules in spots.values() for rule in rules}
        yield view.found(
            view.host(),
            "info",
            f"{amount(len(silent), 'check')} skipped, {amount(len(spots), 'metric')} unavailable",
            evidence=tuple(_spot(*spot, whys.get(spot, ""), rules) for spot, rules in spots.items()),
            steps=tuple(map(_unlock_step, unlocks)),
            confidence=1.0,
            grade="driver",
        )
    for gpu, missing in unjudged(view):
        view.abstain(gpu, missing)


def _spot(metric: str, reason: str, why: str, rules: Sequence[str]) -> Evidence:
    return Evidence(text=f"{metric_title(metric)} {reason}{why}; skipped: {', '.join(rules)}")


_COMPARE = "Compare with the driver: nvidia-smi -q -d POWER,CLOCK,TEMPERATURE,MEMORY"


def _unlock_step(unlock: str) -> Step:
    """A command as a copyable step, anything else as text."""
    if unlock.startswith("sudo "):
        return Step(text="Run gputop as root to read hidden values", command=unlock, needs_root=True)
    return Step(text=f"{unlock[:1].upper()}{unlock[1:]}")


def _unlock(one: Abstained) -> str | None:
    known = [missing.unlock for missing in one.missing if missing.unlock and missing.reason != "implausible"]
    doubts = {missing.unlock for missing in one.missing if missing.reason == "implausible"}
    return (None if one.unlock in doubts else one.unlock) or next(iter(known), None)
