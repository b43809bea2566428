"""The step meter: how long each optimizer step takes, and how much of it waits for the next batch. Always on, no files.

Times are taken where torch passes anyway: at the ends of optimizer steps, and around `next()` of a DataLoader on the
thread that trains. A step lasts from one end of the first optimizer's to the next: several micro-batches, several
optimizers and one optimizer for each parameter make one step. Steps with many batches of another dataset, or with some
that were fetched without gradients, hold an evaluation and are kept apart.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from array import array
from typing import Any, Callable

from .hooks import OnStep, possible
from .profilers import whole

SWITCH = "GPUTOP_METER"  # 0: no meter
_KEPT = 1024  # steps
_LOADER = "torch.utils.data.dataloader"
_MOST_COST, _JUDGED_S = 0.01, 5.0  # of the time; not before so much of it
_JUDGE_EACH = 64  # steps
_OTHERS = 64  # steps of other optimizers, after which the first one is not what makes a step
_DATASETS = 8  # that are remembered
_LONGEST_COST_S = 1e-4  # of one call: what is longer was another thread, not we

_current: Meter | None = None  # the one that the wrapped methods of torch report to
_originals: dict[str, Callable[..., Any]] = {}


class Ring:
    """The last steps, in memory that is taken once: `count` is how many there ever were."""

    fields = ("ended_s", "took_s", "waited_s", "optimizer_s", "samples", "batches", "other")

    def __init__(self) -> None:
        self.count = 0
        self._columns = {name: array("d", bytes(8 * _KEPT)) for name in self.fields}

    def add(self, *values: float) -> None:
        """Keep one more; the oldest goes."""
        place = self.count % _KEPT
        for column, value in zip(self._columns.values(), values):
            column[place] = value
        self.count += 1

    def last(self, most: int = _KEPT, since: int = 0) -> list[list[float]]:
        """The columns of the newest ones, oldest first; none of the first `since` that there ever were.

        Copied as whole pieces: while they are, the program cannot run.
        """
        first = max(since, self.count - min(most, _KEPT - 1))  # one place may be being written
        start, stop = first % _KEPT, self.count % _KEPT
        if first >= self.count:
            return [[] for _ in self.fields]
        columns = self._columns.values()
        if start < stop:
            return [column[start:stop].tolist() for column in columns]
        return [(column[start:] + column[:stop]).tolist() for column in columns]


class Meter:
    """One a process. The program's threads call into it at each batch and each step; the agent's reads it."""

    def __init__(self) -> None:
        self.ring, self.off = Ring(), ""
        self._made = 0
        self.began_s, self.cost_s = time.monotonic(), 0.0
        self.hooks: list[OnStep] = []
        self.installed = False
        self.thread = 0  # that trains
        self.inside = False  # it waits for a batch
        self._first: Callable[[], Any] = lambda: None  # the optimizer that makes a step, while it is alive
        self._others = 0  # steps of others since its last one
        self._ended_s = self._begun_s = 0.0  # when its last step ended, when the one of an optimizer began
        self._waited_s = self._optimizer_s = self._samples = 0.0
        self._batches = self._other = 0
        self._calls = False  # the optimizer that makes a step calls back
        self._usual: set[int] = set()  # the datasets, by id, that steps are made of
        self._usual_batches = 0  # of one
        self._seen: set[int] = set()  # those of this step
        self._is_grad_enabled: Callable[[], bool] = lambda: True
        self._tensor: type = type(None)

    def install(self) -> bool:
        """Put it in, once torch is whole; False until then. On the agent's thread."""
        global _current
        torch, loader = whole("torch"), whole(_LOADER)
        if torch is None or loader is None or not possible():
            return False
        self._is_grad_enabled = getattr(torch, "is_grad_enabled", self._is_grad_enabled)
        self._tensor = getattr(torch, "Tensor", self._tensor)
        self.hooks = [OnStep.add(self._begins, before=True), OnStep.add(self._ends)]
        _current, self.installed = self, True
        _wrap(getattr(loader, "_BaseDataLoaderIter", None), "__next__", _next)
        _wrap(getattr(loader, "DataLoader", None), "_get_iterator", _get_iterator)
        return True

    def stop(self, why: str) -> None:
        """Measure no more, from any thread; what was measured stays. The hooks are for the agent to take out."""
        self.off = self.off or why
        for hook in self.hooks:
            hook.live = False

    def leave(self) -> None:
        """In a forked child, which measures itself if it trains."""
        self.stop("forked")
        for hook in self.hooks:
            hook.remove()

    def waited(self, loader: Any, data: Any, began_s: float, now_s: float) -> None:
        """The thread that trains has waited for a batch; None is none, as at the end of an epoch."""
        self._waited_s += now_s - began_s
        if data is not None:
            self._guarded(lambda: self._fetched(loader, data))
        self._paid(now_s)

    def _fetched(self, loader: Any, data: Any) -> None:
        self._batches += 1
        self._seen.add(id(getattr(loader, "_dataset", None)))
        self._samples += _samples(loader, data, self._tensor)
        if not self._is_grad_enabled():
            self._other = 1

    def _guarded(self, do: Callable[[], None]) -> None:
        """The program must not see what goes wrong here."""
        try:
            do()
        except Exception as error:
            self.stop(f"{type(error).__name__}: {error}"[:200])

    @property
    def made(self) -> int | None:
        """Optimizer steps so far; None where they are not counted."""
        return None if self.off or not self.installed else self._made

    @property
    def cost(self) -> float:
        """The share of the time that it took itself."""
        return self.cost_s / max(1e-9, time.monotonic() - self.began_s)

    def _begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        self._begun_s = time.perf_counter()
        # what it is handed to call, as Lightning does, is the whole step: the optimizer's own time is unknown
        if len(args) > 1 or kwargs:
            self._calls = self._calls or any(callable(each) for each in (*args[1:], *kwargs.values()))

    def _ends(self, optimizer: Any, *_: Any) -> None:
        if self.off:
            return
        now_s = time.perf_counter()
        self._guarded(lambda: self._end(optimizer, now_s))
        self._paid(now_s)

    def _end(self, optimizer: Any, now_s: float) -> None:
        first = self._first()
        if first is None:
            self._made += 1
            self._first, self.thread, self._ended_s = weakref.ref(optimizer), threading.get_ident(), now_s
            self._clear()
            return
        if threading.get_ident() != self.thread:
            return
        self._optimizer_s += math.nan if self._calls else now_s - self._begun_s
        self._calls = False
        if optimizer is not first:
            self._others += 1
            if self._others > _OTHERS:  # the first one was a warm-up, or is done
                self._first = weakref.ref(optimizer)
            return
        if self._usual and not self._seen <= self._usual and self._batches > 2 * self._usual_batches:
            self._other = 1  # another dataset, and many batches of it: training on several takes one of each
        self._made += 1
        took_s = now_s - self._ended_s
        self.ring.add(time.time(), took_s, self._waited_s, self._optimizer_s, self._samples, self._batches, self._other)
        if self._seen and not self._other:
            self._usual = set(self._seen) if len(self._usual) > _DATASETS else self._usual | self._seen
            self._usual_batches = self._batches
        self._ended_s = now_s
        self._clear()
        judged = self.ring.count % _JUDGE_EACH == 0 and time.monotonic() - self.began_s > _JUDGED_S
        if judged and self.cost > _MOST_COST:
            self.stop(f"it took {100 * self.cost:.1f} % of the time itself")

    def _clear(self) -> None:
        self._waited_s = self._optimizer_s = self._samples = 0.0
        self._batches = self._other = self._others = 0
        self._seen.clear()

    def _paid(self, since_s: float) -> None:
        self.cost_s += min(time.perf_counter() - since_s, _LONGEST_COST_S)


