"""The tabs of the screen of a process, in their order. A new one is declared here and in commands/process_tabs.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputop.model import Part
from gputop.ui.details import environment, files, gpus, io, limits, memory, relatives, threads
from gputop.ui.details.process_view import ProcessView
from gputop.ui.theme import Look
from gputop.ui.widgets.tabs import Body, ListTab


class ProcessTab(ListTab):
    """A list that is made of what is known of the process now."""

    view: ProcessView  # what it is drawn from; set before it is drawn

    def __init__(
        self,
        id: str,
        title: str,
        body: Callable[[ProcessView, int], Body],
        parts: tuple[Part, ...] = (),
        *,
        short: str = "",
        cursor: bool = True,
        loaders: bool = False,
        takes: str = "",
    ) -> None:
        """`parts` of the details are read for it; where `loaders` is set, what its loaders do stands below."""
        self.id, self.title, self.short, self.cursor, self.takes = id, title, short, cursor, takes
        self.parts, self.loaders, self._body = parts, loaders, body

    def body(self, width: int, look: Look) -> Body:  # noqa: ARG002
        """Its lines now."""
        return self._body(self.view, width)


def process_tabs() -> Mapping[str, ProcessTab]:
    """All of them by id, for one screen: each keeps its own cursor."""
    tabs = (
        ProcessTab("threads", "Threads", threads.body, ("threads",), loaders=True),
        ProcessTab("io", "I/O", io.body, ("io", "files"), cursor=False, loaders=True),
        ProcessTab("gpu", "GPU", gpus.body, cursor=False, loaders=True),
        ProcessTab("environment", "Environment", environment.body, ("environment",), short="Env", takes="Show"),
        ProcessTab("children", "Children", relatives.body, ("overview", "children"), takes="Open"),
        ProcessTab("files", "Files", files.body, ("files",)),
        ProcessTab("limits", "Limits", limits.body, ("limits", "overview"), cursor=False),
        ProcessTab("memory", "Memory", memory.body, ("memory",), cursor=False),
    )
    return {tab.id: tab for tab in tabs}
