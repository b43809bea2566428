"""Operators of a trace: CPU self time, and GPU time of their kernels by input shape."""

from __future__ import annotations

from array import array

from gputop.frozen_dataclass import frozen_dataclass
from gputop.trace.breakdown import Breakdown, inside_us
from gputop.trace.host import HostTimes
from gputop.trace.intervals import join
from gputop.trace.names import ActivityKind, SpanMeaning
from gputop.trace.read import Trace

BETWEEN = "step time outside operators"


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """All operators, annotations or Python functions of one name, over the whole trace."""

    name: str
    count: int
    total_us: float
    self_us: float  # without callees


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShape:
    """Kernels launched by an operator for one input shape, within the window."""

    name: str
    dims: str  # in torch's notation: [[8, 128], [128]]; empty if not recorded
    types: str
    kernel: str  # its longest kernel
    kind: ActivityKind  # of that kernel
    gpu_us: float


def operators(trace: Trace, most: int, *, python: bool = False) -> tuple[Operator, ...]:
    """The operators with most self time."""
    host = trace.host
    times: dict[str, list[float]] = {}  # self, total, count; all steps are one row
    for name, us in enumerate(host.self_us):
        if us and bool(host.python[name]) == python:
            text = BETWEEN if host.names.meanings[name] == SpanMeaning.STEP else host.names.texts[name]
            row = times.setdefault(text, [0.0, 0.0, 0])
            for place, value in enumerate((us, host.total_us[name], host.count[name])):
                row[place] += value
    ranked = sorted(times.items(), key=lambda item: (-item[1][0], item[0]))
    return tuple(
        Operator(name=text, count=int(count), total_us=total_us, self_us=self_us)
        for text, (self_us, total_us, count) in ranked[:most]
    )


def operator_shapes(trace: Trace, found: Breakdown) -> tuple[OperatorShape, ...]:
    """Operators and shapes by GPU time, longest first; without kernels of an unknown operator."""
    activity, host = trace.activity, trace.host
    op_of = join(array("I", (activity.op_id[index] for index in found.inside)), host.op_id)
    took: dict[int, float] = {}
    longest: dict[int, tuple[float, str, int]] = {}
    for index, op in zip(found.inside, op_of, strict=True):
        if op >= 0:
            shape, us, name = host.op_shape[op], inside_us(activity, index, found.window), activity.name[index]
            took[shape] = took.get(shape, 0.0) + us
            longest[shape] = max(longest.get(shape, (0.0, "", name)), (us, activity.names.texts[name], name))
    rows = []
    for shape, us in sorted(took.items(), key=lambda item: (-item[1], _called(host, item[0]))):
        name, dims, types = host.shapes[shape]
        kernel = longest[shape][2]
        rows.append(
            OperatorShape(
                name=host.names.texts[name],
                dims=dims,
                types=types,
                kernel=activity.names.texts[kernel],
                kind=ActivityKind(activity.names.meanings[kernel]),
                gpu_us=us,
            )
        )
    return tuple(rows)


def _called(host: HostTimes, shape: int) -> tuple[str, str, str]:
    name, dims, types = host.shapes[shape]
    return host.names.texts[name], dims, types
