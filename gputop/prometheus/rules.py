"""Recording and alert rules for Prometheus, made of the names of the families.

What an overview of many hosts reads: one series for each host, with the labels of its target (`instance`, and what a
site adds). `gputop docs prometheus` lists them; `up` and `gputop_host_info` add hosts that are down, and host names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from gputop.frozen_dataclass import frozen_dataclass
from gputop.prometheus import families as names
from gputop.prometheus.families import GPU, Family
from gputop.severity import LOST, Severity

WINDOW = "5m"  # of averages and rates


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """One series for each host, computed by Prometheus at every evaluation."""

    name: str
    help: str
    expr: str


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """A condition that must hold for some time before somebody is told."""

    name: str
    expr: str
    hold: str
    severity: str  # warning or critical, as Alertmanager's documentation has them
    summary: str
    description: str


def aggregated(how: str, expr: str, *families: Family, over: tuple[str, ...] = ()) -> str:
    """An aggregation to the labels of the target: without those of the families."""
    labels = dict.fromkeys(label for family in families for label in family.labels)
    return f"{how} without ({', '.join((*labels, *over))}) ({expr})"


_BUSY, _POWER = GPU.named("busy_percent"), GPU.named("power_watts")
_USED, _TOTAL = GPU.named("vram_used_bytes"), GPU.named("vram_total_bytes")
_CARDS = f'unless on (instance, uuid) {names.GPU_INFO.name}{{parent_uuid!=""}}'  # instances of MIG count with their GPU
_NONE = f"0 * {names.GPUS.name}"  # of a host without any
_BUSY_CARDS = f"({_BUSY.name} >= 0.01 and {names.GPU_UP.name} == 1) {_CARDS}"  # BUSY_PERCENT of hosts/overview.py
_LOST_RATE = aggregated("sum", f"rate({names.LOST.name}[{WINDOW}])", names.LOST)

RECORDING_RULES = (
    RecordingRule(name="instance:gputop_gpus:sum", help="number of GPUs", expr=names.GPUS.name),
    RecordingRule(
        name="instance:gputop_gpu_up:sum",
        help="number of GPUs that answer",
        expr=aggregated("sum", f"{names.GPU_UP.name} {_CARDS}", names.GPU_UP),
    ),
    RecordingRule(
        name="instance:gputop_gpu_busy_ratio:avg5m",
        help="GPU busy, mean of the GPUs that answer, over 5 min (1 is 100 %)",
        expr=aggregated("avg", f"avg_over_time({_BUSY.name}[{WINDOW}]) and {names.GPU_UP.name} == 1", _BUSY),
    ),
    RecordingRule(
        name="instance:gputop_gpus_busy:sum",
        help="number of GPUs that are busy",
        expr=f"{aggregated('count', _BUSY_CARDS, _BUSY)} or 0 * {aggregated('count', _BUSY.name, _BUSY)}"
        f" or {names.GPUS.name} == 0",
    ),
    RecordingRule(
        name="instance:gputop_gpu_power_watts:sum",
        help="power of all GPUs",
        expr=aggregated("sum", f"{_POWER.name} {_CARDS}", _POWER),
    ),
    RecordingRule(
        name="instance:gputop_gpu_vram_used_ratio:sum",
        help="device memory in use, of all that is installed (1 is 100 %)",
        expr=" / ".join(aggregated("sum", f"{each.name} {_CARDS}", each) for each in (_USED, _TOTAL)),
    ),
    RecordingRule(
        name="instance:gputop_jobs:sum",
        help="number of jobs and other GPU users",
        expr=aggregated("sum", names.JOBS.name, names.JOBS),
    ),
    RecordingRule(
        name="instance:gputop_jobs_found:sum",
        help="number of those in which a finding needs attention",
        expr=aggregated("sum", f'{names.JOBS.name}{{state="found"}}', names.JOBS),
    ),
    RecordingRule(
        name="instance:gputop_finding_severity:max",
        help="worst severity of all findings: 0 none, 1 info, 2 warn, 3 crit",
        expr=f"{aggregated('max', names.FINDING.name, names.FINDING)} or {_NONE}",
    ),
    RecordingRule(
        name="instance:gputop_lost_gpu_ratio:rate5m",
        help="share of the GPU time that is lost, over 5 min (1 is 100 %)",
        expr=f"{_LOST_RATE} / {names.GPUS.name} or {_NONE}",
    ),
)

_MOST_LOST = dict(LOST)  # by severity, the share from which on a loss has it
_HEADLINE_LABELS = ("instance", "rule", "subject", "gpus", "job_id")
_HEADLINE = (
    "{{ with printf `"
    + f"{names.FINDING_HEADLINE.name}{{{','.join(f'{name}=%q' for name in _HEADLINE_LABELS)}}}"
    + f"` {' '.join(f'$labels.{name}' for name in _HEADLINE_LABELS)} | query }}}}"
    + '{{ . | first | label "headline" }}{{ else }}{{ $labels.rule }}{{ end }}'
)
_STEPS = "Evidence and steps: `gputop diagnose` on {{ $labels.instance }}; the rule: `gputop rules {{ $labels.rule }}`."


def _lost_for_an_hour(severity: Severity) -> str:
    rate = aggregated("sum", f"rate({names.LOST.name}[1h])", names.LOST)
    return f"{rate} / {names.GPUS.name} >= {_MOST_LOST[severity]:g}"


ALERT_RULES = (
    AlertRule(
        name="GputopFindingCritical",
        expr=f'{names.FINDING.name}{{severity="crit"}}',
        hold="2m",
        severity="critical",
        summary="{{ $labels.subject }}: " + _HEADLINE,
        description=_STEPS,
    ),
    AlertRule(
        name="GputopFindingWarning",
        expr=f'{names.FINDING.name}{{severity="warn",primary="true"}}',
        hold="10m",
        severity="warning",
        summary="{{ $labels.subject }}: " + _HEADLINE,
        description=_STEPS,
    ),
    AlertRule(
        name="GputopGpuTimeLost",
        expr=_lost_for_an_hour("warn"),
        hold="15m",
        severity="warning",
        summary="{{ $labels.instance }}: {{ $value | humanizePercentage }} of GPU time lost in the last hour",
        description="By cause: `sum by (rule, job_name) (rate("
        + names.LOST.name
        + '{instance="{{ $labels.instance }}"}[1h]))`.',
    ),
    AlertRule(
        name="GputopGpuLost",
        expr=f'{names.GPU_CONDITION.name}{{condition="lost"}} == 1',
        hold="1m",
        severity="critical",
        summary="{{ $labels.instance }}: GPU {{ $labels.gpu }} lost",
        description="The driver no longer reaches {{ $labels.uuid }}. See `dmesg` for an Xid error on that host.",
    ),
    AlertRule(
        name="GputopGpuNotAnswering",
        expr=f'{names.GPU_CONDITION.name}{{condition=~"hung|starting"}} == 1',
        hold="5m",
        severity="warning",
        summary="{{ $labels.instance }}: GPU {{ $labels.gpu }} does not answer",
        description="Driver calls for {{ $labels.uuid }} do not return; its metrics are the last known ones.",
    ),
    AlertRule(
        name="GputopStale",
        expr=f"time() - {names.FRAME_TIME.name} > 120",
        hold="5m",
        severity="warning",
        summary="{{ $labels.instance }}: no new samples for {{ $value | humanizeDuration }}",
        description="gputop does not sample, or its text file is not replaced: it may have been killed.",
    ),
    AlertRule(
        name="GputopDown",
        expr=f"up == 0 and on (instance) last_over_time({names.BUILD.name}[1d])",
        hold="5m",
        severity="warning",
        summary="{{ $labels.instance }}: exporter down or unreachable (up is 0)",
        description="It was scraped within the last day.",
    ),
    AlertRule(
        name="GputopSeriesDropped",
        expr=aggregated("sum", f'{names.DROPPED.name}{{of!="process"}}', names.DROPPED) + " > 0",
        hold="30m",
        severity="warning",
        summary="{{ $labels.instance }}: {{ $value }} series are not exported",
        description="Raise --max-series of `gputop export prometheus`, or lower --processes.",
    ),
)


def rule_file() -> str:
    """The rules as a file for `rule_files` of Prometheus."""
    return "\n".join((*_header(), *_recording(), *_alerts(), ""))


def _header() -> Iterator[str]:
    yield "# Rules for Prometheus, printed by `gputop export rules`."
    yield "# Name this file in rule_files of prometheus.yml; check it with `promtool check rules FILE`."
    yield "groups:"


def _recording() -> Iterator[str]:
    yield "  # one series for each host"
    yield "  - name: gputop-hosts"
    yield "    rules:"
    for rule in RECORDING_RULES:
        yield f"      # {rule.help}"
        yield f"      - record: {rule.name}"
        yield f"        expr: {json.dumps(rule.expr)}"


def _alerts() -> Iterator[str]:
    yield "  - name: gputop-alerts"
    yield "    rules:"
    for rule in ALERT_RULES:
        yield f"      - alert: {rule.name}"
        yield f"        expr: {json.dumps(rule.expr)}"
        yield f"        for: {rule.hold}"
        yield "        labels:"
        yield f"          severity: {rule.severity}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(rule.summary)}"
        yield f"          description: {json.dumps(rule.description)}"
