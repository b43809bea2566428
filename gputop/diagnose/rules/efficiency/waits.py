"""Rules on a GPU that waits for the main thread: kernel launches, copies, logging."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gputop.diagnose.alternation import alternates, low_activity_while_busy
from gputop.diagnose.alternation import evidence as together
from gputop.diagnose.chip_activity import BY_UNITS, pcie_capacity, unit_activity
from gputop.diagnose.finding import Evidence, Finding, Severity, Step
from gputop.diagnose.program_kind import may_use_torch, serves
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starvation import (
    EITHER,
    busy_evidence,
    has_fact,
    has_gaps,
    has_work,
    is_oversubscribed,
    is_shared,
    is_single,
    known_to_load,
    per_loader_text,
    upper_bound,
    waits_for_cpu,
    waits_for_storage,
)
from gputop.diagnose.steps import pins_memory, stack, use_workers
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.view import View
from gputop.labels import amount
from gputop.model import Missing, Role

_MORE_OFTEN = "needs a refresh interval of 1 s: gputop --interval 1"
_STALLS_TABLE = "sync-log-stall"
_PAUSE_S = 0.9  # a second, with tolerance for one sample
_WORKS_PERCENT = 10.0  # of a core, by a child: sending logs to a server takes less


def writes(view: View, trainer: Trainer) -> bool:
    """Whether the process itself writes all the time, as with logging at every step."""
    if any(name.startswith("pt_gloo") for name, _ in trainer.process.thread_names):
        return False  # it writes to the other ranks
    bound, helped = view.limit(f"{_STALLS_TABLE}.write_bytes_per_s"), _has_helpers(trainer)
    most, own = view.limit(f"{_STALLS_TABLE}.most_bytes_per_s"), view.mean(trainer.process, "write_chars_per_s") or 0.0
    if (trainer.write_chars or 0.0) >= bound and own <= most:
        steady = _write_share(view, trainer, "write_bytes_per_s" if helped else "write_chars_per_s", bound)
        if view.above(steady, f"{_STALLS_TABLE}.steady"):
            return True
    if trainer.loaders or helped:  # it sends them commands, too
        return False
    calls = view.mean(trainer.process, "write_calls_per_s")
    if not calls or own / calls < view.limit(f"{_STALLS_TABLE}.call_bytes"):
        return False  # too short for text: wakeups of threads through a pipe or an eventfd
    return view.above(
        _write_share(view, trainer, "write_calls_per_s", view.limit(f"{_STALLS_TABLE}.calls_per_s")),
        f"{_STALLS_TABLE}.steady",
    )


def _has_helpers(trainer: Trainer) -> bool:
    """Whether it has busy children that are no loaders, as environments that it steps through pipes."""
    return any(one.role is Role.OTHER and (one.cpu_percent or 0.0) >= _WORKS_PERCENT for one in trainer.tree[1:])


def _write_share(view: View, trainer: Trainer, metric: str, bound: float) -> float | None:
    """Share of seconds with at least that many writes by the process alone; over a minute, half of it known."""
    seconds = min(60.0, trainer.phase_s)
    window = view.window(trainer.process, metric, seconds, whole=True)
    return window.share_above(bound) if window.covered >= 0.5 and seconds >= 30 else None


@rule(
    "sync-log-stall",
    "Does training stall on writing logs or images?",
    level=Level.CAUSE,
    state="writes",
    short="LOG",
    confirmed_by=("logs", "sync"),
    needs=("busy_percent", "main_thread_percent", "write_chars_per_s"),
    partly=("cpu_percent", "blocked_percent", "read_chars_per_s"),
)
def sync_log_stall(view: View) -> Iterator[Finding]:
    """Short GPU gaps, idle workers, and a main thread that runs in the gaps and writes in every second."""
    for trainer in view.trainers():
        if serves(trainer) or not view.knows(trainer, "duty", "main") or not view.below(trainer.duty, "duty"):
            continue
        if view.usual_step_s > view.limit("step_s"):
            # with too few known seconds, occasional writes look continuous
            view.abstain(trainer, Missing(metric="write_chars_per_s", reason="stale", unlock=_MORE_OFTEN))
            continue
        if not has_work(view, trainer) or not _loads_little(view, trainer):
            continue
        if not view.knows(trainer, "write_chars") or (trainer.main or 0.0) < view.limit("main") * trainer.lost:
            continue
        if _paused(view, trainer) > view.limit("pauses") or waits_for_cpu(view, trainer) or is_shared(view, trainer):
            continue
        if writes(view, trainer):
            yield _log_finding(view, trainer)


def _paused(view: View, trainer: Trainer) -> float:
    """Share of time in pauses of a second and more: writes in these are no step logs."""
    busy = view.window(trainer, "busy_percent")
    idle = 1 - (busy.share_above(view.limit("pause_percent")) or 0.0)
    seconds = min(view.limit("window_s"), trainer.phase_s)
    long = [one.length_s for one in view.pauses(trainer).recent(seconds) if one.length_s >= _PAUSE_S]
    return max(idle, sum(long) / max(1.0, seconds))


def _loads_little(view: View, trainer: Trainer) -> bool:
    if trainer.loaders:
        known = view.knows(trainer, "loader_blocked", "loader_cpu")
        calm = known and view.below(trainer.loader_blocked, "starved.blocked")
        return calm and view.below(trainer.loader_cpu, "loader_cpu")
    return view.knows(trainer, "read_chars") and trainer.read_chars < view.limit("loader-in-main.read_bytes_per_s")  # type: ignore[operator]


def _log_finding(view: View, trainer: Trainer) -> Finding:
    written = view.mean(trainer.process, "write_chars_per_s") or 0.0
    calls, main = view.mean(trainer.process, "write_calls_per_s") or 0.0, 100 * (trainer.main or 0.0)
    each = 100 * (trainer.loader_cpu or 0.0)
    idle = f"{amount(trainer.loaders, 'worker')} idle ({each:.0f} % of a core)" if trainer.loaders else "no reads"
    return view.found(
        trainer,
        "warn",
        "GPU waits for the main thread, possibly per-step logging",
        evidence=(
            busy_evidence(view, trainer, "duty"),
            Evidence(text=f"process writes {written / 1e6:.1f} MB/s in {calls:.0f} calls/s", value=written,
                     unit="B/s", limit=view.limit("write_bytes_per_s"), sense="flagged_from"),
            Evidence(text=f"main thread {main:.0f} % of a core; {idle}", value=main, unit="%"),
        ),
        steps=(
            stack(view, trainer.process, "Dump the stack: is the main thread in item, cpu, print or wandb?"),
            Step(text="Log every 50 steps, images every epoch",
                 command="if step % 50 == 0: logger.log(loss=loss.item())"),
            Step(text="Accumulate losses on the GPU and fetch the sum", command="total += loss.detach()"),
            Step(text="Write from another thread or process"),
            Step(text="Find synchronizing calls", command='torch.cuda.set_sync_debug_mode("warn")'),
        ),
        confidence=0.5,
        lost_share=trainer.lost,
    )  # fmt: skip


_TRANSFERS_TABLE = "h2d-transfer-bound"
_COPY = "x = x.to('cuda', non_blocking=True)"


def transfers(view: View, trainer: Trainer) -> bool:
    """Whether its GPUs may wait for copies: of batches, or of states of an optimizer on the CPU."""
    if _both_ways(view, trainer):
        return (trainer.own or 0.0) >= view.limit("loader-in-main.cores")
    return _waits_for_host_data(view, trainer)


def _waits_for_host_data(view: View, trainer: Trainer) -> bool:
    """Whether they wait for data from the host: a link near its limit, or a main thread that copies."""
    return (
        _has_much_traffic(view, trainer)
        and not _both_ways(view, trainer)
        and (_link_saturated(view, trainer) or _copies_pageable(view, trainer))
    )


def _has_much_traffic(view: View, trainer: Trainer) -> bool:
    return (trainer.pcie_rx or 0.0) >= view.limit(f"{_TRANSFERS_TABLE}.bytes_per_s")


def _both_ways(view: View, trainer: Trainer) -> bool:
    """Whether device-to-host traffic is as large, as for states offloaded to host memory."""
    sent = trainer.pcie_tx or 0.0
    return _has_much_traffic(view, trainer) and sent >= view.limit(f"{_TRANSFERS_TABLE}.both_ways") * (
        trainer.pcie_rx or 0.0
    )


def _link_saturated(view: View, trainer: Trainer) -> bool:
    """Whether one of its links is near its limit for half of the time or more."""
    for gpu in trainer.works_on:
        most = pcie_capacity(gpu)
        if most is None or (view.mean(gpu, "pcie_rx_bytes_per_s", 30) or 0.0) < 0.25 * most:
            continue
        near = view.window(gpu, "pcie_rx_bytes_per_s", 30).share_above(view.limit(f"{_TRANSFERS_TABLE}.link") * most)
        if view.above(near, f"{_TRANSFERS_TABLE}.samples"):
            return True
    return False


def _copies_pageable(view: View, trainer: Trainer) -> bool:
    """Copies from pageable memory use the main thread's time, far below the limit of the link.

    Its whole time, or all the time its GPU is idle.
    """
    if trainer.loaders and not view.below(trainer.loader_cpu, f"{_TRANSFERS_TABLE}.loader_cpu"):
        return False
    always = view.below(trainer.sm, f"{_TRANSFERS_TABLE}.sm") and view.above(trainer.main, f"{_TRANSFERS_TABLE}.main")
    return always or alternates(view, trainer)


@rule(
    "h2d-transfer-bound",
    "Does a GPU wait for host-to-device copies?",
    level=Level.EFFICIENCY,
    state="copy-bound",
    short="COPY",
    confirmed_by=("pageable-copies", "copies-in-the-way"),
    needs=("busy_percent", "pcie_rx_bytes_per_s"),
    partly=("main_thread_percent", "sm_active_percent"),
)
def h2d_transfer_bound(view: View) -> Iterator[Finding]:
    """GPU gaps with high PCIe traffic: the link saturated, or as much as one thread can copy."""
    for trainer in view.trainers():
        if serves(trainer) or not view.knows(trainer, "duty", "pcie_rx") or not view.below(trainer.duty, "duty"):
            continue
        if not has_work(view, trainer):
            continue
        if not _waits_for_host_data(view, trainer):
            if _has_much_traffic(view, trainer) and view.knows(trainer, "main") and view.above(trainer.main, "main"):
                view.knows(trainer, "sm", unlock=BY_UNITS)  # without it, copying looks like computing
            continue
        if not waits_for_cpu(view, trainer) and not waits_for_storage(view, trainer) and not is_shared(view, trainer):
            yield _transfer_finding(view, trainer)


def _transfer_finding(view: View, trainer: Trainer) -> Finding:
    gpu, full = trainer.works_on[0], _link_saturated(view, trainer)
    most, main = pcie_capacity(gpu), 100 * (trainer.main or 0.0)
    evidence = [
        Evidence(
            text=_copied(trainer, most, full), value=trainer.pcie_rx, unit="B/s",
            limit=view.limit("link") * most if most and full else view.limit("bytes_per_s"), sense="flagged_from",
        ),
        busy_evidence(view, trainer, "duty"),
        *unit_activity(trainer, limits={} if full else {"SM activity": view.limit("sm")}),
    ]  # fmt: skip
    if not full:
        limit = 100 * view.limit("main")
        text = f"main thread {main:.0f} % of a core"
        evidence.append(Evidence(text=text, value=main, unit="%", limit=limit, sense="flagged_from"))
    steps = [
        *(
            _offload_steps(trainer, _pageable(view, trainer, full))
            if _streams_states(view, trainer)
            else _batch_steps(trainer)
        )
    ]
    if gpu.pcie_generation and gpu.pcie_generation_max and gpu.pcie_generation < gpu.pcie_generation_max:
        steps.append(
            Step(text=f"Check the PCIe slot: the link runs at Gen{gpu.pcie_generation} of Gen{gpu.pcie_generation_max}")
        )
    return view.found(
        trainer,
        "warn",
        f"host-to-device copy-bound{_why_slow(view, trainer, full)}",
        evidence=tuple(evidence),
        steps=tuple(steps),
        confidence=0.6 if full else 0.5,
        lost_share=trainer.lost,
    )


def _copied(trainer: Trainer, most: float | None, full: bool) -> str:
    """The rate of its copies beside that of the link, which limits them only where it is full."""
    rate = f"host-to-device copies {(trainer.pcie_rx or 0) / 1e9:.1f}"
    if most and full:
        return f"{rate} of {most / 1e9:.1f} GB/s"
    return f"{rate} GB/s" + (f"; the link is not the limit ({most / 1e9:.0f} GB/s)" if most else "")


def _why_slow(view: View, trainer: Trainer, full: bool) -> str:
    if full:
        return ", PCIe link saturated"
    return ", probably from pageable memory" if _pageable(view, trainer, full) and not pins_memory(trainer) else ""


def _streams_states(view: View, trainer: Trainer) -> bool:
    """Whether it has no input to send, as far as known: no loaders, and no reads."""
    reads = trainer.input_rate
    quiet = reads is not None and reads < view.limit("loader-in-main.read_bytes_per_s")
    return quiet and not trainer.loaders and not pins_memory(trainer)


def _pageable(view: View, trainer: Trainer, full: bool) -> bool:
    """Whether it copies no faster than one thread does from pageable memory."""
    return not full and view.below(trainer.pcie_rx, "pageable_bytes_per_s")


def _offload_steps(trainer: Trainer, pageable: bool) -> Iterator[Step]:
    """Steps for a model streamed through the GPU; batches already in memory look the same.

    Offloading frameworks use pinned memory, which saturates the link (an H200: 55 GB/s); from pageable memory a thread
    copies 9 GB/s on any link.
    """
    command = f"x = x.pin_memory(); {_COPY}" if may_use_torch(trainer) else None
    if pageable:
        yield Step(
            text="Copy from pinned memory, or keep data on the GPU: pageable copies reach only 10 GB/s on any link",
            command=command,
        )
    yield Step(text=f"If weights or optimizer states are offloaded, offload less: {upper_bound(trainer)}")
    yield Step(text="If offloading stays, use a larger batch: more compute per copy")
    if not pageable:
        yield Step(
            text="If batches are in host memory, keep them on the GPU or copy from pinned memory",
            command=command,
        )


def _batch_steps(trainer: Trainer) -> Iterator[Step]:
    torch = may_use_torch(trainer)
    if pins_memory(trainer):
        yield Step(text="Copy asynchronously", command=_COPY)
    else:
        command = f"DataLoader(..., pin_memory=True); {_COPY}" if torch else None
        yield Step(text="Copy from pinned memory: this process seems to have none", command=command)
    yield Step(text=f"Prefetch the next batch in a separate CUDA stream: {upper_bound(trainer)}")
    yield Step(text="Send uint8 and convert to float on the GPU: a quarter of the bytes of fp32")


# launching many kernels at once, by framework
_AT_ONCE: dict[str, tuple[str, str | None]] = {
    "torch": ("with CUDA graphs", 'model = torch.compile(model, mode="reduce-overhead")'),
    "tensorflow": ("with XLA", "@tf.function(jit_compile=True)"),
    "jax": ("with XLA", "step = jax.jit(step)"),
}
_SURE = "Confirm with a stack dump: the main thread must not be in the DataLoader"


@rule(
    "overhead-bound",
    "Does a GPU wait for kernel launches?",
    level=Level.EFFICIENCY,
    state="launch-bound",
    short="LAUNCH",
    confirmed_by=("launch-bound",),
    needs=("busy_percent", "main_thread_percent", "sm_active_percent or power_watts or memory_busy_percent"),
    partly=("cpu_percent", "read_chars_per_s"),
)
def overhead_bound(view: View) -> Iterator[Finding]:
    """The main thread is always busy, workers are idle, nothing is read, and GPU gaps are too short to see.

    Or that thread sleeps only while the GPU is busy, and the GPU runs small kernels.
    """
    for trainer in view.trainers():
        if not view.knows(trainer, "duty", "main") or not view.below(trainer.duty, "duty"):
            continue
        if not view.above(trainer.duty, "least_duty"):
            continue
        turns = not view.above(trainer.main, "main") and alternates(view, trainer)
        if turns:
            small = not has_gaps(view, trainer) and low_activity_while_busy(view, trainer)
        else:
            small = view.above(trainer.main, "main") and _gaps_invisible(view, trainer) and _works_little(view, trainer)
        if not small or not _loads_nothing(view, trainer) or view.cached(("loads", trainer.identity), lambda: False):
            continue
        if (
            is_oversubscribed(view, trainer)
            or waits_for_cpu(view, trainer)
            or is_shared(view, trainer)
            or serves(trainer)
        ):
            continue
        if not is_single(trainer) and not _surely_launches(view, trainer):
            continue  # its main thread may spin until others are done
        severity, against = view.by_share(trainer.lost), view.against
        if severity is not None and not writes(against, trainer) and not transfers(against, trainer):
            yield _overhead_finding(view, trainer, severity, turns)


def _overhead_finding(view: View, trainer: Trainer, severity: Severity, turns: bool) -> Finding:
    main = 100 * (trainer.main or 0.0)
    sure = _surely_launches(view, trainer)
    return view.found(
        trainer,
        severity if sure or severity != "crit" else "warn",
        "launch-bound, CPU overhead in the main thread" if sure else EITHER,
        evidence=(
            busy_evidence(view, trainer, "duty"),
            together(view, trainer)
            if turns
            else Evidence(
                text=f"main thread {main:.0f} % of a core",
                value=main,
                unit="%",
                limit=100 * view.limit("main"),
                sense="flagged_from",
            ),
            _loaders(view, trainer),
            *unit_activity(trainer),
        ),
        steps=(*_fewer_launches(trainer), stack(view, trainer.process, _SURE))
        if sure
        else (*_steps_to_tell_apart(view, trainer), *_fewer_launches(trainer, "If in the model: ")),
        confidence=0.6 if trainer.loaders else 0.5,
        lost_share=trainer.lost,
    )


def _surely_launches(view: View, trainer: Trainer) -> bool:
    """Whether it certainly launches kernels: without loaders it may load from memory, or simulate."""
    return trainer.loaders > 0 or has_fact(view, trainer, "launch-bound")


def _steps_to_tell_apart(view: View, trainer: Trainer) -> tuple[Step, ...]:
    """Steps to tell the two cases apart, and remedies for the other one."""
    look = stack(
        view, trainer.process, "Dump the stack: is the main thread in the model, in data loading, or in a simulation?"
    )
    apart = use_workers(view, trainer, "If in data loading: use DataLoader workers")
    return look, apart if may_use_torch(trainer) else replace(apart, command=None)


def _fewer_launches(trainer: Trainer, where: str = "") -> tuple[Step, ...]:
    """Steps for fewer launches, in its framework."""
    libraries = ("torch",) if may_use_torch(trainer) else trainer.process.libraries
    framework = next((name for name in _AT_ONCE if name in libraries), "")
    batch = "batch" if where else "Batch"
    how, command = _AT_ONCE.get(framework, ("with CUDA graphs", None))
    python = "Use a fused optimizer; avoid Python loops over tensors, .item() and .cpu()"
    return (
        Step(text=f"{where}{batch} kernel launches {how}: {upper_bound(trainer)}", command=command),
        Step(text="Double the batch size: if samples/s double, launch overhead is confirmed"),
        Step(text=python if framework == "torch" else "Avoid loops over arrays; fetch fewer values from the GPU"),
    )


def _gaps_invisible(view: View, trainer: Trainer) -> bool:
    """Whether gaps are too short to be visible: longer ones have another cause.

    For a GPU busy a tenth of the time, samples below 5 % are not empty; those of an even series are similar.
    """
    shape = trainer.shape
    if shape is None or not trainer.has_no_gaps or not view.below(shape.sigma, "sigma"):
        return False
    return view.below(shape.empty, "empty") or (shape.mean > 0 and view.below(shape.sigma / shape.mean, "varies"))


def _loads_nothing(view: View, trainer: Trainer) -> bool:
    if trainer.loaders:
        return view.knows(trainer, "loader_cpu") and view.below(trainer.loader_cpu, "loader_cpu")
    if known_to_load(view, trainer):
        return False
    return view.knows(trainer, "read_chars") and trainer.read_chars < view.limit("loader-in-main.read_bytes_per_s")  # type: ignore[operator]


def _works_little(view: View, trainer: Trainer) -> bool:
    """Whether little of the chip is active while it is busy: a large kernel would hide the launch of the next.

    By SM activity, else by power, else (vGPU) by the time its memory is in use.
    """
    if trainer.sm is not None:
        return view.below(trainer.sm, "sm")
    if trainer.power_share is None and trainer.memory_busy is not None:
        return view.below(trainer.memory_busy, "memory_busy")
    return view.knows(trainer, "power_share") and view.below(trainer.power_share, "power_share")


def _loaders(view: View, trainer: Trainer) -> Evidence:
    if not trainer.loaders:
        return Evidence(text="no workers, no reads", value=trainer.read_chars, unit="B/s")
    each = 100 * (trainer.loader_cpu or 0.0)
    rests = 100 * view.limit("loader_cpu")
    text = (
        f"{per_loader_text(trainer)} only {each:.0f} % of a core (below {rests:.0f} %): data loading is not the limit"
    )
    return Evidence(text=text, value=each, unit="%", limit=rests, sense="flagged_below")
