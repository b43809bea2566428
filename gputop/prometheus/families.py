"""Names of the series: one for each metric that gputop/model declares, and those of states, jobs and findings.

A metric becomes `gputop_PLACE_NAME` in base units: `busy_percent` of a GPU is `gputop_gpu_busy_ratio`. A metric that is
declared in the model needs no line here; a new kind of object needs an entry in GROUPS.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gputop.frozen_dataclass import frozen_dataclass
from gputop.labels import plural
from gputop.model import (
    Cgroup,
    Disk,
    Engine,
    Gpu,
    GpuShare,
    Host,
    Metric,
    Mount,
    Network,
    Node,
    NvLink,
    PcieErrors,
    Pressure,
    Process,
    Unit,
    metrics,
)
from gputop.model.metric import Tier

Kind = Literal["gauge", "counter", "info"]

GPU_LABELS = ("gpu", "uuid")
JOB_LABELS = ("job_id", "job_name")  # not `job`, which Prometheus sets to the name of the scrape configuration
PROCESS_LABELS = ("pid", *JOB_LABELS, "rank")
FINDING_LABELS = ("rule", "severity", "kind", "subject", "gpus", *JOB_LABELS)

# suffix in the model, suffix in base units, unit, and what a value is multiplied with
_UNITS: dict[Unit, tuple[str, str, str, float]] = {
    Unit.PERCENT: ("_percent", "_ratio", "ratio", 0.01),
    Unit.BYTES: ("_bytes", "_bytes", "bytes", 1.0),
    Unit.BYTES_PER_S: ("_bytes_per_s", "_bytes_per_second", "bytes_per_second", 1.0),
    Unit.PER_S: ("_per_s", "_per_second", "", 1.0),
    Unit.WATTS: ("_watts", "_watts", "watts", 1.0),
    Unit.JOULES: ("_joules", "_joules", "joules", 1.0),
    Unit.CELSIUS: ("_celsius", "_celsius", "celsius", 1.0),
    Unit.MHZ: ("_mhz", "_hertz", "hertz", 1e6),
    Unit.SECONDS: ("_s", "_seconds", "seconds", 1.0),
    Unit.COUNT: ("", "", "", 1.0),
    Unit.FLAG: ("", "", "", 1.0),
}


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All series of one name. `name` is that of the text format, with `_total` of a counter and `_info` of an info.

    There is one object of each, so they are compared by identity: a scrape asks for the family of each of its samples.
    """

    name: str
    help: str
    kind: Kind = "gauge"
    unit: str = ""  # base unit, at the end of the name; empty for counts and states
    labels: tuple[str, ...] = ()

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def base(self) -> str:
        """The name without the suffix of its type, as OpenMetrics declares it."""
        suffix = {"gauge": "", "counter": "_total", "info": "_info"}[self.kind]
        return self.name.removesuffix(suffix)


def _words(name: str, metric: Metric) -> str:
    """The name of a metric in base units, without its place."""
    old, new, _, _ = _UNITS[metric.unit]
    if old and name.endswith(old):
        name = f"{name.removesuffix(old)}{new}"
    elif name.endswith("_per_s"):
        name = f"{name.removesuffix('_per_s')}_per_second"
    if name.endswith("_count"):  # Prometheus reserves that suffix for histograms
        name = plural(2, name.removesuffix("_count"))
    return name if metric.counter else name.removesuffix("_total")


def _family(prefix: str, metric: Metric, labels: tuple[str, ...], note: str) -> Family:
    words = _words(metric.name, metric)
    unit = _UNITS[metric.unit][2]
    unit = unit if words.endswith(unit) else ""
    scale = "1 is 100 %" if metric.unit is Unit.PERCENT else ""
    aside = "; ".join(filter(None, (note, scale)))
    return Family(
        name=f"gputop_{prefix}_{words}{'_total' if metric.counter else ''}",
        help=f"{_sentence(metric.help)}{f' ({aside})' if aside else ''}",
        kind="counter" if metric.counter else "gauge",
        unit=unit,
        labels=labels,
    )


