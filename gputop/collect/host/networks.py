"""Network interfaces, InfiniBand and RoCE: the traffic that enters and leaves this machine, also past the kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from gputop.collect.blocking_reads import BackgroundReader
from gputop.collect.kernel_files import Kernel
from gputop.collect.rates import Growth, Ledger, total
from gputop.model import Host, Missing, Network
from gputop.safe.text import decode

_EVERY_S = 5.0  # the driver asks the adapter's firmware for them
# names of NVIDIA's drivers; other makers have some of them
_RDMA_COUNTERS = {
    "out_of_order_per_s": "out_of_sequence",
    "sequence_errors_per_s": "packet_seq_err",
    "ack_timeouts_per_s": "local_ack_timeout_err",
    "congestion_sent_per_s": "np_cnp_sent",
    "congestion_handled_per_s": "rp_cnp_handled",
}
TRANSPORT_FILLS = tuple(_RDMA_COUNTERS)
# EFA and Broadcom's adapters have no counters of the standard, and count all their bytes here
_CARRIED = {"receive_bytes_per_s": "rx_bytes", "send_bytes_per_s": "tx_bytes"}
_ALL = {**_RDMA_COUNTERS, **_CARRIED}

Rates = Mapping[str, Any]  # fields of a Network


class Transport:
    """The last sample of the hardware counters of every port."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()
        self._rates: dict[str, Rates] = {}
        self._looked_s = -inf
        self._counting: frozenset[str] = frozenset()

    def counts(self, port: str) -> bool:
        """Whether the hardware of a port counts the bytes it carried."""
        return port in self._counting

    def rates(self, now_s: float, folders: Mapping[str, str]) -> Mapping[str, Rates]:
        """Fields of a Network for each port, as of the last 5 s; `folders` are the ports' by name, below /sys.

        Bytes are among them where the hardware counts them.
        """
        if now_s - self._looked_s >= _EVERY_S or self._rates.keys() != folders.keys():
            self._looked_s = now_s
            table = {port: self._counts(folder) for port, folder in folders.items()}
            grown = self._counters.grown(now_s, table)
            self._counting = frozenset(port for port, counts in table.items() if None not in counts[-len(_CARRIED) :])
            self._rates = {port: self._grew(port, grown.get(port)) for port in folders}
        return self._rates

    def _counts(self, folder: str) -> tuple[int | None, ...]:
        return tuple(self._kernel.number(f"{folder}/hw_counters/{name}") for name in _ALL.values())

    def _grew(self, port: str, growth: Growth | None) -> Rates:
        counters = _ALL if self.counts(port) else _RDMA_COUNTERS
        return {metric: growth.per_s(number) if growth else None for number, metric in enumerate(counters)}


_FIND_EVERY_S = 60.0
_WORD_BYTES = 4  # the unit of port_xmit_data and port_rcv_data
# The makers choose the unit of port_xmit_wait. Eight bytes at the speed of the link is what Omni-Path defines and what
# NVIDIA documents since Quantum.
_WAIT_BYTES = 8
_PORT_COUNTERS = (
    "port_rcv_data",
    "port_xmit_data",
    "port_xmit_discards",
    "port_rcv_errors",
    "symbol_error",
    "port_xmit_wait",
)
_PORT_RECEIVED, _PORT_SENT, _DISCARDS, _PORT_RECEIVE_ERRORS, _SYMBOL_ERRORS, _WAIT = range(len(_PORT_COUNTERS))


class Port(NamedTuple):
    """One port: its folder below /sys, and what does not change."""

    name: str
    folder: str
    infiniband: bool  # its link layer; a RoCE port's is Ethernet
    bytes_per_s: float | None
    up: bool | None  # a port that is down reports a speed too


