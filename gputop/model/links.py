"""The links of a GPU in detail: what one NVLink says of itself, and what PCIe counted."""

from __future__ import annotations

from typing import Annotated

from gputop.declare import record
from gputop.model.metric import Unit, metric

_N = Unit.COUNT


@record(frozen=True, slots=True, kw_only=True)
class NvLink:
    """NVLinks of one GPU that say the same: on a healthy GPU all of them. Counts are of each link, since its start."""

    numbers: Annotated[str, "which links, as a list of ranges"]
    up: bool | None = metric(Unit.FLAG, "the link is up")
    speed_bytes_per_s: float | None = metric(Unit.BYTES_PER_S, "speed of the link, each way")
    replays: int | None = metric(_N, "packets sent again (up to Hopper)")
    recoveries: int | None = metric(_N, "times the link went down and was brought back")
    recoveries_failed: int | None = metric(_N, "times it was not brought back (from Blackwell on)")
    crc_errors: int | None = metric(_N, "packets with a wrong checksum (up to Hopper)")
    effective_errors: int | None = metric(_N, "errors that error correction left (from Blackwell on)")
    effective_error_rate: float | None = metric(_N, "errors per bit after error correction (from Blackwell on)")
    symbol_errors: int | None = metric(_N, "errors before error correction (from Blackwell on)")
    symbol_error_rate: float | None = metric(_N, "errors per bit before error correction (from Blackwell on)")


@record(frozen=True, slots=True, kw_only=True)
class PcieErrors:
    """What went wrong on PCIe since the driver was loaded; which of it is counted depends on the card."""

    replay_rollovers: int | None = metric(_N, "times a packet was sent again so often that the link was trained anew")
    recoveries: int | None = metric(_N, "times the link had to recover")
    correctable: int | None = metric(_N, "errors the link corrected itself")
    non_fatal: int | None = metric(_N, "errors that lost a packet")
    fatal: int | None = metric(_N, "errors that broke the link")
    unsupported_requests: int | None = metric(_N, "requests the GPU could not serve")
    naks_received: int | None = metric(_N, "packets the other side refused")
    naks_sent: int | None = metric(_N, "packets the GPU refused")
    bad_packets: int | None = metric(_N, "damaged packets of data (TLP)")
    bad_link_packets: int | None = metric(_N, "damaged packets of the link itself (DLLP)")
    checksum_errors: int | None = metric(_N, "packets with a wrong link checksum (LCRC)")
    receiver_errors: int | None = metric(_N, "signals the receiver could not read")
    lane_errors: int | None = metric(_N, "errors on single lanes")