def _sentence(help: str) -> str:
    """A help text with a capital at its start, unless it starts with a name such as fp64."""
    first = help.partition(" ")[0]
    return help if any(map(str.isdigit, first)) else f"{help[0].upper()}{help[1:]}"


class MetricGroup:
    """The metrics of one kind of object at one place: their families, and how to read them.

    `note` is added to each help text. `tier` restricts it to the metrics of a tier.
    """

    def __init__(
        self, owner: type, prefix: str, labels: tuple[str, ...], *, tier: Tier | None = None, note: str = ""
    ) -> None:
        self.owner, self.prefix, self.labels, self.note = owner, prefix, labels, note
        chosen = [one for one in metrics(owner) if tier in (None, one.tier)]
        words = [one for one in chosen if one.unit is Unit.WORD]
        several = _sets(owner)
        self.metrics = tuple(one for one in chosen if one.unit is not Unit.WORD)
        self.words = tuple(one.name for one in words if one.name not in several)
        self.sets = tuple((one.name, self._set(one)) for one in words if one.name in several)

    def _set(self, metric: Metric) -> Family:
        """Of a metric that is a set of words: one series for each word in it, with the word as a label."""
        return Family(
            name=f"gputop_{self.prefix}_{metric.name}",
            help=f"1 for each of the {metric.help}; `none` if there is none",
            labels=(*self.labels, metric.name.rpartition("_")[2].removesuffix("s")),
        )

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """One for each numeric metric, in order."""
        return tuple(_family(self.prefix, one, self.labels, self.note) for one in self.metrics)

    @cached_property
    def scales(self) -> tuple[float, ...]:
        """What each value is multiplied with."""
        return tuple(_UNITS[one.unit][3] for one in self.metrics)

    @cached_property
    def read(self) -> Callable[[Any], tuple[Any, ...]]:
        """The values of an object, in the same order; None is unknown."""
        if len(self.metrics) == 1:
            (only,) = self.metrics
            return lambda thing: (getattr(thing, only.name),)
        return attrgetter(*(one.name for one in self.metrics))

    def named(self, metric: str) -> Family:
        """The family of a metric by its name in the model; KeyError if it has none."""
        for one, family in zip(self.metrics, self.families, strict=True):
            if one.name == metric:
                return family
        raise KeyError(f"{self.owner.__name__} has no numeric metric {metric}")


def _sets(owner: type) -> frozenset[str]:
    """The fields of a class that are sets of words."""
    hints = get_type_hints(owner).items()
    return frozenset(name for name, hint in hints if any(get_origin(part) is frozenset for part in get_args(hint)))


GPU = MetricGroup(Gpu, "gpu", GPU_LABELS, tier="core")
GPU_EXTENDED = MetricGroup(Gpu, "gpu", GPU_LABELS, tier="extended")
NVLINK = MetricGroup(NvLink, "gpu_nvlink", GPU_LABELS, note="counters and rates: sum of its links; else the highest")
PCIE_ERRORS = MetricGroup(PcieErrors, "gpu_pcie_errors", GPU_LABELS, note="since the driver was loaded")
ENGINE = MetricGroup(Engine, "gpu_engine", (*GPU_LABELS, "engine"))
PROCESS = MetricGroup(Process, "process", PROCESS_LABELS)
PROCESS_GPU = MetricGroup(GpuShare, "process_gpu", (*PROCESS_LABELS, *GPU_LABELS))
HOST = MetricGroup(Host, "host", ())
HOST_PRESSURE = MetricGroup(Pressure, "host_pressure", ("resource",))
DISK = MetricGroup(Disk, "disk", ("device",))
MOUNT = MetricGroup(Mount, "mount", ("mountpoint", "fstype"))
NETWORK = MetricGroup(Network, "network", ("device",))
NUMA_NODE = MetricGroup(Node, "numa_node", ("node",))
CGROUP = MetricGroup(Cgroup, "cgroup", ("cgroup",))
CGROUP_PRESSURE = MetricGroup(Pressure, "cgroup_pressure", ("cgroup", "resource"))
GROUPS = (
    GPU, GPU_EXTENDED, NVLINK, PCIE_ERRORS, ENGINE, PROCESS, PROCESS_GPU, HOST, HOST_PRESSURE, DISK, MOUNT, NETWORK,
    NUMA_NODE, CGROUP, CGROUP_PRESSURE,
)  # fmt: skip

