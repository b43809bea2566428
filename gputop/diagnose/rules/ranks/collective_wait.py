"""A rule on ranks that wait for each other in a collective, and on jobs that hang there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from statistics import pstdev
from typing import NamedTuple

from gputop import pytorch
from gputop.diagnose.chip_activity import pcie_capacity
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import is_auxiliary
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.rules.ranks.team import Team, blocked, does, listed, teams
from gputop.diagnose.starvation import range_text
from gputop.diagnose.steps import stack, stacks_of_job
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.history import FINE_S, FINE_SLOTS
from gputop.model import Gpu
from gputop.units import ago_text

_TABLE = "collective-wait"
DRAM_TOP = 0.8  # of the memory bandwidth is reachable in practice [DCGM]
PIPES = ("tensor_percent", "fp32_percent", "fp64_percent")
_MEANS_S = 30.0  # over which a heartbeat or a log line is no progress
_OF_RANK = ("read_chars_per_s", "write_chars_per_s", "read_bytes_per_s")
BACK_S = FINE_S * FINE_SLOTS  # as far as the history keeps seconds
_OF_HOST = ("write_bytes_per_s", "receive_bytes_per_s", "send_bytes_per_s")


def waits_s(view: View, gpu: Gpu, effort: str, usual: float | None) -> float:
    """Seconds since a GPU last computed or sent data, or since it was first seen.

    `effort`: a metric of its activity, with the value `usual` at work, if known.
    """
    rests, sent = view.limit(f"{_TABLE}.pipe_percent"), view.limit(f"{_TABLE}.sent")
    bounds = [(pipe, rests) for pipe in PIPES]
    bounds.append(("dram_percent", DRAM_TOP * view.limit(f"{_TABLE}.dram_percent")))
    for name, top in (("nvlink", gpu.nvlink_max_bytes_per_s), ("pcie", pcie_capacity(gpu))):
        bounds += [(f"{name}_{way}_bytes_per_s", sent * top) for way in ("tx", "rx") if top]
    if usual is not None:
        bounds.append((effort, view.limit(f"{_TABLE}.usual") * usual))
    moved = (_since_above(_seconds(view, gpu, name), bound) for name, bound in bounds)
    return min(_watched(_seconds(view, gpu, "busy_percent")), *moved)


def still_s(view: View, team: Team, late: Sequence[Trainer]) -> float:
    """Seconds for which the late ranks have been idle without any I/O, as far as tracked."""
    return min((*_late_s(view, late), *_moved_s(view, team, late)), default=BACK_S)


def idle(view: View, one: Trainer) -> bool:
    """Whether a rank is idle on its GPU and on CPUs, except for the cost of a stuck call."""
    return view.below(one.duty, f"{_TABLE}.idle") and (blocked(one) or view.below(one.cores, f"{_TABLE}.idle_cores"))


def quiet(view: View, team: Team, late: Sequence[Trainer]) -> bool:
    """Whether neither the ranks nor the machine for them do any I/O.

    A process in fsync or close writes nothing itself: the kernel flushes the page cache to a disk or server.
    """
    most, machine = view.limit(f"{_TABLE}.moved_bytes_per_s"), view.limit(f"{_TABLE}.machine_bytes_per_s")
    moved = [value for one in team.ranks for value in (one.read_chars, one.write_chars)]
    if not all(value is not None and value <= most for value in moved):
        return False
    if any(one.read_bytes is not None and one.read_bytes > most for one in team.ranks):
        return False  # mapped files are read without calls
    rates = [(view.mean("host", name), machine) for name in _OF_HOST]
    rates += [(view.mean(key, "write_bytes_per_s"), bound) for key, bound in _servers(view, late)]
    return all(rate is None or rate <= bound for rate, bound in rates)


def asks_a_server(view: View, team: Team) -> bool:
    """Whether an active server program runs on this machine: a sleeping rank may wait for its output."""
    return any(
        is_auxiliary(one) and one not in team.ranks and one.process.uid == team.ranks[0].process.uid
        and (one.duty or 0.0) > view.limit(f"{_TABLE}.idle")
        for one in view.vectors()
    )  # fmt: skip


def _servers(view: View, late: Sequence[Trainer]) -> Iterator[tuple[str, float]]:
    """Network mounts to which a rank blocked in the kernel may write slowly: a full page cache, a close."""
    if any(map(blocked, late)):
        bound = view.limit(f"{_TABLE}.server_bytes_per_s")
        yield from ((f"mount {mount.path}", bound) for mount in view.frame.host.mounts if mount.network)


def _late_s(view: View, late: Sequence[Trainer]) -> Iterator[float]:
    for one in late:
        for gpu in one.gpus:
            busy = _seconds(view, gpu, "busy_percent")
            yield _since_above(busy, 100 * view.limit(f"{_TABLE}.idle"))
        if not blocked(one):
            yield _since_above(_seconds(view, one, "cores"), view.limit(f"{_TABLE}.idle_cores"))


def _moved_s(view: View, team: Team, late: Sequence[Trainer]) -> Iterator[float]:
    own, machine = view.limit(f"{_TABLE}.moved_bytes_per_s"), view.limit(f"{_TABLE}.machine_bytes_per_s")
    of = [(one.key, name, own) for one in team.ranks for name in _OF_RANK]
    of += [("host", name, machine) for name in _OF_HOST]
    of += [(key, "write_bytes_per_s", bound) for key, bound in _servers(view, late)]
    for key, name, bound in of:
        yield _since_more(_seconds(view, key, name), bound, _MEANS_S)


def _seconds(view: View, thing: Gpu | Trainer | str, metric: str) -> Sequence[float | None]:
    return view.window(thing, metric, BACK_S, whole=True).seconds


def _since_above(values: Sequence[float | None], bound: float) -> float:
    """Seconds since a value was above a bound, the newest value last."""
    for age, value in enumerate(reversed(values)):
        if value is not None and value > bound:
            return FINE_S * age
    return BACK_S


def _since_more(values: Sequence[float | None], bound: float, least_s: float) -> float:
    """Seconds since the mean over at least `least_s` was above a bound: a single moment counts little."""
    added = 0.0
    for age, value in enumerate(reversed(values)):
        added += value or 0.0
        if added > bound * max(least_s, age + 1.0):
            return FINE_S * age
    return BACK_S


def _watched(values: Sequence[float | None]) -> float:
    """Seconds since the first known value."""
    return FINE_S * next((len(values) - place for place, value in enumerate(values) if value is not None), 0)


_USUAL_S, _LOOK_S = 900.0, 60.0
_EFFORT = ("power_watts", "dram_percent", "memory_busy_percent")  # of these metrics the first known one decides
# facts of `gputop.collectives`: what ranks reported about the collective that they wait in
_NAMED = tuple(f"{kind}-collective" for kind in ("missing", "operation", "sizes", "dtypes", "stuck"))
_WORDS = 60  # cells of a headline
_RAS_SINCE = (2, 7)  # first PyTorch whose NCCL supports RAS: 2.24 and later [NCCL user guide, RAS]


class _Times(NamedTuple):
    """Seconds since ranks began to wait, and since any progress; 0 if there is some."""

    waits_s: float
    still_s: float


@rule(
    "collective-wait",
    "Do ranks wait in a collective?",
    level=Level.RANKS,
    state="rank wait",
    short="SYNC",
    confirmed_by=(*_NAMED, "collectives"),
    crit_level=Level.HARDWARE,
    instead_of=("slow-start", "starved-cause-unknown", "gpu-unused-in-job"),
    needs=("busy_percent", "tensor_percent or power_watts"),
)
def collective_wait(view: View) -> Iterator[Finding]:
    """Fully busy with almost no activity or traffic: NCCL kernels that spin until another rank arrives."""
    for team in teams(view):
        if not any(view.knows(one, "duty") and view.above(one.duty, "near") for one in team.ranks):
            view.notes(team.job).clear()
            continue
        stopped = any(idle(view, one) for one in team.ranks)
        waiting = tuple(one for one in team.ranks if _waits(view, one, stopped))
        times = _times(view, team, waiting)
        if waiting and 2 * len(waiting) >= len(team.ranks):
            yield _finding(view, team, waiting, times)


def _waits(view: View, one: Trainer, stopped: bool) -> bool:
    """Whether all its GPUs only wait; `stopped`: a rank is completely idle, so no step can end."""
    if not view.above(one.duty, "near") or (one.tensor is None and not view.knows(one, "power_share")):
        return False
    works = view.limit("works_percent")
    if any((getattr(gpu, pipe) or 0.0) > works for gpu in one.gpus for pipe in PIPES):  # cheap tests first
        return False
    return all(
        _evenly_busy(view, one, gpu) and _spins(view, one, gpu, stopped) and not _worked(view, gpu) for gpu in one.gpus
    )


def _evenly_busy(view: View, one: Trainer, gpu: Gpu) -> bool:
    """Whether it is equally busy in every sample of the window: earlier samples say nothing about now."""
    card = one.cards.get(gpu.uuid)
    samples = card.recent(view.limit("window_s")) if card else []
    return len(samples) < 2 or view.below(pstdev(samples), "sigma")


def _worked(view: View, gpu: Gpu) -> bool:
    """Whether it computed in any second of the window, however briefly."""
    works = view.limit("works_percent")
    return any(view.window(gpu, pipe).share_above(works) for pipe in PIPES)


def _spins(view: View, one: Trainer, gpu: Gpu, stopped: bool) -> bool:
    if not view.above(view.mean(gpu, "busy_percent"), "busy_percent"):
        return False
    pipes, dram = [view.mean(gpu, pipe) for pipe in PIPES], view.mean(gpu, "dram_percent")
    sent = _link_use(view, gpu)
    quiet = sent is not None and view.below(sent, "sent")
    if sent is not None and not quiet:
        return False
    low = one.power_share is None or view.below(one.power_share, "power_share")
    if pipes[0] is not None and dram is not None:
        rests = all(pipe is None or view.below(pipe, "pipe_percent") for pipe in pipes)
        return rests and low and view.below(dram / DRAM_TOP, "dram_percent") and (
            quiet or _less_than_usual(view, one, gpu)
        )  # fmt: skip
    memory = view.mean(gpu, "memory_busy_percent")
    rests = memory is None or view.below(memory, "memory_percent")
    return low and rests and ((stopped and quiet) or _less_than_usual(view, one, gpu))


def _link_use(view: View, gpu: Gpu) -> float | None:
    """Link use of a GPU (0-1); None if not counted."""
    links = (
        ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", gpu.nvlink_max_bytes_per_s),
        ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", pcie_capacity(gpu)),
    )
    used = [rate / top for *names, top in links if top for name in names if (rate := view.mean(gpu, name)) is not None]
    return max(used, default=None)


def _less_than_usual(view: View, one: Trainer, gpu: Gpu) -> bool:
    """Whether it draws much less than at work: a job of small kernels looks like waiting, but always did."""
    metric, usual = _effort(view, one, gpu)
    now = view.mean(gpu, metric) if metric else None
    return usual is not None and now is not None and view.below(now / usual, "usual")


def _effort(view: View, one: Trainer, gpu: Gpu) -> tuple[str, float | None]:
    """The metric that shows a GPU's activity, and its value at work."""
    metric = next((metric for metric in _EFFORT if view.mean(gpu, metric) is not None), "")
    return metric, _usual(view, one, gpu, metric) if metric else None


