"""Facts from the agent in a process, for rules and users: loaders, model, precision, memory."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from gputop import labels, units
from gputop.actions.target import Refusal, Rights, open_target
from gputop.agent_client import AgentLost, NoAgent, connect
from gputop.model import Fact, Identity, Process
from gputop.safe.text import clean

_MOST_MARKS = 8  # names listed
_RESERVED_FACTOR = 1.5  # reserved memory above this multiple of the allocated is cache
_Object = Mapping[str, Any]


def notes(process: Process, rights: Rights, *, everything: bool = False) -> tuple[Fact, ...]:
    """Facts about a process from its agent; empty without an agent. Takes some 10 ms in the caller's thread.

    `everything` also searches objects that no frame references; this may pause the process for half a second: ask the
    user.
    """
    target = open_target(process, rights, {})
    if isinstance(target, Refusal):
        return ()
    try:
        agent = connect(target)
        try:
            facts = facts_of(process.identity, agent.answer("facts", all=everything).get("facts"))
            return (*facts, *mark_facts(process.identity, agent.answer("marks").get("marks")))
        finally:
            agent.close()
    except (NoAgent, AgentLost):
        return ()
    finally:
        target.close()


def facts_of(process: Identity, said: object) -> tuple[Fact, ...]:
    """The facts in an answer; invalid parts are skipped."""
    if not isinstance(said, dict):
        return ()
    found = (*_loaders(said), *_models(said), *_precision(said), *_memory(said), *_threads(said))
    return tuple(Fact(process=process, witness="notes", name=name, text=clean(text, 300)) for name, text in found)


def mark_facts(process: Identity, said: object) -> tuple[Fact, ...]:
    """Values noted by `gputop.mark`: the latest of each name, and their count."""
    newest: dict[str, tuple[float, float, int]] = {}
    for entry in said if isinstance(said, list) else ():
        if isinstance(entry, list) and len(entry) == 3 and all(_is_number(entry[place]) for place in (0, 2)):
            name = clean(str(entry[1]), 80)
            newest[name] = (entry[0], entry[2], newest.get(name, (0.0, 0.0, 0))[2] + 1)
    found = sorted(newest.items(), key=lambda item: -item[1][0])[:_MOST_MARKS]
    now_s = time.time()
    return tuple(
        Fact(
            process=process,
            witness="notes",
            name="mark",
            text=f"it noted {name} = {value:g}{_ago(now_s - at_s, count)}",
        )
        for name, (at_s, value, count) in found
    )


def _ago(passed_s: float, count: int) -> str:
    return f", {units.ago_text(max(0.0, passed_s))} ago" + (f", the last of {count}" if count > 1 else "")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _loaders(said: _Object) -> Iterator[tuple[str, str]]:
    loaders = _objects(said.get("loaders"))
    for loader in loaders:
        workers = _whole(loader.get("num_workers"))
        if workers is None:
            continue
        settings = [f"num_workers={workers}"]
        for name in ("batch_size", "prefetch_factor"):
            value = _whole(loader.get(name))
            settings += [] if value is None else [f"{name}={value}"]
        settings += [f"{name}={loader[name]}" for name in ("pin_memory", "persistent_workers") if name in loader]
        used = loader.get("in_use") is True or len(loaders) == 1
        yield "loader", f"{'its' if used else 'another'} DataLoader({', '.join(settings)})"
        if used and workers == 0:
            yield "loads-in-main", "its DataLoader has no workers: the main thread loads the data"
        if used and loader.get("pin_memory") is False:
            yield "unpinned", "its DataLoader does not pin memory: copies to the GPU are synchronous"


def _models(said: _Object) -> Iterator[tuple[str, str]]:
    for model in _objects(said.get("models"))[:1]:
        size = _whole(model.get("parameters"))
        if not size:
            continue
        where, types = (_largest(model.get(name)) for name in ("devices", "dtypes"))
        compiled = ", compiled" if model.get("compiled") is True else ""
        yield "model", f"its model {model.get('name')} has {units.count(size)} parameters, {types} on {where}{compiled}"
        if model.get("wrapped") == "DP":
            yield "dataparallel", "its model is wrapped in DataParallel; DistributedDataParallel scales better"
        if where == "cpu":
            yield "model-on-cpu", "its model is on the CPU"


def _precision(said: _Object) -> Iterator[tuple[str, str]]:
    precision = said.get("precision")
    if isinstance(precision, dict) and any("cuda" in _largest(m.get("devices")) for m in _objects(said.get("models"))):
        if precision.get("tf32_matmul") is False and precision.get("grad_scaler") is not True:
            yield "no-tf32", "TF32 is off for matrix products; torch.set_float32_matmul_precision('high') enables it"
        if precision.get("grad_scaler") is True:
            yield "amp", "it trains with AMP: a GradScaler is in use"


def _memory(said: _Object) -> Iterator[tuple[str, str]]:
    for device in _objects(said.get("memory")):
        allocated, reserved, peak = (_whole(device.get(name)) for name in ("allocated", "reserved", "peak_allocated"))
        number = _whole(device.get("device"))
        if allocated is None or reserved is None or peak is None or number is None:
            continue
        text = f"on cuda:{number} {_size(allocated)} allocated, peak {_size(peak)}; {_size(reserved)} reserved"
        yield "allocator", text
        if reserved > _RESERVED_FACTOR * max(peak, 1):
            yield "allocator-cache", f"cuda:{number}: {_size(reserved - allocated)} of its reserved memory is cache"
        retries = _whole(device.get("retries"))
        if retries:
            yield (
                "allocator-retries",
                f"cuda:{number}: the allocator ran out of memory and freed its cache {retries} times",
            )


def _threads(said: _Object) -> Iterator[tuple[str, str]]:
    threads = said.get("threads")
    number = _whole(threads.get("intra")) if isinstance(threads, dict) else None
    if number is not None:
        yield "threads", f"torch computes with {labels.amount(number, 'thread')} in it"


def _objects(value: object) -> list[_Object]:
    if not isinstance(value, list):
        return []
    return [each for each in value[:16] if isinstance(each, dict)]


def _largest(value: object) -> str:
    """The key with the largest value: the type of most parameters."""
    if not isinstance(value, dict):
        return "?"
    return str(max(value, key=lambda key: _whole(value[key]) or 0, default="?"))[:40]


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < 1 << 60 else None


def _size(value: int) -> str:
    return f"{units.size(value)}B"
