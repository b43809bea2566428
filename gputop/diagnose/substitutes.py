"""Substitutes for the utilization of a GPU that reports none, such as a MIG instance: one place for all rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gputop.frozen_dataclass import frozen_dataclass
from gputop.model import Frame, Gpu
from gputop.optional_sums import added

_FOR_GOOD = ("unsupported", "denied", "absent")  # lasting reasons: anything else is a gap
_GAP_S = 10.0  # seconds after which a silent substitute is replaced by the next


@frozen_dataclass(frozen=True, slots=True)
class Substitute:
    """A metric used in place of GPU utilization, its display name, and the reason."""

    metric: str
    name: str  # `graphics engine active`: before a percentage
    source: str  # GPM
    why: str  # `no utilization on MIG`
    lower_bound: bool = False  # the GPU may be busier than that

    def reading(self, percent: float) -> str:
        """The metric with its value, and what it substitutes."""
        bound = ", a lower bound" if self.lower_bound else ""
        return f"{self.name} {percent:.0f} % ({self.source}{bound}; {self.why})"

    @property
    def note(self) -> str:
        """The same without a value."""
        bound = ", a lower bound" if self.lower_bound else ""
        return f"GPU busy here is {self.name} ({self.source}{bound}; {self.why})"


def _ladder(frame: Frame, gpu: Gpu, why: str) -> Iterator[tuple[Substitute, float | None]]:
    """Candidate substitutes, best first, each with its current value."""
    active, sm = gpu.graphics_active_percent, gpu.sm_active_percent
    yield Substitute("graphics_active_percent", "graphics engine active", "GPM", why), active
    yield Substitute("sm_active_percent", "SM activity", "GPM", why, lower_bound=True), sm
    used = added(
        share.busy_percent
        for process in frame.processes
        for share in process.gpus
        if share.uuid == gpu.uuid and share.kind != "graphics"
    )
    shares = Substitute("busy_percent", "kernels resident", "sum of its processes", why)
    yield shares, None if used is None else min(100.0, used)


class Substitutes:
    """Which GPUs have a substitute, from frame to frame. A GPU that reports utilization never gets one."""

    def __init__(self) -> None:
        self.of: dict[str, Substitute] = {}  # by uuid
        self._reports: set[str] = set()  # GPUs that have reported utilization
        self._known_s: dict[str, float] = {}  # time of the substitute's last value

    def fill(self, frame: Frame) -> Frame:
        """The frame with substitutes for unknown utilization; the same frame if all GPUs report it."""
        if all(gpu.busy_percent is not None for gpu in frame.gpus):
            self._reports.update(gpu.uuid for gpu in frame.gpus)
            self.of.clear()
            return frame
        gpus = [self._filled(frame, gpu) for gpu in frame.gpus]
        gpus = [self._by_instances(gpu, gpus) for gpu in gpus]
        return replace(frame, gpus=tuple(gpus))

    def forget(self, uuid: str) -> None:
        """Drop a GPU for good."""
        self._reports.discard(uuid)
        self.of.pop(uuid, None)
        self._known_s.pop(uuid, None)

    def _filled(self, frame: Frame, gpu: Gpu) -> Gpu:
        if gpu.busy_percent is not None:
            self._reports.add(gpu.uuid)
            self.of.pop(gpu.uuid, None)
            return gpu
        why = _lasting_reason(gpu)
        if why is None and gpu.uuid in self._reports:
            return gpu
        chosen = self.of.get(gpu.uuid)
        waits = chosen is not None and frame.mono_s - self._known_s.get(gpu.uuid, -_GAP_S) < _GAP_S
        for substitute, percent in _ladder(frame, gpu, why or "utilization not reported"):
            if percent is not None:
                self.of[gpu.uuid], self._known_s[gpu.uuid] = substitute, frame.mono_s
                return _with_busy(gpu, percent)
            if waits and chosen is not None and chosen.metric == substitute.metric:
                return gpu  # silent for a moment: switching would look like a step in utilization
        return gpu

    def _by_instances(self, gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
        """A GPU in MIG mode is at least as busy as its busiest instance."""
        if gpu.busy_percent is not None or gpu.parent_uuid is not None or not gpu.mig_mode:
            return gpu
        known = [one.busy_percent for one in gpus if one.parent_uuid == gpu.uuid and one.busy_percent is not None]
        if not known:
            return gpu
        why = _lasting_reason(gpu) or "no utilization on MIG"
        self.of[gpu.uuid] = Substitute("busy_percent", "busiest MIG instance", "GPM", why, lower_bound=True)
        return _with_busy(gpu, max(known))


def _with_busy(gpu: Gpu, percent: float) -> Gpu:
    missing = tuple(one for one in gpu.missing if one.metric != "busy_percent")
    return replace(gpu, busy_percent=percent, missing=missing)


def _lasting_reason(gpu: Gpu) -> str | None:
    """Why utilization is permanently unavailable; None if no such reason is known."""
    said = next((one for one in gpu.missing if one.metric == "busy_percent" and one.reason in _FOR_GOOD), None)
    if gpu.parent_uuid is not None or gpu.mig_mode:
        return "no utilization on MIG"
    if said is None:
        return None
    if said.reason == "denied":
        return "utilization denied"
    return "no utilization on vGPU" if gpu.virtualization == "vgpu" else "utilization not reported"
