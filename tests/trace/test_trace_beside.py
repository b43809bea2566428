"""A trace that another process decodes is the same trace, and that process never stays."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.safe.files import Refused
from gputop.trace.events import LARGE_BYTES, Events, NoTrace, ProcessEvents, decoded
from gputop.trace.text import Text
from tests.traces import GEMM, Made


def whole() -> bytes:
    """A small trace, with a head and what JSON allows in names."""
    made = Made()
    for number in range(300):
        made.kernel(GEMM, number * 10, 5)
    made.note("\ud800 é [/foo]", 10, 5)
    return made.text().encode("utf-8", "surrogatepass")


def seen(events: Events | ProcessEvents, text: Text) -> object:
    """All that it says."""
    try:
        return [event for batch in events.batches() for event in batch], events.head, events.notes, text.notes
    except NoTrace as reason:
        return str(reason)
    finally:
        text.close()


@pytest.mark.parametrize(
    "made",
    [
        whole,
        lambda: whole()[:-2000],
        lambda: whole().replace(b'"dur"', b'"dur', 3),
        lambda: gzip.compress(whole()),
        lambda: gzip.compress(whole())[:-400],
        lambda: b'{"traceEvents": []}',
        lambda: b"no JSON",
        lambda: b'{"other": 1}',
    ],
    ids=["whole", "cut", "damaged", "packed", "packed and cut", "without events", "no JSON", "no trace"],
)
def test_f06_it_says_the_same(made: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(made())
    here, there = Text(str(path)), Text(str(path))
    assert seen(ProcessEvents(there), there) == seen(Events(here.pieces()), here)
    assert there.read_bytes == here.read_bytes


def children() -> set[int]:
    """Processes of ours."""
    found = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(map(int, found.read_text().split()))


@pytest.fixture
def large(tmp_path: Path) -> Text:
    """More than one batch, and more than a pipe holds."""
    path, part = tmp_path / "trace.json", whole().decode("utf-8", "surrogatepass")
    head, _, events = part.partition('"traceEvents": [')
    one = events.rpartition("]")[0]
    count = LARGE_BYTES // len(one) + 2
    path.write_text(
        head + '"traceEvents": [' + ",".join([one] * count) + "]}", encoding="utf-8", errors="surrogatepass"
    )
    return Text(str(path))


def test_who_has_had_enough_leaves_no_process(large: Text) -> None:
    before, events = children(), decoded(large)
    assert isinstance(events, ProcessEvents)
    batches = events.batches()
    next(batches)
    assert len(children() - before) == 1
    batches.close()
    assert children() == before
    large.close()


def test_f06_a_reader_that_is_killed_is_no_short_trace(large: Text) -> None:
    before, batches = children(), decoded(large).batches()
    next(batches)
    (reader,) = children() - before
    os.kill(reader, signal.SIGKILL)
    with pytest.raises(Refused, match=r"^/.*: the decoding process was killed"):
        list(batches)
    assert children() == before
    large.close()