def _usual(view: View, one: Trainer, gpu: Gpu, metric: str = "power_watts") -> float | None:
    """A GPU's value while this trainer works: the maximum over a quarter of an hour, if seen."""
    about = f"{metric} {gpu.uuid}"
    known, now_s = view.notes(one).setdefault(about, (-_LOOK_S, 0.0)), view.frame.mono_s
    if now_s - known[0] >= _LOOK_S:
        seconds = max(1.0, min(_USUAL_S, one.context_s or 0.0))
        most = view.window(gpu, metric, seconds).percentile(0.9) or 0.0
        known = view.notes(one)[about] = (now_s, max(known[1], most))
    return known[1] or None


def _times(view: View, team: Team, waiting: Sequence[Trainer]) -> _Times:
    """Since when they wait, from the history first, then from the notes of this rule."""
    notes, now_s = view.notes(team.job), view.frame.mono_s
    if not waiting:
        notes.clear()
        return _Times(0.0, 0.0)
    if "waits_s" not in notes:
        notes["waits_s"] = now_s - min(
            waits_s(view, gpu, *_effort(view, one, gpu)) for one in waiting for gpu in one.gpus
        )
    waits: float = now_s - notes["waits_s"]
    late = [one for one in team.ranks if one not in waiting]
    rests = all(idle(view, one) for one in late) and len(team.ranks) >= len(team.job.ranks)
    if not rests or not quiet(view, team, late):
        notes.pop("still_s", None)
        return _Times(waits, 0.0)
    if "still_s" not in notes:
        notes["still_s"] = now_s - min(waits, still_s(view, team, late))
    return _Times(waits, now_s - notes["still_s"])