class Ports(BackgroundReader):
    """The last sample of every port; a separate reader from that of the networks: the adapter's firmware answers.

    The reader of the networks reports what it finds.
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
        """Whether a port has reported what it carried; some adapters never do, and in a container none."""
        return name in self._counting or self._transport.counts(name)

    def latest(self, now_s: float) -> tuple[Network, ...]:
        """Every port as of the last sample; without numbers once the next one does not return."""
        if not self.late(now_s):
            return self._latest
        return tuple(Network(name=port.name, kind=port.kind) for port in self._latest)

    def look(self, now_s: float) -> None:
        """Rates of every port since the last sample; a counter that an adapter does not have makes none."""
        if now_s - self._found_s >= _FIND_EVERY_S:
            self._ports = tuple(
                self._port(adapter, number)
                for adapter in self._kernel.names("class/infiniband")
                for number in self._kernel.names(f"class/infiniband/{adapter}/ports")
            )
            self._found_s = now_s
        table = {
            port.name: tuple(self._kernel.number(f"{port.folder}/counters/{counter}") for counter in _PORT_COUNTERS)
            for port in self._ports
        }
        grown = self._counters.grown(now_s, table)
        self._counting |= {name for name, counts in table.items() if counts[_PORT_RECEIVED] is not None}
        repaired = self._transport.rates(now_s, {port.name: port.folder for port in self._ports})
        self._latest = tuple(
            replace(_port_network(port, grown.get(port.name)), **repaired[port.name]) for port in self._ports
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


def _port_network(port: Port, growth: Growth | None) -> Network:
    if growth is None:
        return Network(name=port.name, kind="infiniband", up=port.up, speed_bytes_per_s=port.bytes_per_s)
    received, sent, wait = (growth.per_s(counter) for counter in (_PORT_RECEIVED, _PORT_SENT, _WAIT))
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
        errors_per_s=total((growth.per_s(_PORT_RECEIVE_ERRORS), growth.per_s(_SYMBOL_ERRORS))),
        send_wait_percent=waited,
    )


def _speed(rate: str | None) -> float | None:
    """`400 Gb/sec (4X NDR)` in bytes a second."""
    number, _, unit = (rate or "").partition(" ")
    try:
        return float(number) * 1e9 / 8 if unit.startswith("Gb/sec") else None
    except ValueError:
        return None


# inside of the machine, or on top of another interface whose bytes are counted already
_NOT_OUTSIDE = re.compile(
    r"lo$|veth|docker|br-|br\d|virbr|lxc|lxd|cni|cali|flannel|cilium|kube|weave|vnet|tap|tun|wg|dummy|ifb|bond|team|"
    r"vxlan|geneve|gre|erspan|sit|ip6|ip_|teql|nodelocaldns|.+[.@]\d+$"
)
_STATIC_EVERY_S = 60.0
_IPOIB = 32  # ARPHRD_INFINIBAND
_MEGABIT = 1e6 / 8
_UP = {"up": True, "down": False, "lowerlayerdown": False}  # others are unknown

# columns of /proc/net/dev
_RECEIVED, _RECEIVE_ERRORS, _RECEIVE_DROPS, _SENT, _SEND_ERRORS, _SEND_DROPS = range(6)
_COLUMNS = (0, 2, 3, 8, 10, 11)


class _Link(NamedTuple):
    up: bool | None
    speed_bytes_per_s: float | None
    physical: bool  # and under no other one that counts for it, as the paravirtual interfaces of Azure do
    ipoib: bool


_UNKNOWN = _Link(None, None, physical=False, ipoib=False)


class Links(BackgroundReader):
    """What the interfaces are; a reader beside that of their traffic, as a driver that hangs holds up these files.

    One interface after the other: the lock that they wait for is one for all.
    """

    fills = ("network.up", "network.speed_bytes_per_s")

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel
        self.known: Mapping[str, _Link] = {}  # this and the next are swapped whole: two threads use them
        self.wanted: tuple[str, ...] = ()
        self._looked_s = -inf

    def look(self, now_s: float) -> None:
        """Read each interface, from time to time: a link may come up, or be another of the same name."""
        names = self.wanted or tuple(interface_counters(self._kernel.proc("net/dev")))
        old = now_s - self._looked_s >= _STATIC_EVERY_S
        if old or any(name not in self.known for name in names):
            self.known = {name: self._link(name) if old else self._before(name) for name in names}
            self._looked_s = now_s if old else self._looked_s

    def of(self, name: str, now_s: float) -> _Link:
        """What is known of an interface; whether it is up and how fast is not, while these files do not answer."""
        link = self.known.get(name, _UNKNOWN)
        return link._replace(up=None, speed_bytes_per_s=None) if self.late(now_s) else link

    def _before(self, name: str) -> _Link:
        return self.known.get(name) or self._link(name)

    def _link(self, name: str) -> _Link:
        folder = f"class/net/{name}"
        megabits = self._kernel.number(f"{folder}/speed")  # -1, or an error, where there is no such thing
        return _Link(
            up=_UP.get(self._kernel.word(f"{folder}/operstate") or ""),
            speed_bytes_per_s=megabits * _MEGABIT if megabits and megabits > 0 else None,
            physical=bool(self._kernel.names(f"{folder}/device")) and not self._kernel.names(f"{folder}/master/device"),
            ipoib=self._kernel.number(f"{folder}/type") == _IPOIB,
        )


class Networks:
    """What the networks carry, ports of InfiniBand and RoCE adapters included."""

    fills = (
        "networks",
        "receive_bytes_per_s",
        "send_bytes_per_s",
        "network.receive_bytes_per_s",
        "network.send_bytes_per_s",
        "network.drops_per_s",
        "network.errors_per_s",
    )
    every_s = 0.0

    def __init__(self, kernel: Kernel, links: Links | None = None, ports: Ports | None = None) -> None:
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()
        self._links, self._ports = links or Links(kernel), ports or Ports(kernel)

    def read(self, now_s: float) -> Host:
        """Rates since the last sample, by interface and port, and their sums."""
        table = interface_counters(self._kernel.proc("net/dev"))
        grown = self._counters.grown(now_s, table)
        self._links.wanted = tuple(table)
        links = {name: self._links.of(name, now_s) for name in table}
        ports = self._ports.latest(now_s)
        names = outside(links, bool(ports))
        interfaces = tuple(_network(name, links[name], grown.get(name)) for name in names)
        telling = (*interfaces, *(port for port in ports if self._ports.counts(port.name)))
        return Host(
            networks=(*interfaces, *ports),
            receive_bytes_per_s=total(network.receive_bytes_per_s for network in telling),
            send_bytes_per_s=total(network.send_bytes_per_s for network in telling),
            missing=(
                *(_silent(name, "its driver does not answer") for name in names if self._links.late(now_s)),
                *(_silent(port.name, "its adapter does not answer") for port in ports if self._ports.late(now_s)),
            ),
        )


def _silent(name: str, why: str) -> Missing:
    return Missing(metric=f"network:{name}", reason="stale", unlock=why)


class _TcpCounter:
    """One number that the kernel counts for all connections together."""

    file, protocol, counter = "", b"", b""
    fills: tuple[str, ...] = ()

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()

    def read(self, now_s: float) -> Host:
        """How often a second since the last sample."""
        count = _named(self._kernel.proc(self.file), self.protocol)[self.counter]
        growth = self._counters.grown(now_s, {"tcp": (count,)}).get("tcp")
        return Host(**dict.fromkeys(self.fills, growth.per_s(0) if growth else None))


class Tcp(_TcpCounter):
    """How often TCP had to send again: the sign of a lossy network."""

    file, protocol, counter = "net/snmp", b"Tcp:", b"RetransSegs"
    fills = ("tcp_retransmits_per_s",)
    every_s = 0.0


class TcpTimeouts(_TcpCounter):
    """How often an acknowledgement never came; in a long table that the kernel adds up over all CPUs."""

    file, protocol, counter = "net/netstat", b"TcpExt:", b"TCPTimeouts"
    fills = ("tcp_timeouts_per_s",)
    every_s = 5.0


def _named(raw: bytes, protocol: bytes) -> dict[bytes, int]:
    """Counters of a protocol, which stand in two lines: their names, and below them the numbers."""
    names, values = (line.split()[1:] for line in raw.splitlines() if line.startswith(protocol))
    return dict(zip(names, map(int, values), strict=True))


def interface_counters(raw: bytes) -> Mapping[str, Sequence[int]]:
    """Bytes, errors and drops of every interface, by name."""
    table: dict[str, tuple[int, ...]] = {}
    for line in raw.splitlines():
        # after the last colon: the name of an alias has one of its own
        name, colon, numbers = line.rpartition(b":")
        columns = numbers.split()
        if colon and len(columns) >= 16:
            table[decode(name.strip())] = tuple(int(columns[column]) for column in _COLUMNS)
    return table


def outside(links: Mapping[str, _Link], have_ports: bool) -> tuple[str, ...]:
    """The interfaces that carry traffic into this machine, each byte once: the physical ones.

    In a container or a virtual machine none may be: then those whose names do not say that they are internal.
    """
    physical = tuple(name for name, link in links.items() if link.physical)
    names = physical or tuple(name for name in links if not _NOT_OUTSIDE.match(name))
    # the port's own counters have the bytes of IP over InfiniBand too
    return tuple(name for name in names if not (have_ports and links[name].ipoib))


def _network(name: str, link: _Link, growth: Growth | None) -> Network:
    if growth is None:
        return Network(name=name, up=link.up, speed_bytes_per_s=link.speed_bytes_per_s)
    rates = [growth.per_s(counter) for counter in range(len(_COLUMNS))]
    return Network(
        name=name,
        up=link.up,
        speed_bytes_per_s=link.speed_bytes_per_s,
        receive_bytes_per_s=rates[_RECEIVED],
        send_bytes_per_s=rates[_SENT],
        drops_per_s=total((rates[_RECEIVE_DROPS], rates[_SEND_DROPS])),
        errors_per_s=total((rates[_RECEIVE_ERRORS], rates[_SEND_ERRORS])),
    )
