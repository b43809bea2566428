"""A rule about training that stops to write: logs, pictures, and values fetched for them."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.diagnose.finding import Evidence, Finding, Step
from gputop.diagnose.looking import stack
from gputop.diagnose.rule import Level, rule
from gputop.diagnose.starved import busy, shared, used, waits_for_cpu
from gputop.diagnose.trainer import Trainer
from gputop.diagnose.usage.programs import serves
from gputop.diagnose.view import View
from gputop.model import Missing, Role
from gputop.words import amount

_MORE_OFTEN = "whether it writes in every second shows where somebody looks every second: gputop --interval 1"
_TABLE = "sync-log-stall"
_PAUSE_S = 0.9  # as long as a second, give or take a sample
_WORKS_PERCENT = 10.0  # of a core, by a child: who sends logs to a server takes less


def writes(view: View, trainer: Trainer) -> bool:
    """Whether the process itself writes all the time, as one does who logs at every step."""
    if any(name.startswith("pt_gloo") for name, _ in trainer.process.thread_names):
        return False  # it writes to the other ranks
    bound, helped = view.limit(f"{_TABLE}.write_bytes_per_s"), _helped(trainer)
    most, own = view.limit(f"{_TABLE}.most_bytes_per_s"), view.mean(trainer.process, "write_chars_per_s") or 0.0
    if (trainer.write_chars or 0.0) >= bound and own <= most:
        steady = _often(view, trainer, "write_bytes_per_s" if helped else "write_chars_per_s", bound)
        if view.above(steady, f"{_TABLE}.steady"):
            return True
    if trainer.loaders or helped:  # it writes to them too: what they shall do next
        return False
    calls = view.mean(trainer.process, "write_calls_per_s")
    if not calls or own / calls < view.limit(f"{_TABLE}.call_bytes"):
        return False  # no text is that short: threads wake each other, through a pipe or an eventfd
    return view.above(
        _often(view, trainer, "write_calls_per_s", view.limit(f"{_TABLE}.calls_per_s")), f"{_TABLE}.steady"
    )


def _helped(trainer: Trainer) -> bool:
    """Whether children work for it that are no loaders, as environments do that it steps through pipes."""
    return any(one.role is Role.OTHER and (one.cpu_percent or 0.0) >= _WORKS_PERCENT for one in trainer.tree[1:])


def _often(view: View, trainer: Trainer, metric: str, bound: float) -> float | None:
    """The share of seconds in which the process, without its children, wrote so much; of a minute, half of it known."""
    seconds = min(60.0, trainer.phase_s)
    window = view.window(trainer.process, metric, seconds, whole=True)
    return window.share_above(bound) if window.covered >= 0.5 and seconds >= 30 else None


@rule(
    "sync-log-stall",
    "Does training stop to write logs or pictures?",
    level=Level.CAUSE,
    state="writes",
    short="LOG",
    confirmed_by=("logs", "sync"),
    number="R14",
    rows=(12,),
    needs=("busy_percent", "main_thread_percent", "write_chars_per_s"),
    partly=("cpu_percent", "blocked_percent", "read_chars_per_s"),
)
def sync_log_stall(view: View) -> Iterator[Finding]:
    """The GPU has short gaps, loaders are idle, and the main thread works in the gaps and writes in every second."""
    for trainer in view.trainers():
        if serves(trainer) or not view.knows(trainer, "duty", "main") or not view.below(trainer.duty, "duty"):
            continue
        if view.usual_step_s > view.limit("step_s"):
            # whoever writes now and then seems to write all the time
            view.abstain(trainer, Missing(metric="write_chars_per_s", reason="stale", unlock=_MORE_OFTEN))
            continue
        if not used(view, trainer) or not _loads_nothing(view, trainer):
            continue
        if not view.knows(trainer, "write_chars") or (trainer.main or 0.0) < view.limit("main") * trainer.lost:
            continue
        if _paused(view, trainer) > view.limit("pauses") or waits_for_cpu(view, trainer) or shared(view, trainer):
            continue
        if writes(view, trainer):
            yield _stops(view, trainer)


def _paused(view: View, trainer: Trainer) -> float:
    """The share of time in pauses of a second and more: what is written in these is no log of each step."""
    busy = view.window(trainer, "busy_percent")
    idle = 1 - (busy.share_above(view.limit("pause_percent")) or 0.0)
    seconds = min(view.limit("window_s"), trainer.phase_s)
    long = [one.length_s for one in view.pauses(trainer).lately(seconds) if one.length_s >= _PAUSE_S]
    return max(idle, sum(long) / max(1.0, seconds))


def _loads_nothing(view: View, trainer: Trainer) -> bool:
    if trainer.loaders:
        known = view.knows(trainer, "loader_blocked", "loader_cpu")
        calm = known and view.below(trainer.loader_blocked, "starved.blocked")
        return calm and view.below(trainer.loader_cpu, "loader_cpu")
    return view.knows(trainer, "read_chars") and trainer.read_chars < view.limit("loader-in-main.read_bytes_per_s")  # type: ignore[operator]


def _stops(view: View, trainer: Trainer) -> Finding:
    written = view.mean(trainer.process, "write_chars_per_s") or 0.0
    calls, main = view.mean(trainer.process, "write_calls_per_s") or 0.0, 100 * (trainer.main or 0.0)
    each = 100 * (trainer.loader_cpu or 0.0)
    are = f"{amount(trainer.loaders, 'loader')} {'are' if trainer.loaders > 1 else 'is'}"
    idle = f"its {are} idle ({each:.0f} % of a core)" if trainer.loaders else "it reads nothing"
    return view.found(
        trainer,
        "warn",
        "stops to write, perhaps logs or pictures at every step",
        evidence=(
            busy(view, trainer, "duty"),
            Evidence(text=f"its process writes {written / 1e6:.1f} MB/s in {calls:.0f} calls a second", value=written,
                     unit="B/s", limit=view.limit("write_bytes_per_s")),
            Evidence(text=f"main thread {main:.0f} % of a core; {idle}", value=main, unit="%"),
        ),
        steps=(
            stack(view, trainer.process, "see where its main thread is: item, cpu, print, save_image, wandb?"),
            Step(text="log every 50 steps, pictures every epoch",
                 command="if step % 50 == 0: logger.log(loss=loss.item())"),
            Step(text="add losses up on the GPU, and fetch the sum", command="total += loss.detach()"),
            Step(text="write from another thread or process"),
            Step(text="find what waits for the GPU", command='torch.cuda.set_sync_debug_mode("warn")'),
        ),
        confidence=0.5,
        lost_share=trainer.lost,
    )  # fmt: skip
