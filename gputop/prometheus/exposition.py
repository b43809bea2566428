"""The text that a scraper reads, made by the Prometheus client library, and at most once for one moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from gputop.prometheus.collector import UpdateCollector

MOST_BYTES = 4 << 20  # of one answer
SAME_MOMENT_S = 1.0  # scrapes within this time get the same text


class TooLarge(Exception):
    """The text is longer than an answer may be."""


def _openmetrics(registry: Collector) -> bytes:
    # no name of ours needs escaping: looking for such a character in each takes a third of the time
    text: bytes = openmetrics.generate_latest(registry, escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
    return text


class CachedExposition:
    """Renders a collector. Thread-safe: of several scrapers at a time one renders, the others wait and share."""

    def __init__(self, collector: UpdateCollector, clock: Callable[[], float] = time.monotonic) -> None:
        self._collector, self._clock = collector, clock
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        self._lock = Lock()
        self._known: dict[str, tuple[object, float, bytes]] = {}  # by content type: update, when rendered, text

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text in the best format of an Accept header, and its content type; TooLarge."""
        encode, content_type = choose_encoder(accept)
        if content_type.startswith("application/openmetrics-text"):
            encode = _openmetrics
        with self._lock:
            update, now_s = self._collector.newest, self._clock()
            seen, rendered_s, text = self._known.get(content_type, (None, 0.0, b""))
            if not text or seen is not update or now_s - rendered_s > SAME_MOMENT_S:
                text = encode(self._registry)
                self._known[content_type] = update, now_s, text
        if len(text) > MOST_BYTES:
            raise TooLarge
        return text, content_type

    def plain(self) -> bytes:
        """The newest metrics in the text format, for a file."""
        return generate_latest(self._registry)
