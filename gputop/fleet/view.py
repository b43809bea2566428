"""The answers of Prometheus as lines of the overview: which series belongs to which host, and what it says of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from types import MappingProxyType
from typing import Literal

from gputop import finding_text
from gputop.fleet import queries
from gputop.fleet.promql import Labels, Sample
from gputop.frozen_dataclass import frozen_dataclass
from gputop.hosts.overview import Badge, HostRow, no_gpu, unjudged
from gputop.labels import amount
from gputop.prometheus import families as names
from gputop.safe.text import clean

OLD_S = 120.0  # from this age values are marked as old, as the alert GputopStale has it
LONGEST_NAME = 120
_LONGEST_HEADLINE = 200
_MOST_RATIO, _MOST_WATTS, _MOST_COUNT = 1.05, 1e6, 99_999  # a rate may exceed its whole a little
_SEVERITIES: Mapping[str, int] = {"info": 1, "warn": 2, "crit": 3}
_BY_NUMBER: Mapping[float, Badge] = {2.0: "warn", 3.0: "crit"}
_OF_FINDING = frozenset((*names.FINDING_LABELS, "primary", "headline", "__name__"))
_NOT_SCRAPED = "exporter down or unreachable (up is 0)"
_NO_SERIES = "the target has no gputop metrics"
_NO_NEW = "no new samples"

SshName = Literal["instance", "hostname"]
HostKey = frozenset[tuple[str, str]]  # the labels of its target


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FleetFinding:
    """One finding of a host, as it is exported."""

    rule: str
    severity: Literal["info", "warn", "crit"]
    kind: str  # of the subject
    subject: str
    gpus: str
    headline: str
    primary: bool
    lost_share: float | None = None  # of the time of its GPUs
    since_s: float | None = None

    @property
    def sentence(self) -> str:
        """Subject and headline; a host's own name stands beside it."""
        return self.headline if self.kind == "host" or not self.subject else f"{self.subject}: {self.headline}"

    @property
    def urgency(self) -> tuple[int, bool, float]:
        """What findings are ordered by: severity, the leading one, cost."""
        return -_SEVERITIES[self.severity], not self.primary, -(self.lost_share or 0.0)


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """A host of the fleet. Its line has the age of its values at the time of the answer."""

    row: HostRow
    key: HostKey
    ssh_name: str  # as Prometheus has it: not checked
    hostname: str  # empty if unknown
    findings: tuple[FleetFinding, ...] = ()

    @property
    def instance(self) -> str:
        """The target as Prometheus calls it."""
        return clean(dict(self.key).get("instance", ""), LONGEST_NAME)


class FleetAnswer:
    """What one poll has found."""

    def __init__(self, values: Iterable[Sample], findings: Iterable[Sample]) -> None:
        self.at_s = 0.0  # by the clock of Prometheus; 0 if it has no host
        self.values: dict[str, list[Sample]] = defaultdict(list)
        for sample in values:
            self.at_s = max(self.at_s, sample.at_s)
            self.values[sample.labels.get(queries.TAG, "")].append(sample)
        self.findings = tuple(findings)
        self.reporting = tuple(target(one.labels) for one in self.values[queries.GPUS])  # hosts with values


def hosts(answer: FleetAnswer, seen: Mapping[HostKey, float], ssh_name: SshName = "instance") -> list[FleetHost]:
    """All hosts by name, also those that have no values now. `seen`: when each had some, in Unix time."""
    targets = Targets((*answer.reporting, *seen))
    found = {key: _Values(key) for key in targets.keys}
    for value, samples in answer.values.items():
        for sample in samples:
            if key := targets.of(sample.labels):
                found[key].add(value, sample)
    for key, at_s in seen.items():
        found[key].seen_s = at_s
    for key, findings in _findings(answer.findings, targets).items():
        found[key].findings = findings
    called = _names(found.values(), ssh_name)
    made = (_host(values, called[key], answer.at_s, ssh_name) for key, values in found.items())
    return sorted(made, key=lambda host: host.row.name)


def target(labels: Labels) -> HostKey:
    """The labels of the target, from a series that has no others."""
    return frozenset((name, value) for name, value in labels.items() if name not in (queries.TAG, "__name__"))


