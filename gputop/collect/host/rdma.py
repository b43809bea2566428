"""What the transport of an RDMA port had to repair, how often congestion slowed it, and bytes, by its hardware."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from gputop.collect.growth import Growth, Ledger
from gputop.collect.kernel import Kernel

_EVERY_S = 5.0  # the driver asks the adapter's firmware for them
# names of NVIDIA's drivers; other makers have some of them
_COUNTERS = {
    "out_of_order_per_s": "out_of_sequence",
    "sequence_errors_per_s": "packet_seq_err",
    "ack_timeouts_per_s": "local_ack_timeout_err",
    "congestion_sent_per_s": "np_cnp_sent",
    "congestion_handled_per_s": "rp_cnp_handled",
}
TRANSPORT_FILLS = tuple(_COUNTERS)
# EFA and Broadcom's adapters have no counters of the standard, and count all their bytes here
_CARRIED = {"receive_bytes_per_s": "rx_bytes", "send_bytes_per_s": "tx_bytes"}
_ALL = {**_COUNTERS, **_CARRIED}

Rates = Mapping[str, Any]  # fields of a Network


class Transport:
    """The last look at the hardware counters of every port."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._counters: Ledger[str] = Ledger()
        self._rates: dict[str, Rates] = {}
        self._looked_s = -inf
        self._counting: frozenset[str] = frozenset()

    def counts(self, port: str) -> bool:
        """Whether the hardware of a port tells how many bytes it carried."""
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
        told = _ALL if self.counts(port) else _COUNTERS
        return {metric: growth.per_s(number) if growth else None for number, metric in enumerate(told)}
