"""Flight records are read from pickles and JSON without trust: no code runs, everything is limited and sanitized."""

from __future__ import annotations

import json
import os
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.collectives.flight_record import FlightRecord, GroupKey, from_json, from_pickle, read
from gputop.safe.files import Refused
from tests.flight_dumps import as_json, dump, entry, peer, pickled, until
from tests.hostile import STRINGS

MADE = f"/tmp/gputop-evil-{os.getpid()}"
ALL = GroupKey("nccl", "0", (0, 1, 2, 3))


def test_a_pickle_and_json_say_the_same_but_for_the_lines() -> None:
    entries = until(3, entry(4, "all_gather", "started", sizes=[[2, 8]], dtype="BFloat16"))
    of_pickle, of_json = from_pickle(pickled(*entries)), from_json(as_json(*entries))
    for record, place in ((of_pickle, "train.py:88"), (of_json, "")):
        group = record.groups[ALL]
        assert (group.entered, group.completed, group.waits_in) == (4, 3, 4)
        last = group.last()
        assert last is not None
        assert (last.called, last.state, last.place) == ("all_gather #4", "started", place)
        assert [one.text for one in last.inputs] == ["bfloat16 [2, 8]"]
        assert (record.version, record.library, record.operations) == ("2.10", "2.27.5", 4)


def test_a_backend_without_events_is_done_with_what_its_group_has_retired() -> None:
    gloo = [entry(n, state="scheduled", backend="gloo", retired=n < 3) for n in (1, 2, 3)]
    (group,) = from_pickle(pickled(*gloo, ranks=())).groups.values()
    assert (group.key.ranks, group.entered, group.completed, group.waits_in) == ((), 3, 2, 3)
    failed = entry(3, state="scheduled", retired=True)  # NCCL retires what timed out, too
    (group,) = from_pickle(pickled(*until(2, failed))).groups.values()
    assert group.waits_in == 3


def test_what_was_overwritten_is_known_from_the_status() -> None:
    """A record of active collectives only: the rank that is behind has none."""
    found = dump(entry(4711))
    found["entries"] = [entry(1, group=("0", "default_pg"), state="scheduled")]
    found["pg_status"]["0"] = {"last_enqueued_collective": 4711, "last_completed_collective": 4710}
    group = read(found).groups[ALL]
    assert (group.entered, group.completed, group.waits_in) == (4711, 4710, 4711)


def test_a_status_that_counts_messages_between_two_ranks_is_not_used() -> None:
    found = dump(*until(3), peer("send 0->1", 9))
    found["pg_status"]["0"] = {"last_enqueued_collective": 9, "last_completed_collective": 8}
    group = read(found).groups[ALL]
    assert (group.entered, group.completed, [one.name for one in group.sent]) == (3, 3, ["send 0->1"])


class Evil:
    def __reduce__(self) -> Any:
        return os.mkdir, (MADE,)


def test_a_pickle_that_calls_something_is_refused_and_nothing_is_called() -> None:
    for value in ({**dump(entry(1)), "more": Evil()}, Evil()):
        for protocol in (2, 4):
            with pytest.raises(Refused, match=r"contains Python objects, .*GLOBAL.*no code was run"):
                from_pickle(pickle.dumps(value, protocol=protocol))
    assert not os.path.exists(MADE)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x80\x02", b"{}", b"[]", b"null", b'{"version": "2.10"}', b'{"version": 2, "pg_config": {}}',
        b"[" * 100_000, b'{"version": "' + b"9" * 5000 + b'", "pg_config": {}}', b"\x00" * 100,
        struct.pack("<BBBI", 0x80, 2, ord("X"), 1 << 31),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_refused_in_one_line(data: bytes) -> None:
    for parse in (from_pickle, from_json):
        with pytest.raises(Refused) as refused:
            parse(data)
        assert "\n" not in str(refused.value)


def test_a_cut_dump_is_refused() -> None:
    for data, parse in ((pickled(*until(3)), from_pickle), (as_json(*until(3)), from_json)):
        for size in range(0, len(data) - 1, 97):
            with pytest.raises(Refused):
                parse(data[:size])


STRANGE: tuple[Any, ...] = (None, True, -1, 1 << 70, 1.5, "x", "9" * 40, [], {}, [[[[]]]], {"a": []}, b"\xff")


@pytest.mark.parametrize("name", list(entry(1)))
def test_a_strange_value_in_any_field_of_an_entry_is_left_out(name: str) -> None:
    for value in STRANGE:
        found = dump(*until(2))
        found["entries"][0][name] = value
        record = read(found)
        assert isinstance(record, FlightRecord)
        assert {group.entered for group in record.groups.values()} <= {0, 2}


@pytest.mark.parametrize("name", ["pg_config", "pg_status", "entries", "comm_lib_version"])
def test_a_strange_value_in_any_field_of_a_dump_is_left_out(name: str) -> None:
    for value in (*STRANGE, {"0": 1}, {"0": {"ranks": [1, 2]}}, {"0": {"ranks": "[1, 2, " + "9" * 30}}):
        assert isinstance(read({**dump(entry(1)), name: value}), FlightRecord)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(st.sampled_from(list(entry(1))), json_values), max_size=4), json_values, json_values)
def test_whatever_stands_in_it_nothing_but_a_refusal_comes_out(entries: Any, config: Any, status: Any) -> None:
    data = json.dumps({"version": "2.1", "pg_config": config, "pg_status": status, "entries": entries}).encode()
    assert isinstance(from_json(data), FlightRecord)


def test_names_are_sanitized() -> None:
    for text in STRINGS:
        hostile = entry(1, group=(text, text), pg_id=0)
        hostile["profiling_name"] = f"nccl:{text}"
        hostile["frames"] = [{"name": text, "filename": f"/{text}.py", "line": 3}]
        hostile["input_dtypes"] = [text]
        record = from_pickle(pickle.dumps({**dump(), "entries": [hostile], "comm_lib_version": text}))
        for group in record.groups.values():
            last = group.last()
            assert last is not None
            shown = (group.key.name, group.description, last.called, last.place, last.inputs[0].text, record.library)
            assert all(one.isprintable() and len(one) < 200 for one in shown)


def test_a_huge_record_is_cut_to_its_newest_part() -> None:
    one = entry(1)
    entries = [{**one, "collective_seq_id": number} for number in range(1, 60_001)]
    record = read({**dump(), "entries": entries})
    assert (record.operations, record.cut, record.groups[ALL].entered) == (50_000, 10_000, 60_000)
