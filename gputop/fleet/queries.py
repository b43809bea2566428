"""What is asked of Prometheus: one expression for each value of a host, recorded by the site or not.

The recording rules of `gputop export rules` have one series for each host. Where a site has not installed them, their
expressions are evaluated at each query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gputop.fleet.matchers import Matcher, quoted, restricted
from gputop.prometheus import families as names
from gputop.prometheus.families import HOST
from gputop.prometheus.rules import RECORDING_RULES

TAG = "gputop_value"  # label of an answer that says which value a series is
GPUS, GPUS_BUSY, BUSY, VRAM, POWER, CPU, MEMORY = "gpus", "gpus_busy", "busy", "vram", "power", "cpu", "memory"
JOBS, JOB_COUNT, LOST, SEVERITY, FRAME, HOSTNAME, USER, DOWN = (
    "jobs", "job_count", "lost", "severity", "frame", "hostname", "user", "down",
)  # fmt: skip
# values that a recording rule of the same meaning has
RECORDED: Mapping[str, str] = {
    GPUS: "instance:gputop_gpus:sum",
    GPUS_BUSY: "instance:gputop_gpus_busy:sum",
    BUSY: "instance:gputop_gpu_busy_ratio:avg5m",
    VRAM: "instance:gputop_gpu_vram_used_ratio:sum",
    POWER: "instance:gputop_gpu_power_watts:sum",
    JOB_COUNT: "instance:gputop_jobs:sum",
    LOST: "instance:gputop_lost_gpu_ratio:rate5m",
    SEVERITY: "instance:gputop_finding_severity:max",
}
_RULES = {rule.name: rule.expr for rule in RECORDING_RULES}
_USED, _TOTAL = HOST.named("memory_used_bytes").name, HOST.named("memory_total_bytes").name
_OTHERS: Mapping[str, str] = {
    CPU: HOST.named("cpu_percent").name,
    MEMORY: f"{_USED} / {_TOTAL}",
    JOBS: f"{names.JOBS.name} > 0",
    FRAME: names.FRAME_TIME.name,
    HOSTNAME: f"group without ({', '.join(HOST.words)}) ({names.HOST_INFO.name})",
    USER: f"group without ({', '.join(label for label in names.JOB_INFO.labels if label != USER)}) "
    f'({names.JOB_INFO.name}{{user!=""}})',
    DOWN: "up == 0",
}
FINDINGS = (names.FINDING, names.FINDING_HEADLINE, names.FINDING_LOST, names.FINDING_AGE)
_SEEN_FOR = "1d"  # how long a host without values is listed
_SEEN_STEP = "5m"  # how exactly its end is known where Prometheus keeps only what the rules record


class FleetQueries:
    """The expressions, restricted to the hosts that are wanted. `recorded`: the recording rules to use."""

    def __init__(self, matchers: Sequence[Matcher] = (), recorded: Collection[str] = ()) -> None:
        self.matchers, self.recorded = tuple(matchers), frozenset(recorded)

    def _value(self, value: str) -> str:
        """The expression of one value, restricted."""
        rule = RECORDED.get(value)
        expr = _OTHERS[value] if rule is None else rule if rule in self.recorded else _RULES[rule]
        return restricted(expr, self.matchers)

    def _tagged(self, *values: str) -> str:
        """Several values in one answer, each with its name as a label."""
        return " or ".join(f'label_replace({self._value(one)}, "{TAG}", "{one}", "", "")' for one in values)

    def recorded_count(self) -> str:
        """How many hosts each recording rule has, by its name."""
        rules = '{__name__=~"gputop_gpus|instance:gputop_.+"}'
        inner = ",".join(map(str, self.matchers))
        return f"count by (__name__) ({rules[:-1]}{f',{inner}' if inner else ''}}})"

    def values(self) -> str:
        """All values of all hosts, tagged."""
        without = () if RECORDED[SEVERITY] in self.recorded else (SEVERITY,)  # the findings say it
        return self._tagged(*(value for value in (*RECORDED, *_OTHERS) if value not in without))

    def findings(self) -> str:
        """All findings of all hosts: severity, headline, cost and age, by the names of their families."""
        wanted = "|".join(family.name for family in FINDINGS)
        return f"{{{','.join((f'__name__=~{quoted(wanted)}', *map(str, self.matchers)))}}}"

    def seen(self) -> str:
        """When each host of the last day had values, in Unix time: its newest sample."""
        recorded = f"max_over_time(timestamp({self._value(GPUS)})[{_SEEN_FOR}:{_SEEN_STEP}])"
        return f"last_over_time({self._value(FRAME)}[{_SEEN_FOR}]) or {recorded}"

    def busy(self) -> str:
        """GPU busy of every host."""
        return self._value(BUSY)

    def history(self) -> str:
        """GPU busy and GPU time lost of every host, tagged."""
        return self._tagged(BUSY, LOST)

    def of(self, more: Sequence[Matcher]) -> FleetQueries:
        """The same of fewer hosts."""
        return FleetQueries((*self.matchers, *more), self.recorded)


def usable(counts: Mapping[str, float]) -> frozenset[str]:
    """The recording rules that have every host that reports, from the number of hosts of each."""
    hosts = counts.get(names.GPUS.name, 0.0)
    return frozenset(rule for rule in RECORDED.values() if counts.get(rule, 0.0) >= max(1.0, hosts))
