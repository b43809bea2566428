"""The feature vector of one trainer over the last half minute, computed once per evaluation for most rules."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.diagnose.estimators import Period, Shape, swing
from gputop.diagnose.finding import Subject
from gputop.diagnose.gpu_tracker import GpuTracker
from gputop.diagnose.gpu_turns import Turns
from gputop.diagnose.substitutes import Substitute
from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Gpu, Identity, Job, Missing, Process

# points of 100: in steps of two samples and more, a GPU idle for a fifth of the time has samples that much lower
SWING = 40.0
_SWING_SHARE = 0.75  # of the swing that steps of some length have: shorter ones repeat after that time as well


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Trainer:
    """One trainer. Shares are 0-1, CPU is in cores; means over 30 s, None if less than half of that is known.

    GPU values are means over the GPUs it works on: GPUs it leaves unused say nothing about its pace.
    """

    process: Process
    identity: Identity  # of the process
    subject: Subject  # subject of a finding on this trainer
    key: str  # of its tree in the history
    job: Job | None
    tree: tuple[Process, ...]  # itself first
    gpus: tuple[Gpu, ...]
    uuids: tuple[str, ...]  # of these
    works_on: tuple[Gpu, ...]  # without those it leaves unused; all of them before its first work
    cards: Mapping[str, GpuTracker]  # trackers with sub-second samples, by uuid
    turns: Turns | None  # its GPUs, or those of its ranks, work in turns: GPU values are then sums
    peers: int  # other processes that compute on its GPUs
    settled: bool  # its context is old enough to judge its activity
    warm: bool  # settled, and it has used its GPU as far as known
    compiling: bool  # torch.compile or a JIT runs for it
    context_s: float | None  # age of its first CUDA context; None without one
    phase_s: float  # length of its current phase
    seen_s: float  # how much of that was sampled
    work_s: float  # how long it has worked on its GPUs since first seen
    missing: tuple[Missing, ...]  # unreadable metrics of it, its loaders and its GPUs

    duty: float | None  # share of time its GPUs were busy: 1 is always
    touched: float | None  # share of samples with any GPU work
    duty_by: Substitute | None = None  # the metric behind `duty` if it is not utilization
    shape: Shape | None  # of the busy samples of the first GPU it works on
    period: Period | None  # of its steps, where visible
    spacing_s: float  # of those samples
    power_share: float | None  # of the range between idle power and power limit
    clock_share: float | None  # SM clock relative to its maximum
    memory_busy: float | None  # share of time device memory was in use
    sm: float | None
    occupancy: float | None
    tensor: float | None
    dram: float | None
    fp32: float | None
    pcie_rx: float | None  # bytes/s
    pcie_tx: float | None
    nvlink: float | None

    allowed: float | None  # CPUs it may use
    cores: float | None  # CPUs used, with all its processes
    own: float | None  # of that, the trainer process
    main: float | None  # of that, its main thread
    loaders: int  # number of processes
    team: frozenset[Identity]  # their identities
    loader_cpu: float | None  # mean per loader
    loader_low: float | None  # of the least busy
    loader_blocked: float | None
    loader_delayed: float | None  # the same from the kernel's delay accounting
    loader_wait: float | None  # for a CPU
    main_wait: float | None
    run_wait: float | None  # over all its threads
    compute_threads: float | None
    switches: float | None  # voluntary ones per CPU second
    throttled: float | None
    read_bytes: float | None  # bytes/s from storage
    read_chars: float | None  # the same including the page cache
    read_calls: float | None
    write_chars: float | None

    def reading(self, percent: float) -> str:
        """GPU busy, by the metric that measures it: `GPU busy 55 %`."""
        return f"GPU busy {percent:.0f} %" if self.duty_by is None else self.duty_by.reading(percent)

    @property
    def never_reports_busy(self) -> bool:
        """Whether none of its GPUs ever reports utilization, and nothing substitutes it."""
        silent = all(any(one.metric == "busy_percent" for one in gpu.missing) for gpu in self.gpus)
        return bool(self.gpus) and self.duty_by is None and silent

    @property
    def saturation(self) -> float | None:
        """Cores used per core allowed."""
        return self.cores / self.allowed if self.cores is not None and self.allowed else None

    @property
    def input_rate(self) -> float | None:
        """Bytes/s read from files and other programs, without traffic between its own processes."""
        if self.read_chars is None or self.write_chars is None:
            return None
        return max(self.read_bytes or 0.0, self.read_chars - self.write_chars)

    @property
    def is_rank(self) -> bool | None:
        """Whether it is one of several ranks; None if the environment, which has the number, is not readable.

        Its thread names may show it then: these are readable for all users.
        """
        if (world := self.process.world_size) is not None:
            return world > 1
        in_step = self.job is not None and self.job.steps and len(self.job.ranks) > 1
        if self.process.talks or in_step:
            return True
        return None if any(one.metric == "world_size" for one in self.process.missing) else False

    @property
    def thread_budget(self) -> float | None:
        """Number of threads that its CPUs can run: at least one, however small the quota."""
        return max(1.0, self.allowed) if self.allowed is not None else None

    @property
    def lost(self) -> float:
        """Lost share (0-1) of GPU time."""
        return 0.0 if self.duty is None else max(0.0, 1 - self.duty)

    @property
    def has_no_gaps(self) -> bool:
        """Whether no gaps show between its steps: they are too short, or there are none.

        A period without a swing does not count: it appears by chance where steps are shorter than two samples.
        """
        if self.period is None or self.period.seconds < 2 * self.spacing_s or self.shape is None:
            return True
        return self.shape.high - self.shape.low < SWING

    @property
    def step_s(self) -> float | None:
        """Duration of a step in seconds; None if not visible.

        Steps shorter than two and a half samples appear two or three times as long, but with a smaller swing.
        """
        if self.has_no_gaps or self.period is None or self.shape is None:
            return None
        whole = 100 * swing(self.shape.mean / 100, self.period.seconds / self.spacing_s)
        return self.period.seconds if self.shape.high - self.shape.low >= _SWING_SHARE * whole else None
