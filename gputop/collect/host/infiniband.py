"""Ports of InfiniBand and RoCE adapters: what goes past the kernel's network stack and is not in /proc/net/dev."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import NamedTuple

from gputop.collect.growth import Growth, Ledger, total
from gputop.collect.host.aside import Aside
from gputop.collect.host.rdma import TRANSPORT_FILLS, Transport
from gputop.collect.kernel import Kernel
from gputop.model import Network

_FIND_EVERY_S = 60.0
_WORD_BYTES = 4  # the unit of port_xmit_data and port_rcv_data
# The makers choose the unit of port_xmit_wait. Eight bytes at the speed of the link is what Omni-Path defines and what
# NVIDIA documents since Quantum.
_WAIT_BYTES = 8
_COUNTERS = (
    "port_rcv_data",
    "port_xmit_data",
    "port_xmit_discards",
    "port_rcv_errors",
    "symbol_error",
    "port_xmit_wait",
)
_RECEIVED, _SENT, _DISCARDS, _RECEIVE_ERRORS, _SYMBOL_ERRORS, _WAIT = range(len(_COUNTERS))


class Port(NamedTuple):
    """One port: its folder below /sys, and what does not change."""

    name: str
    folder: str
    infiniband: bool  # its link layer; a RoCE port's is Ethernet
    bytes_per_s: float | None
    up: bool | None  # a port that is down tells a speed too


class Ports(Aside):
    """The last look at every port; a reader beside that of the networks, as it is the adapter's firmware that answers.

    What it finds is the networks' reader's to tell.
    """

    fills = ("network.send_wait_percent", *(f"network.{name}" for name in TRANSPORT_FILLS))

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()
        self._transport = Transport(kernel)
        self._ports: tuple[Port, ...] = ()
        self._counting: set[str] = set()
        self._found_s = -inf
        self._latest: tuple[Network, ...] = ()  # swapped whole: another thread reads it

    def counts(self, name: str) -> bool:
        """Whether a port has told what it carried; some adapters never do, and in a container none."""
        return name in self._counting or self._transport.counts(name)

    def latest(self, now_s: float) -> tuple[Network, ...]:
        """Every port as of the last look; without numbers once the next one does not return."""
        if not self.late(now_s):
            return self._latest
        return tuple(Network(name=port.name, kind=port.kind) for port in self._latest)

    def look(self, now_s: float) -> None:
        """Rates of every port since the last look; a counter that an adapter does not have makes none."""
        if now_s - self._found_s >= _FIND_EVERY_S:
            self._ports = tuple(
                self._port(adapter, number)
                for adapter in self._kernel.names("class/infiniband")
                for number in self._kernel.names(f"class/infiniband/{adapter}/ports")
            )
            self._found_s = now_s
        table = {
            port.name: tuple(self._kernel.number(f"{port.folder}/counters/{counter}") for counter in _COUNTERS)
            for port in self._ports
        }
        grown = self._counters.grown(now_s, table)
        self._counting |= {name for name, counts in table.items() if counts[_RECEIVED] is not None}
        repaired = self._transport.rates(now_s, {port.name: port.folder for port in self._ports})
        self._latest = tuple(
            replace(_network(port, grown.get(port.name)), **repaired[port.name]) for port in self._ports
        )

    def _port(self, adapter: str, number: str) -> Port:
        folder = f"class/infiniband/{adapter}/ports/{number}"
        state = self._kernel.word(f"{folder}/state")
        return Port(
            name=f"{adapter}:{number}",
            folder=folder,
            infiniband=self._kernel.word(f"{folder}/link_layer") == "InfiniBand",
            bytes_per_s=_speed(self._kernel.word(f"{folder}/rate")),
            up=None if state is None else state.endswith("ACTIVE"),
        )


def _network(port: Port, growth: Growth | None) -> Network:
    if growth is None:
        return Network(name=port.name, kind="infiniband", up=port.up, speed_bytes_per_s=port.bytes_per_s)
    received, sent, wait = (growth.per_s(counter) for counter in (_RECEIVED, _SENT, _WAIT))
    waited = None
    # on Ethernet the port pauses instead, and this counter stands still
    if wait is not None and port.bytes_per_s and port.infiniband:
        waited = min(100.0, 100 * wait * _WAIT_BYTES / port.bytes_per_s)
    return Network(
        name=port.name,
        kind="infiniband",
        up=port.up,
        speed_bytes_per_s=port.bytes_per_s,
        receive_bytes_per_s=None if received is None else received * _WORD_BYTES,
        send_bytes_per_s=None if sent is None else sent * _WORD_BYTES,
        drops_per_s=growth.per_s(_DISCARDS),
        errors_per_s=total((growth.per_s(_RECEIVE_ERRORS), growth.per_s(_SYMBOL_ERRORS))),
        send_wait_percent=waited,
    )


def _speed(rate: str | None) -> float | None:
    """`400 Gb/sec (4X NDR)` in bytes a second."""
    number, _, unit = (rate or "").partition(" ")
    try:
        return float(number) * 1e9 / 8 if unit.startswith("Gb/sec") else None
    except ValueError:
        return None