class Targets:
    """Which target a series belongs to: series of rules and findings have more labels than the target has."""

    def __init__(self, keys: Iterable[HostKey]) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        self._by_instance: dict[str, list[HostKey]] = defaultdict(list)
        for key in self.keys:
            self._by_instance[dict(key).get("instance", "")].append(key)

    def of(self, labels: Labels) -> HostKey | None:
        """The target of a series; None if it is none of these, or cannot be told."""
        alike = self._by_instance.get(labels.get("instance", ""), ())
        if len(alike) == 1:
            return alike[0]
        fitting = [key for key in alike if all(labels.get(name) == value for name, value in key)]
        return fitting[0] if len(fitting) == 1 else None


class _Values:
    """The values of one host as they are read."""

    def __init__(self, key: HostKey) -> None:
        self.key, self.labels = key, MappingProxyType(dict(key))
        self.numbers: dict[str, float] = {}
        self.jobs: Counter[str] = Counter()
        self.users: set[str] = set()
        self.hostname = ""
        self.down = False
        self.seen_s: float | None = None
        self.findings: tuple[FleetFinding, ...] = ()

    def add(self, value: str, sample: Sample) -> None:
        labels = sample.labels
        if value == queries.HOSTNAME:
            self.hostname = labels.get("hostname", "")
        elif value == queries.USER:
            self.users.add(clean(labels.get("user", ""), LONGEST_NAME))
        elif value == queries.DOWN:
            self.down = True
        elif sample.value is None:
            return
        elif value == queries.JOBS:
            self.jobs[labels.get("state", "")] = _count(sample.value)
        else:
            self.numbers.setdefault(value, sample.value)


def _count(value: float) -> int:
    return int(min(max(value, 0.0), _MOST_COUNT))


def _findings(samples: Iterable[Sample], targets: Targets) -> dict[HostKey, tuple[FleetFinding, ...]]:
    """The findings of each host, the most urgent first. Series of one finding have its labels in common."""
    about: dict[tuple[HostKey, tuple[str, ...]], dict[str, Sample]] = {}
    for sample in samples:
        labels = sample.labels
        key = targets.of({name: value for name, value in labels.items() if name not in _OF_FINDING})
        if key is None or labels.get("severity") not in _SEVERITIES:
            continue
        identity = tuple(labels.get(name, "") for name in names.FINDING_LABELS)
        about.setdefault((key, identity), {})[labels.get("__name__", "")] = sample
    found: dict[HostKey, list[FleetFinding]] = defaultdict(list)
    for (key, _), series in about.items():
        if names.FINDING.name in series:
            found[key].append(_finding(series))
    return {key: tuple(sorted(made, key=lambda one: one.urgency)) for key, made in found.items()}


def _finding(series: Mapping[str, Sample]) -> FleetFinding:
    labels = series[names.FINDING.name].labels
    headline = series.get(names.FINDING_HEADLINE.name)
    lost, since = (series.get(family.name) for family in (names.FINDING_LOST, names.FINDING_AGE))
    rule = clean(labels.get("rule", ""), LONGEST_NAME)
    return FleetFinding(
        rule=rule,
        severity=labels["severity"],  # type: ignore[arg-type]  # one of the three
        kind=clean(labels.get("kind", ""), LONGEST_NAME),
        subject=clean(labels.get("subject", ""), LONGEST_NAME),
        gpus=clean(labels.get("gpus", ""), LONGEST_NAME),
        headline=clean(headline.labels.get("headline", ""), _LONGEST_HEADLINE) if headline else rule,
        primary=labels.get("primary") == "true",
        lost_share=None if lost is None or lost.value is None else min(max(lost.value, 0.0), 1.0),
        since_s=None if since is None or since.value is None else max(since.value, 0.0),
    )


def _names(values: Iterable[_Values], ssh_name: SshName) -> dict[HostKey, str]:
    """What each host is called: what ssh gets, and of several with one name what distinguishes them."""
    by_name: dict[str, list[_Values]] = defaultdict(list)
    for one in values:
        by_name[clean(_ssh_name(one, ssh_name), LONGEST_NAME) or "(no instance)"].append(one)
    found: dict[HostKey, str] = {}
    for name, alike in by_name.items():
        instances = {one.labels.get("instance", "") for one in alike}
        for one in alike:
            if len(alike) == 1:
                found[one.key] = name
            elif len(instances) == len(alike):  # several ports of one address
                found[one.key] = clean(one.labels.get("instance", ""), LONGEST_NAME)
            else:
                found[one.key] = f"{name} ({_distinct(one, alike)})"
    return found