def _is_hang(view: View, team: Team, late: Sequence[Trainer], still_s: float) -> bool:
    """Whether it stood still for longer than a healthy job does.

    Idle ranks on this machine alone do not prove a hang: a rank on another machine may evaluate or save.
    """
    if team.elsewhere or (team.world is None and not late):
        return False
    return still_s >= _hang_limit_s(view, team, late)


def _hang_limit_s(view: View, team: Team, late: Sequence[Trainer]) -> float:
    """Seconds after which it counts as a hang.

    A sleeping rank of a healthy job waits for a text generation server; one with some CPU use may still be working,
    until torch's watchdog ends the job.
    """
    stuck = all(blocked(one) for one in late)
    sound = all(blocked(one) or view.below(one.cores, "asleep_cores") for one in late)
    return view.limit("hang_s" if stuck or (sound and not asks_a_server(view, team)) else "asleep_s")


def _finding(view: View, team: Team, waiting: tuple[Trainer, ...], times: _Times) -> Finding:
    late = tuple(one for one in team.ranks if one not in waiting)
    hangs = _is_hang(view, team, late, times.still_s)
    severity: Severity = "crit" if hangs else "warn"
    away = not late and team.elsewhere
    for_rank = f" for {listed(team, late)}" if late else " for a rank on another machine" if away else ""
    some = f"{len(waiting)} of {len(team.ranks)} ranks wait" if len(team.ranks) > 1 else "1 rank waits"
    waits = f"hang, {some} in a collective{for_rank}" if hangs else f"collective wait{for_rank}, {some}"
    if named := _reported(view, team, "hang, " if hangs else ""):
        waits = named
    detailed = any(gpu.tensor_percent is not None for one in waiting for gpu in one.gpus)
    return view.found(
        team.job,
        severity,
        waits,
        evidence=tuple(_evidence(view, team, waiting, late, times.still_s)),
        steps=tuple(_steps(view, waiting, late, away, hangs)),
        confidence=view.confidence(0.7 if detailed else 0.5),
        lost_share=len(waiting) / len(team.ranks),
        cost="none" if hangs else "lost",
        state="hang" if hangs else None,
        onset_s=times.still_s or times.waits_s,
        gpus=[uuid for one in team.ranks for uuid in one.uuids],
    )