# the exporter itself
BUILD = Family(name="gputop_build_info", help="Version of gputop", kind="info", labels=("version",))
FRAME_TIME = Family(
    name="gputop_frame_timestamp_seconds", help="When the newest sample was taken, in Unix time", unit="seconds"
)
FRAME_AGE = Family(
    name="gputop_frame_age_seconds",
    help="Age of the newest sample; in a text file, its age when the file was written",
    unit="seconds",
)
OWN_CPU = Family(
    name="gputop_own_cpu_ratio", help="CPU time of gputop since the sample before (1 is one core)", unit="ratio"
)
OWN_DRIVER = Family(
    name="gputop_own_driver_ratio", help="Time in driver calls since the sample before (1 is 100 %)", unit="ratio"
)
NOTE = Family(name="gputop_note", help="1 for each notice: what is wrong with the driver, or unusual", labels=("key",))
DROPPED = Family(
    name="gputop_dropped_series",
    help="Series left out of this scrape, by kind: beyond the limit of series or of processes",
    labels=("of",),
)

DROPPABLE = ("gpu", "finding", "job", "host", "mount", "network", "disk", "numa node", "cgroup", "process")

# GPUs
GPUS = Family(name="gputop_gpus", help="Number of GPUs, without MIG instances")
GPU_INFO = Family(
    name="gputop_gpu_info",
    help="Properties of a GPU or MIG instance",
    kind="info",
    labels=(*GPU_LABELS, "name", "architecture", "pci_bus_id", "parent_uuid", *GPU.words, *GPU_EXTENDED.words),
)
GPU_UP = Family(
    name="gputop_gpu_up",
    help="1 if the driver answers for the GPU, or the GPU is suspended; 0 if it is lost, hung or not yet initialized",
    labels=GPU_LABELS,
)
GPU_CONDITION = Family(
    name="gputop_gpu_condition",
    help="1 for its condition: ok, starting, hung, lost or asleep",
    labels=(*GPU_LABELS, "condition"),
)
GPU_AGE = Family(
    name="gputop_gpu_age_seconds",
    help="Age of the values of the GPU: of a lost or hung one they are the last known ones",
    unit="seconds",
    labels=GPU_LABELS,
)
GPU_XID = Family(
    name="gputop_gpu_xid_timestamp_seconds",
    help="When gputop last saw this Xid error, in Unix time",
    unit="seconds",
    labels=(*GPU_LABELS, "xid"),
)
GPU_JOB = Family(
    name="gputop_gpu_job_info",
    help="Which jobs use a GPU: to join job names to metrics of GPUs",
    kind="info",
    labels=(*GPU_LABELS, *JOB_LABELS),
)

# the host
HOST_INFO = Family(
    name="gputop_host_info",
    help="Properties of the host",
    kind="info",
    labels=("hostname", *HOST.words),
)
HOST_STATE = Family(
    name="gputop_host_state", help="1 for the state of the host: healthy, judging, found or unknown", labels=("state",)
)