def _distinct(one: _Values, alike: Sequence[_Values]) -> str:
    """The values of the labels in which targets differ."""
    varying = sorted(
        name
        for name in {name for each in alike for name in each.labels}
        if len({each.labels.get(name) for each in alike}) > 1
    )
    return clean(", ".join(one.labels.get(name, "") for name in varying), LONGEST_NAME)


def _ssh_name(values: _Values, by: SshName) -> str:
    """What ssh gets: the instance without its port, or the host name where that is wanted and known."""
    return values.hostname if by == "hostname" and values.hostname else host_of(values.labels.get("instance", ""))


def host_of(instance: str) -> str:
    """The host of a target such as `dgx-07:9400`, `[2001:db8::7]:9400` or `http://dgx-07:9400/metrics`."""
    place = instance.partition("://")[2] or instance
    place = place.partition("/")[0]
    if place.startswith("["):
        return place[1:].partition("]")[0]
    try:
        return str(ip_address(place))
    except ValueError:
        return place.rpartition(":")[0] if place.rpartition(":")[2].isdecimal() and ":" in place else place


def _host(values: _Values, name: str, at_s: float, ssh_name: SshName) -> FleetHost:
    return FleetHost(
        row=_row(values, name, at_s),
        key=values.key,
        ssh_name=_ssh_name(values, ssh_name),
        hostname=clean(values.hostname, LONGEST_NAME),
        findings=values.findings,
    )


def _row(values: _Values, name: str, at_s: float) -> HostRow:
    """Its line; of a host without values when it had some, and why there are none."""
    number = values.numbers.get
    gpus = number(queries.GPUS)
    if gpus is None:
        age_s = None if values.seen_s is None else max(0.0, at_s - values.seen_s)
        return HostRow(name=name, state="lost", why=_NOT_SCRAPED if values.down else _NO_SERIES, age_s=age_s)
    frame_s, lost = number(queries.FRAME), _within(number(queries.LOST), _MOST_RATIO)
    age_s = None if frame_s is None else max(0.0, at_s - frame_s)
    old = age_s is not None and age_s > OLD_S
    badge, text = _verdict(values)
    return HostRow(
        name=name,
        state="stale" if old else "live",
        why=_NO_NEW if old else "",
        age_s=age_s,
        gpus=_count(gpus),
        gpus_busy=None if (busy := number(queries.GPUS_BUSY)) is None else _count(busy),
        busy_percent=_percent(number(queries.BUSY)),
        vram_percent=_percent(number(queries.VRAM)),
        power_watts=_within(number(queries.POWER), _MOST_WATTS),
        cpu_percent=_percent(number(queries.CPU)),
        memory_percent=_percent(number(queries.MEMORY)),
        jobs=_jobs(values),
        users=tuple(sorted(values.users)),
        gpus_lost=None if lost is None or (not lost and unjudged(+values.jobs)) else lost * _count(gpus),
        badge=badge,
        finding=text,
        findings=sum(finding.severity != "info" for finding in values.findings),
    )


def _within(value: float | None, most: float) -> float | None:
    """A value that can be; others are unknown."""
    return value if value is not None and 0 <= value <= most else None


def _percent(ratio: float | None) -> float | None:
    known = _within(ratio, _MOST_RATIO)
    return None if known is None else 100 * known


def _jobs(values: _Values) -> int | None:
    if states := sum(values.jobs.values()):
        return states
    count = values.numbers.get(queries.JOB_COUNT)
    return None if count is None else _count(count)


def _verdict(values: _Values) -> tuple[Badge, str]:
    """The worst finding; without one the state of the jobs, as on the overview of ssh hosts."""
    worst = values.findings[0] if values.findings else None
    if worst and (worst.severity != "info" or worst.primary):
        return worst.severity, worst.sentence
    recorded = _BY_NUMBER.get(values.numbers.get(queries.SEVERITY, 0.0))
    if recorded and not values.findings:  # a Prometheus that keeps only what rules record
        return recorded, "open it for the finding"
    if not values.numbers.get(queries.GPUS):
        return "unknown", no_gpu()
    jobs = _jobs(values)
    if jobs is None:
        return "", ""
    text = finding_text.counts_text(values.jobs) if values.jobs or not jobs else amount(jobs, "job")
    # `+` leaves out states that no job is in
    return unjudged(+values.jobs) or ("ok" if jobs else ""), text
