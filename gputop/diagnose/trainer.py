"""The feature vector of one trainer over the last half minute: what most rules judge by, worked out once a tick."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.diagnose.estimators import Period, Shape, swing
from gputop.diagnose.finding import Subject
from gputop.diagnose.gpu_tracker import GpuTracker
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.substitutes import Substitute
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Identity, Job, Missing, Process

# points of 100: in steps of two samples and more, who idles a fifth of the time has samples that much lower
SWING = 40.0
_SWING_SHARE = 0.75  # of the swing that steps of some length have: shorter ones repeat after that time as well


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One trainer. Shares are 0-1 and CPU is in cores; means over 30 s, None where less than half of that is known.

    Figures of GPUs are means over those that it works on: what it leaves unused says nothing of its pace.
    """

    process: Process
    identity: Identity  # of the process
    subject: Subject  # what a finding about it is about
    key: str  # of its tree in the history
    job: Job | None
    tree: tuple[Process, ...]  # itself first
    gpus: tuple[Gpu, ...]
    uuids: tuple[str, ...]  # of these
    works_on: tuple[Gpu, ...]  # those of them that it does not leave unused; all of them before its first work
    cards: Mapping[str, GpuTracker]  # what is remembered of these in finer steps than seconds, by uuid
    turns: Turns | None  # its GPUs, or those of its ranks, work in turns: figures of GPUs are then sums
    peers: int  # other processes that compute on its GPUs
    settled: bool  # its context is old enough for judging what it does
    warm: bool  # so it is, and it has used its GPU as far as anybody can tell
    compiling: bool  # torch.compile or a JIT works for it
    context_s: float | None  # age of its first CUDA context; None without one
    phase_s: float  # for how long it does what it does now
    seen_s: float  # and for how long of that it was watched
    work_s: float  # for how long it has worked on its GPUs while we looked
    missing: tuple[Missing, ...]  # what of it, its loaders and its GPUs could not be read

    duty: float | None  # share of time its GPUs were busy: 1 is all
    touched: float | None  # share of looks at which they had done some work, however little
    duty_by: Substitute | None = None  # what it is measured by, where not by their utilization
    shape: Shape | None  # of the busy samples of the first GPU it works on
    period: Period | None  # of its steps, where it shows
    spacing_s: float  # of those samples
    power_share: float | None  # of what lies between idle and the power limit
    clock_share: float | None  # SM clock of its maximum
    memory_busy: float | None  # share of time device memory was in use
    sm: float | None
    occupancy: float | None
    tensor: float | None
    dram: float | None
    fp32: float | None
    pcie_rx: float | None  # bytes a second
    pcie_tx: float | None
    nvlink: float | None

    allowed: float | None  # CPUs it may use
    cores: float | None  # CPUs it uses, with all its processes
    own: float | None  # of that, the trainer itself
    main: float | None  # of that, its main thread
    loaders: int  # processes
    team: frozenset[Identity]  # these
    loader_cpu: float | None  # mean of one
    loader_low: float | None  # of the least busy
    loader_blocked: float | None
    loader_delayed: float | None  # the same, as the kernel counts it
    loader_wait: float | None  # for a CPU
    main_wait: float | None
    run_wait: float | None  # all its threads
    compute_threads: float | None
    switches: float | None  # voluntary ones, a CPU second
    throttled: float | None
    read_bytes: float | None  # a second, from storage
    read_chars: float | None  # the same with the page cache
    read_calls: float | None
    write_chars: float | None

    def reading(self, percent: float) -> str:
        """How busy its GPUs are, by the metric that it is measured by: `GPU busy 55 %`."""
        return f"GPU busy {percent:.0f} %" if self.duty_by is None else self.duty_by.reading(percent)

    @property
    def mute(self) -> bool:
        """Whether none of its GPUs ever says how busy it is, and nothing stands in for that."""
        silent = all(any(one.metric == "busy_percent" for one in gpu.missing) for gpu in self.gpus)
        return bool(self.gpus) and self.duty_by is None and silent

    @property
    def saturation(self) -> float | None:
        """Cores used of cores allowed."""
        return self.cores / self.allowed if self.cores is not None and self.allowed else None

    @property
    def taken(self) -> float | None:
        """Bytes a second that it reads from others and from files: what its own processes send each other is none."""
        if self.read_chars is None or self.write_chars is None:
            return None
        return max(self.read_bytes or 0.0, self.read_chars - self.write_chars)

    @property
    def ranked(self) -> bool | None:
        """Whether it is one of several ranks; None where the environment, which tells how many, may not be read.

        Its threads then may: everybody can read their names.
        """
        if (world := self.process.world_size) is not None:
            return world > 1
        in_step = self.job is not None and self.job.steps and len(self.job.ranks) > 1
        if self.process.talks or in_step:
            return True
        return None if any(one.metric == "world_size" for one in self.process.missing) else False

    @property
    def room(self) -> float | None:
        """Threads that its CPUs have room for: one is in nobody's way, however small the quota."""
        return max(1.0, self.allowed) if self.allowed is not None else None

    @property
    def lost(self) -> float:
        """Share of the GPU's time that was not used."""
        return 0.0 if self.duty is None else max(0.0, 1 - self.duty)

    @property
    def flat(self) -> bool:
        """No gaps show between its steps: they are too short, or there are none.

        A rhythm without a swing is none: it is found by chance where steps are shorter than two samples.
        """
        if self.period is None or self.period.seconds < 2 * self.spacing_s or self.shape is None:
            return True
        return self.shape.high - self.shape.low < SWING

    @property
    def step_s(self) -> float | None:
        """How long its steps take; None where that does not show.

        Steps of less than two and a half samples seem to be two or three times as long, but they swing less than those.
        """
        if self.flat or self.period is None or self.shape is None:
            return None
        whole = 100 * swing(self.shape.mean / 100, self.period.seconds / self.spacing_s)
        return self.period.seconds if self.shape.high - self.shape.low >= _SWING_SHARE * whole else None
