"""The history as it was when the picture on the screen was taken: a frozen chart stays, also when it is drawn anew."""

from __future__ import annotations

from gputop.history import COARSE_S, FINE_S, FINE_SLOTS, History, Key


class Then:
    """A history seen from `lag_s` ago."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.lag_s = 0.0

    def values(self, key: Key, metric: str, seconds: float, step_s: float = FINE_S) -> list[float | None]:
        """The last `seconds` of a metric before then, oldest first, None for a gap."""
        late = round(self.lag_s / step_s)
        longest = FINE_S * FINE_SLOTS if step_s < COARSE_S else float("inf")  # what is older is kept in coarse steps
        values = self._history.values(key, metric, min(seconds + late * step_s, max(seconds, longest)), step_s)
        return values[: len(values) - late]
