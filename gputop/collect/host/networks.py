"""Network interfaces, from /proc/net/dev and /sys/class/net: those through which traffic enters this machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from gputop.collect.growth import Growth, Ledger, total
from gputop.collect.host.aside import Aside
from gputop.collect.host.infiniband import Ports
from gputop.collect.kernel import Kernel
from gputop.model import Host, Missing, Network
from gputop.safe.text import decode

# inside of the machine, or on top of another interface whose bytes are counted already
_NOT_OUTSIDE = re.compile(
    r"lo$|veth|docker|br-|br\d|virbr|lxc|lxd|cni|cali|flannel|cilium|kube|weave|vnet|tap|tun|wg|dummy|ifb|bond|team|"
    r"vxlan|geneve|gre|erspan|sit|ip6|ip_|teql|nodelocaldns|.+[.@]\d+$"
)
_STATIC_EVERY_S = 60.0
_IPOIB = 32  # ARPHRD_INFINIBAND
_MEGABIT = 1e6 / 8
_UP = {"up": True, "down": False, "lowerlayerdown": False}  # others do not tell

# columns of /proc/net/dev
_RECEIVED, _RECEIVE_ERRORS, _RECEIVE_DROPS, _SENT, _SEND_ERRORS, _SEND_DROPS = range(6)
_COLUMNS = (0, 2, 3, 8, 10, 11)


class _Link(NamedTuple):
    up: bool | None
    speed_bytes_per_s: float | None
    physical: bool  # and under no other one that counts for it, as the paravirtual interfaces of Azure do
    ipoib: bool


_UNKNOWN = _Link(None, None, physical=False, ipoib=False)


class Links(Aside):
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
        """Look at each interface, from time to time: a link may come up, or be another of the same name."""
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
        """Rates since the last look, by interface and port, and their sums."""
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
        """How often a second since the last look."""
        count = _named(self._kernel.proc(self.file), self.protocol)[self.counter]
        growth = self._counters.grown(now_s, {"tcp": (count,)}).get("tcp")
        return Host(**dict.fromkeys(self.fills, growth.per_s(0) if growth else None))


class Tcp(_TcpCounter):
    """How often TCP had to send again, which is how a lossy network looks from here."""

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