def _wrap(kind: Any, name: str, call: Callable[..., Any]) -> None:
    """Have a method of a class of torch go through ours; once a process and its forks."""
    if name not in _originals and hasattr(kind, name):
        _originals[name] = getattr(kind, name)
        call._torchdynamo_disable = True  # type: ignore[attr-defined]
        setattr(kind, name, call)


def _measures() -> Meter | None:
    """The meter, if this is the thread that trains, and it does not wait for a batch already: one loader may be in
    another."""
    meter = _current
    if meter is None or meter.off or meter.inside or threading.get_ident() != meter.thread:
        return None
    return meter


def _next(self: Any) -> Any:
    """`next()` of a DataLoader, with the time that it takes."""
    meter = _measures()
    if meter is None:
        return _originals["__next__"](self)
    data, meter.inside, began_s = None, True, time.perf_counter()
    try:
        data = _originals["__next__"](self)
        return data
    finally:
        meter.inside = False
        meter.waited(self, data, began_s, time.perf_counter())


def _get_iterator(self: Any) -> Any:
    """The beginning of an epoch, which starts the workers."""
    meter, began_s = _measures(), time.perf_counter()
    try:
        return _originals["_get_iterator"](self)
    finally:
        if meter is not None:
            meter.waited(self, None, began_s, time.perf_counter())


def _samples(loader: Any, data: Any, tensor: type) -> float:
    """How many a batch has: the first length of its first tensor; 0 where it has none. Runs no code of the program."""
    for _ in range(3):
        kind = type(data)  # no isinstance: it may run code of the program
        if kind is tensor:
            return float(data.shape[0]) if data.dim() else 0.0
        if kind in (list, tuple) and data:
            data = data[0]
        elif kind is dict and data:
            data = next(iter(data.values()))
        else:
            break
    size = getattr(getattr(loader, "_index_sampler", None), "batch_size", None)
    return float(size) if type(size) is int else 0.0


def wanted() -> bool:
    """Whether it is not disabled in the environment."""
    return os.environ.get(SWITCH) != "0"
