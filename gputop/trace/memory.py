"""Device memory over time as PyTorch's allocator reports it, thinned if long."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Any

from gputop.trace.intervals import order

MOST = 300_000
MOST_DEVICES = 32
_CUDA = 1


class MemorySeries:
    """Bytes over time of one device, thinned; maxima are exact."""

    def __init__(self) -> None:
        self.at = array("d")
        self.allocated, self.reserved = array("q"), array("q")
        self.most_allocated, self.most_reserved = array("q"), array("q")  # maximum since the previous time
        self.peak_bytes = self.peak_reserved_bytes = 0
        self._every, self._skipped = 1, 0
        self._most = 0, 0  # since the last time
        self._last = 0.0, 0, 0

    def add(self, at: float, allocated: int, reserved: int) -> None:
        """Add a sample."""
        self.peak_bytes = max(self.peak_bytes, allocated)
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, reserved)
        self._most = max(self._most[0], allocated), max(self._most[1], reserved)
        self._last = at, allocated, reserved
        self._skipped += 1
        if self._skipped >= self._every:
            self._keep()

    def finish(self) -> None:
        """Keep the last sample, too."""
        if self._skipped:
            self._keep()

    def _keep(self) -> None:
        at, allocated, reserved = self._last
        self.at.append(at)
        self.allocated.append(allocated)
        self.reserved.append(reserved)
        self.most_allocated.append(self._most[0])
        self.most_reserved.append(self._most[1])
        self._skipped, self._most = 0, (0, 0)
        if len(self.at) < MOST:
            return
        for most in (self.most_allocated, self.most_reserved):
            for place in range(1, len(most), 2):
                most[place] = max(most[place - 1], most[place])
        self.at, self.allocated, self.reserved = self.at[1::2], self.allocated[1::2], self.reserved[1::2]
        self.most_allocated, self.most_reserved = self.most_allocated[1::2], self.most_reserved[1::2]
        self._every *= 2


class AllocatorMemory:
    """Allocated and reserved bytes over time; with several devices, of the one with the highest peak.

    Each time stores the maximum since the previous one: the peak of any interval is exact.
    """

    def __init__(self) -> None:
        self.at = array("d")  # microseconds
        self.allocated, self.reserved = array("q"), array("q")
        self.most_allocated, self.most_reserved = array("q"), array("q")  # maximum since the previous time
        self.peak_bytes = self.peak_reserved_bytes = 0
        self.device = -1  # the device; -1 if none yet
        self.untotalled = 0  # events without totals, of Kineto before 2022
        self._devices: dict[int, MemorySeries] = {}

    def add(self, event: dict[str, Any], at: float) -> None:
        """Add an allocation or release at a time in our time base."""
        args = event["args"]
        if args.get("Device Type") != _CUDA:
            return
        if "Total Allocated" not in args and "Bytes" in args:
            self.untotalled += 1
            return
        allocated, reserved, device = args["Total Allocated"], args.get("Total Reserved", 0), args.get("Device Id", 0)
        if type(allocated) is not int or type(reserved) is not int or type(device) is not int:
            raise TypeError("bytes are whole numbers")
        if not 0 <= allocated < 1e15 or not 0 <= reserved < 1e15:
            raise ValueError("more memory than there is")
        if device in self._devices or len(self._devices) < MOST_DEVICES:
            self._devices.setdefault(device, MemorySeries()).add(at, allocated, reserved)

    def finish(self) -> None:
        """Sort the samples once all events are read."""
        if not self._devices:
            return
        self.device, found = max(self._devices.items(), key=lambda one: (one[1].peak_bytes, -one[0]))
        found.finish()
        places = order(found.at)
        self.at = array("d", (found.at[place] for place in places))
        self.allocated, self.reserved, self.most_allocated, self.most_reserved = (
            array("q", (values[place] for place in places))
            for values in (found.allocated, found.reserved, found.most_allocated, found.most_reserved)
        )
        self.peak_bytes, self.peak_reserved_bytes = found.peak_bytes, found.peak_reserved_bytes
        self._devices.clear()

    def __len__(self) -> int:
        return len(self.at)

    def peak(self, start: float, end: float) -> tuple[int, int]:
        """Maximum allocated and reserved bytes over an interval, including its initial level."""
        first, last = bisect_left(self.at, start), bisect_right(self.at, end)
        before = max(0, first - 1)
        allocated = *self.allocated[before:first], *self.most_allocated[first:last], 0
        reserved = *self.reserved[before:first], *self.most_reserved[first:last], 0
        return max(allocated), max(reserved)

    def allocated_at(self, at: float) -> int | None:
        """Allocated bytes at a time; None before the first sample."""
        place = bisect_right(self.at, at) - 1
        return self.allocated[place] if place >= 0 else None
