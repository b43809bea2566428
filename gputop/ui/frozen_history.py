"""The history as it was when the picture on the screen was taken: a frozen chart stays, also when drawn again."""

from __future__ import annotations

from gputop.history import COARSE_S, FINE_S, FINE_SLOTS, History, Key


class FrozenHistory:
    """A history seen from the moment `at_s`, in monotonic time; from now on where there is none."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.at_s: float | None = None

    def values(self, key: Key, metric: str, seconds: float, step_s: float = FINE_S) -> list[float | None]:
        """The last `seconds` of a metric before then, oldest first, None for a gap."""
        late = self._late(step_s)
        longest = FINE_S * FINE_SLOTS if step_s < COARSE_S else float("inf")  # what is older is kept in coarse steps
        values = self._history.values(key, metric, min(seconds + late * step_s, max(seconds, longest)), step_s)
        return values[: len(values) - late]

    def _late(self, step_s: float) -> int:
        """How many steps ago that was: counted in the history's own slots, or a chart would move by one."""
        if self.at_s is None:
            return 0
        base_s = COARSE_S if step_s >= COARSE_S else FINE_S
        slots = int(self._history.newest_s / base_s) - int(self.at_s / base_s)
        return max(0, round(slots * base_s / step_s))