def _reported(view: View, team: Team, hang: str) -> str:
    """`rank 3 never entered all_reduce #4711`, as the ranks reported; empty if they did not, or if it is too long."""
    facts = (view.fact(one, *_NAMED) for one in team.ranks)
    fact = next((fact for fact in facts if fact is not None), None)
    if fact is None or fact.name == "stuck-collective":
        return ""
    text = hang + re.sub(r" \([^()]*\)", "", fact.text).partition(";")[0].partition(":")[0]
    return text if len(text) <= _WORDS else ""


def _evidence(
    view: View, team: Team, waiting: Sequence[Trainer], late: Sequence[Trainer], still_s: float
) -> Iterator[Evidence]:
    pairs = [(one, gpu) for one in waiting for gpu in one.gpus]
    gpus = [gpu for _, gpu in pairs]
    cards = ", ".join(gpu.index for gpu in gpus)
    for one in late[:4]:
        yield Evidence(text=f"{team.name(one)}: {does(one)}", value=100 * (one.duty or 0.0), unit="%")
    text, limit = f"GPU busy 100 % (GPUs {cards})", view.limit("busy_percent")
    yield Evidence(text=text, value=100.0, unit="%", limit=limit, sense="flagged_from")
    watts = [value for gpu in gpus if (value := view.mean(gpu, "power_watts")) is not None]
    usual = [value for one, gpu in pairs if (value := _usual(view, one, gpu)) is not None]
    if watts and usual and view.below(max(watts) / max(usual), "usual"):
        text, limit = (
            f"power {range_text(watts, 'W')}, {max(usual):.0f} W when it computes",
            view.limit("usual") * max(usual),
        )
        yield Evidence(text=text, value=max(watts), unit="W", limit=limit, sense="flagged_below")
    tensor = [value for gpu in gpus if (value := view.mean(gpu, "tensor_percent")) is not None]
    if tensor:
        text, limit = f"tensor activity {max(tensor):.0f} %, spinning in NCCL", view.limit("pipe_percent")
        yield Evidence(text=text, value=max(tensor), unit="%", limit=limit, sense="flagged_below")
    written = view.mean("host", "write_bytes_per_s")
    if any(map(blocked, late)) and written is not None and written > view.limit("machine_bytes_per_s"):
        text, limit = f"host writes {written / 1e6:.0f} MB/s, possibly a checkpoint", view.limit("machine_bytes_per_s")
        yield Evidence(text=text, value=written, unit="B/s", limit=limit, sense="flagged_from")
    if still_s:
        here = " here" if team.elsewhere else ""
        text, limit = f"no I/O or compute on any rank{here} for {ago_text(still_s)}", _hang_limit_s(view, team, late)
        yield Evidence(text=text, value=still_s, unit="s", limit=limit, sense="healthy_to")


