"""In which order tests begin: none that waits for long is waited for at the end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Order:
    """Puts tests that wait more than they compute first in the share of each worker, whole files together.

    xdist (`--dist worksteal`) gives each worker a stretch of the list, and who is done takes from the end of others.
    """

    @pytest.hookimpl(trylast=True)  # what is left out by then is not counted
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        waiting: dict[Path, list[pytest.Item]] = {}
        others: list[pytest.Item] = []
        for item in items:
            place = waiting.setdefault(item.path, []) if item.get_closest_marker("waits") else others
            place.append(item)
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        files, ordered = [*waiting.values()], list[pytest.Item]()
        for worker in range(workers):
            ordered += [item for file in files[worker::workers] for item in file]
            room = max(0, len(items) * (worker + 1) // workers - len(ordered))
            ordered += others[:room]
            others = others[room:]
        items[:] = ordered + others
