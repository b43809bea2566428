"""Xid errors as the driver reports them: a thread that waits for events and remembers the last few of each GPU."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

from gputop.collect.nvml.cadence import CallCosts
from gputop.collect.nvml.device import Device
from gputop.collect.nvml.gate import TIMEOUT, DriverGate, DriverGone, Unanswered
from gputop.model import Xid

_XID = 0x8  # nvmlEventTypeXidCriticalError
_WAIT_MS = 2000
_PAUSE_S = 30.0  # after an error, so that a broken event API costs nothing
_KEPT = 8


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


@dataclass(slots=True)
class _Listener:
    """One thread and the GPUs it listens to."""

    gate: DriverGate
    stop: Event
    uuids: dict[int, str]  # by address of the handle
    handles: list[Any]
    inside: bool = True  # may be inside the driver


class Xids:
    """What came since the start. Its thread waits in the driver; nothing waits for it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[Xid, ...]] = {}
        self._listener: _Listener | None = None

    def of(self, uuid: str) -> tuple[Xid, ...]:
        """The last errors of a GPU, oldest first."""
        return self._seen.get(uuid, ())

    def listen(self, cards: Iterable[Device]) -> None:
        """Listen to these GPUs from now on; without an event API there is nothing to hear."""
        cards = [card for card in cards if card.handle is not None and card.parent is None]
        uuids = {_address(card.handle): card.uuid for card in cards}
        if not uuids or (self._listener and self._listener.uuids == uuids):
            return
        if not self.stop():
            return  # the next call finds it gone
        listener = _Listener(DriverGate(CallCosts()), Event(), uuids, [card.handle for card in cards])
        self._listener = listener
        Thread(target=self._run, args=(listener,), name="xids", daemon=True).start()

    def stop(self) -> bool:
        """Ask the thread to end; whether it has left the driver."""
        if self._listener is None:
            return True
        self._listener.stop.set()
        if self._listener.inside:
            return False
        self._listener = None
        return True

    def _run(self, listener: _Listener) -> None:
        try:
            while not listener.stop.is_set():
                try:
                    self._hear(listener)
                except (Unanswered, DriverGone):
                    pass
                listener.stop.wait(_PAUSE_S)
        finally:
            listener.inside = False

    def _hear(self, listener: _Listener) -> None:
        events = listener.gate.call("nvmlEventSetCreate")
        try:
            heard = [handle for handle in listener.handles if _register(listener.gate, handle, events)]
            while heard and not listener.stop.is_set():
                self._wait(listener, events)
        finally:
            listener.gate.call("nvmlEventSetFree", events)

    def _wait(self, listener: _Listener, events: Any) -> None:
        try:
            event = listener.gate.call("nvmlEventSetWait_v2", events, _WAIT_MS)
        except Unanswered as silent:
            if silent.code != TIMEOUT:
                raise
            return
        uuid = listener.uuids.get(_address(event.device))
        if uuid is not None and event.eventType == _XID:
            xid = Xid(number=int(event.eventData), wall_s=time.time())
            self._seen[uuid] = (*self._seen.get(uuid, ()), xid)[-_KEPT:]


def _register(gate: DriverGate, handle: Any, events: Any) -> bool:
    try:
        gate.call("nvmlDeviceRegisterEvents", handle, _XID, events)
    except Unanswered:
        return False
    return True