# jobs
JOBS = Family(name="gputop_jobs", help="Number of jobs and other GPU users by state", labels=("state",))
JOB_INFO = Family(
    name="gputop_job_info",
    help="Properties of a job; the user only with --with-users",
    kind="info",
    labels=(*JOB_LABELS, "launcher", "slurm_job", "user"),
)
JOB_STATE = Family(
    name="gputop_job_state",
    help="1 for the state of a job: healthy, judging, found or unknown",
    labels=(*JOB_LABELS, "state"),
)
JOB_GPUS = Family(name="gputop_job_gpus", help="Number of GPUs a job uses", labels=JOB_LABELS)
JOB_PROCESSES = Family(name="gputop_job_processes", help="Number of processes of a job", labels=JOB_LABELS)
JOB_BUSY = Family(
    name="gputop_job_gpu_busy_ratio",
    help="GPU busy, mean of the GPUs of a job (1 is 100 %)",
    unit="ratio",
    labels=JOB_LABELS,
)
JOB_VRAM = Family(name="gputop_job_vram_bytes", help="Device memory that a job holds", unit="bytes", labels=JOB_LABELS)
JOB_STEP = Family(
    name="gputop_job_step_seconds",
    help="Average time of an optimizer step, of the slowest rank; needs `gputop run`",
    unit="seconds",
    labels=JOB_LABELS,
)
JOB_SAMPLES = Family(
    name="gputop_job_samples_per_second",
    help="Training samples of all ranks; needs `gputop run`",
    labels=JOB_LABELS,
)
JOB_DATA_WAIT = Family(
    name="gputop_job_data_wait_ratio",
    help="Share of the step time in which the ranks wait for the next batch, mean; needs `gputop run` (1 is 100 %)",
    unit="ratio",
    labels=JOB_LABELS,
)

PROCESS_INFO = Family(
    name="gputop_process_info",
    help="Properties of a process on a GPU; the user only with --with-users",
    kind="info",
    labels=(*PROCESS_LABELS, "name", "role", "user"),
)

# the diagnosis
FINDING = Family(
    name="gputop_finding",
    help="A finding of a rule, with its severity as value: 1 info, 2 warn, 3 crit; without healthy verdicts",
    labels=(*FINDING_LABELS, "primary"),
)
FINDING_LOST = Family(
    name="gputop_finding_lost_ratio",
    help="Share of the time of its GPUs that a finding costs (1 is 100 %)",
    unit="ratio",
    labels=FINDING_LABELS,
)
FINDING_AGE = Family(
    name="gputop_finding_age_seconds",
    help="How long a finding has held",
    unit="seconds",
    labels=FINDING_LABELS,
)
FINDING_HEADLINE = Family(
    name="gputop_finding_headline_info",
    help="The headline of a finding, which may change while it holds",
    kind="info",
    labels=(*FINDING_LABELS, "headline"),
)
SKIPPED_CHECKS = Family(name="gputop_skipped_checks", help="Number of checks skipped because a metric is unavailable")
LOST = Family(
    name="gputop_lost_gpu_seconds_total",
    help="GPU time lost by cause: time of the GPUs of each primary finding, multiplied by the share that is lost",
    kind="counter",
    labels=("rule", "cause", *JOB_LABELS),
)
OBSERVED = Family(
    name="gputop_observed_gpu_seconds_total",
    help="GPU time observed: that of all GPUs, without MIG instances",
    kind="counter",
)

OWN_FAMILIES = (
    BUILD, FRAME_TIME, FRAME_AGE, OWN_CPU, OWN_DRIVER, NOTE, DROPPED, GPUS, GPU_INFO, GPU_UP, GPU_CONDITION, GPU_AGE,
    GPU_XID, GPU_JOB, HOST_INFO, HOST_STATE, JOBS, JOB_INFO, JOB_STATE, JOB_GPUS, JOB_PROCESSES, JOB_BUSY, JOB_VRAM,
    JOB_STEP, JOB_SAMPLES, JOB_DATA_WAIT, PROCESS_INFO, FINDING, FINDING_LOST, FINDING_AGE, FINDING_HEADLINE,
    SKIPPED_CHECKS, LOST, OBSERVED,
)  # fmt: skip


def families() -> tuple[Family, ...]:
    """Every family that may be exported."""
    of_sets = (family for group in GROUPS for _, family in group.sets)
    return (*OWN_FAMILIES, *(family for group in GROUPS for family in group.families), *of_sets)
