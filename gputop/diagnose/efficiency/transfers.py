"""A rule about a GPU that waits for data to come over PCIe."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.alternation import by_turns
from gputop.diagnose.dataloader import pins
from gputop.diagnose.efficiency.chip import BY_UNITS, at_work, capacity
from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import at_most, busy, shared, used, waits_for_cpu, waits_for_storage
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves, torchlike
from gputop.diagnose.view import View

_TABLE = "h2d-transfer-bound"
_COPY = "x = x.to('cuda', non_blocking=True)"


def transfers(view: View, trainer: Trainer) -> bool:
    """Whether copies may be what its GPUs wait for: of batches, or of states that an optimizer on the CPU works on."""
    if _both_ways(view, trainer):
        return (trainer.own or 0.0) >= view.limit("loader-in-main.cores")
    return _down(view, trainer)


def _down(view: View, trainer: Trainer) -> bool:
    """Whether they wait for what comes from the host: a link near its limit, or a main thread that copies."""
    return _much(view, trainer) and not _both_ways(view, trainer) and (_full(view, trainer) or _copies(view, trainer))


def _much(view: View, trainer: Trainer) -> bool:
    return (trainer.pcie_rx or 0.0) >= view.limit(f"{_TABLE}.bytes_per_s")


def _both_ways(view: View, trainer: Trainer) -> bool:
    """Whether as much goes up as of states that live in host memory, by design; weights come more often than that."""
    sent = trainer.pcie_tx or 0.0
    return _much(view, trainer) and sent >= view.limit(f"{_TABLE}.both_ways") * (trainer.pcie_rx or 0.0)


def _full(view: View, trainer: Trainer) -> bool:
    """Half of the time, or longer, one of its links is nearly as fast as it can be."""
    for gpu in trainer.works_on:
        most = capacity(gpu)
        if most is None or (view.mean(gpu, "pcie_rx_bytes_per_s", 30) or 0.0) < 0.25 * most:
            continue
        near = view.window(gpu, "pcie_rx_bytes_per_s", 30).share_above(view.limit(f"{_TABLE}.link") * most)
        if view.above(near, f"{_TABLE}.samples"):
            return True
    return False


def _copies(view: View, trainer: Trainer) -> bool:
    """Copies from memory that is not pinned take the main thread's time, and are far from the limit of the link.

    All of its time, or all that its GPU is idle.
    """
    if trainer.loaders and not view.below(trainer.loader_cpu, f"{_TABLE}.loader_cpu"):
        return False
    always = view.below(trainer.sm, f"{_TABLE}.sm") and view.above(trainer.main, f"{_TABLE}.main")
    return always or by_turns(view, trainer)


@rule(
    "h2d-transfer-bound",
    "Does a GPU wait for copies from the host?",
    level=Level.EFFICIENCY,
    state="copy wait",
    short="COPY",
    confirmed_by=("pageable-copies", "copies-in-the-way"),
    number="R15",
    rows=(45, 61, 66),
    needs=("busy_percent", "pcie_rx_bytes_per_s"),
    partly=("main_thread_percent", "sm_active_percent"),
)
def h2d_transfer_bound(view: View) -> Iterator[Finding]:
    """It has gaps while much comes over PCIe: all that the link carries, or what one thread can copy."""
    for trainer in view.trainers():
        if serves(trainer) or not view.knows(trainer, "duty", "pcie_rx") or not view.below(trainer.duty, "duty"):
            continue
        if not used(view, trainer):
            continue
        if not _down(view, trainer):
            if _much(view, trainer) and view.knows(trainer, "main") and view.above(trainer.main, "main"):
                view.knows(trainer, "sm", unlock=BY_UNITS)  # without it, who copies looks like who computes
            continue
        if not waits_for_cpu(view, trainer) and not waits_for_storage(view, trainer) and not shared(view, trainer):
            yield _waits(view, trainer)


def _waits(view: View, trainer: Trainer) -> Finding:
    gpu, full = trainer.works_on[0], _full(view, trainer)
    most, main = capacity(gpu), 100 * (trainer.main or 0.0)
    of = f" of {most / 1e9:.1f}" if most else ""
    evidence = [
        Evidence(
            text=f"PCIe to the GPU {(trainer.pcie_rx or 0) / 1e9:.1f}{of} GB/s", value=trainer.pcie_rx, unit="B/s",
            limit=view.limit("link") * most if most and full else view.limit("bytes_per_s"),
        ),
        busy(view, trainer, "duty"),
        *at_work(trainer, limits={} if full else {"SMs": view.limit("sm")}),
    ]  # fmt: skip
    if not full:
        limit = 100 * view.limit("main")
        evidence.append(Evidence(text=f"main thread {main:.0f} % of a core", value=main, unit="%", limit=limit))
    steps = [*(_of_states(trainer, _pageable(view, trainer, full)) if _states(view, trainer) else _of_batches(trainer))]
    if gpu.pcie_generation and gpu.pcie_generation_max and gpu.pcie_generation < gpu.pcie_generation_max:
        steps.append(
            Step(text=f"its link runs at generation {gpu.pcie_generation} of {gpu.pcie_generation_max}: check the slot")
        )
    return view.found(
        trainer,
        "warn",
        "waits for copies to its GPU",
        evidence=tuple(evidence),
        steps=tuple(steps),
        confidence=0.6 if full else 0.5,
        lost_share=trainer.lost,
    )


def _states(view: View, trainer: Trainer) -> bool:
    """Whether it has no data to send, as far as anybody can tell: no loaders, and nothing that it reads."""
    reads = trainer.taken
    quiet = reads is not None and reads < view.limit("loader-in-main.read_bytes_per_s")
    return quiet and not trainer.loaders and not pins(trainer)


def _pageable(view: View, trainer: Trainer, full: bool) -> bool:
    """Whether it copies no faster than one thread does from memory that is not pinned."""
    return not full and view.below(trainer.pcie_rx, "pageable_bytes_per_s")


def _of_states(trainer: Trainer, pageable: bool) -> Iterator[Step]:
    """Steps for who streams its model through the GPU; batches that lie in memory look the same.

    Frameworks that offload do so from pinned memory, which fills the link (an H200: 55 GB/s); of pageable memory a
    thread copies 9 GB/s, whatever the link carries.
    """
    command = f"x = x.pin_memory(); {_COPY}" if torchlike(trainer) else None
    if pageable:
        yield Step(
            text="copy from pinned memory: from pageable memory one thread copies 10 GB/s at most, whatever the link "
            "carries; or keep what fits on the GPU",
            command=command,
        )
    yield Step(text=f"weights or optimizer states in host memory: offload less of them: {at_most(trainer)}")
    yield Step(text="offloaded all the same: a larger batch, so that there is more to compute for each copy")
    if not pageable:
        yield Step(
            text="batches that lie in host memory: keep them on the GPU, or copy them from pinned memory",
            command=command,
        )


def _of_batches(trainer: Trainer) -> Iterator[Step]:
    torch = torchlike(trainer)
    if pins(trainer):
        yield Step(text="copy without waiting", command=_COPY)
    else:
        command = f"DataLoader(..., pin_memory=True); {_COPY}" if torch else None
        yield Step(text="copy from pinned memory, which it is not seen to do", command=command)
    yield Step(text=f"copy the next batch while this one computes, in a stream of its own: {at_most(trainer)}")
    yield Step(text="send bytes and make floats of them on the GPU: uint8 images are a quarter of fp32")