def _steps(view: View, waiting: Sequence[Trainer], late: Sequence[Trainer], away: bool, hangs: bool) -> Iterator[Step]:
    odd = (late or waiting)[0]
    if away:
        yield Step(text="Check the other machines: a rank there may evaluate, save, or hang")
    version = odd.process.torch_version
    if len(waiting) + len(late) > 1:
        yield stacks_of_job(view, odd.process, "Compare the stacks of all ranks; the outlier is marked")
    else:
        yield stack(view, odd.process, "Dump the stack of the late rank")
    if any(map(blocked, late)):
        one = next(one for one in late if blocked(one)).process
        which = f"rank {one.rank}" if one.rank is not None else f"process {one.pid}"
        text = f"Find the system call that {which} is blocked in; nfs or rpc in its name means that a file server hangs"
        yield Step(text=text, command=f"cat /proc/{one.pid}/wchan; sudo cat /proc/{one.pid}/stack", needs_root=True)
    if (pytorch.release(version) or (0, 0)) >= _RAS_SINCE:
        yield Step(text="Query NCCL RAS for ranks that lag behind", command="echo verbose status | nc localhost 28028")
    if not hangs:
        yield Step(text="Avoid long work on a single rank: save, evaluate and log on all ranks, or asynchronously")
    yield Step(text="Check for GPU and network errors", command="sudo dmesg | grep -iE 'xid|nvrm|mlx5'",
               needs_root=True)  # fmt: skip
    yield Step(text="For the next run, enable the flight recorder; gputop explain names the rank from its dumps",
               command=pytorch.flight_recorder(version))  # fmt: skip
    if hangs:
        text = "If the stack does not change for minutes, terminate the job and resume from its last checkpoint"
        yield Step(text=text, destroys=True)
