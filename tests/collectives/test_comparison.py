"""Which rank never entered a collective, and whose calls do not match, from the records of all ranks."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.collectives.comparison import Position, compare, names
from gputop.collectives.report import sentences, table
from tests.flight_dumps import entry, peer, pickled, records, until

TP = ("1", "tp")
TP_RANKS = {"groups": {"1": [0, 1]}}


def stuck(number: int, **more: Any) -> tuple[dict[str, Any], ...]:
    """Complete up to the one before, then waiting in this one."""
    return until(number - 1, entry(number, state="started", **more))


def said(*dumps: bytes, **more: Any) -> list[str]:
    return sentences(compare(records(*dumps), **more))


def test_the_rank_that_never_entered_is_named_with_the_line() -> None:
    waits, late = pickled(*stuck(4711, line=88)[-50:]), pickled(*until(4710, first=4700))
    found = compare(records(waits, waits, waits, late))
    first = found.first
    assert first is not None
    assert (first.kind, first.ranks, first.waiting, first.place) == (
        "missing", ("rank 3",), ("rank 0", "rank 1", "rank 2"), "train.py:88",
    )  # fmt: skip
    assert sentences(found) == [
        "Rank 3 never entered all_reduce #4711 (train.py:88); it last entered all_reduce #4710 (train.py:88)."
        " Ranks 0, 1, 2 wait in it."
    ]
    assert table(found).rows[-1] == ("> rank 3", "all_reduce #4710", "#4710", "", "train.py:88")


def test_where_it_is_instead_is_known_from_its_stack() -> None:
    waits, late = pickled(*stuck(5), ranks=(0, 1)), pickled(*until(4), ranks=(0, 1))
    now = {"rank 1": Position("load_shard (data.py:12)")}
    (text,) = said(waits, late, now=now)
    assert (
        text
        == "Rank 1 never entered all_reduce #5 (train.py:88); it is in load_shard (data.py:12). Rank 0 waits in it."
    )


def test_the_line_of_the_call_is_that_of_the_stack_where_the_recorder_has_none() -> None:
    waits, late = ([{**one, "frames": []} for one in some] for some in (stuck(5), until(4)))
    now = {"rank 0": Position("step (train.py:90)", "train.py:90"), "rank 1": Position("load (data.py:1)", "")}
    found = compare(records(pickled(*waits), pickled(*late)), now=now)
    assert found.first is not None
    assert found.first.place == "train.py:90"


def test_ranks_that_advanced_between_two_samples_are_not_missing() -> None:
    before = records(pickled(*stuck(5)), pickled(*until(4)))
    now = records(pickled(*stuck(6)), pickled(*until(5)))
    assert sentences(compare(now, before)) == ["The ranks advance from collective to collective: none is stuck."]
    assert compare(before, before).first is not None


def test_a_rank_that_waits_in_another_group_is_a_consequence() -> None:
    """Rank 1 waits for rank 0 in the pair, and all others wait for rank 1."""
    last = entry(7, "all_gather", "started", group=TP, line=40)
    pair = [entry(n, group=TP) for n in range(1, 7)]
    rank0, rank1 = pickled(*until(9), *pair, **TP_RANKS), pickled(*until(9), *pair, last, **TP_RANKS)
    others = pickled(*stuck(10))
    first, second = said(rank0, rank1, others, others)
    assert first.startswith("Rank 0 never entered all_gather #7 of tp (train.py:40)")
    assert second.startswith("Ranks 0, 1 never entered all_reduce #10 (train.py:88)")


def test_two_ranks_in_opposite_order_wait_for_each_other() -> None:
    pair = [entry(1, group=TP)]
    rank0 = pickled(*stuck(3), *pair, ranks=(0, 1), **TP_RANKS)
    rank1 = pickled(*until(2), *pair, entry(2, "all_gather", "started", group=TP, line=40), ranks=(0, 1), **TP_RANKS)
    assert said(rank0, rank1) == [
        "Rank 1 never entered all_reduce #3 (train.py:88); it waits in all_gather #2 of tp (train.py:40)."
        " Rank 0 waits in it.",
        "Rank 0 never entered all_gather #2 of tp (train.py:40); it waits in all_reduce #3 (train.py:88)."
        " Rank 1 waits in it.",
    ]


@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (
            {"name": "all_gather", "line": 40},
            "Rank 1 called all_gather #5 (train.py:40), the others all_reduce #5 (train.py:88).",
        ),
        (
            {"sizes": [[8, 2]], "line": 40},
            "Sizes differ in all_reduce #5: rank 1 passed float32 [8, 2] (train.py:40),"
            " the others float32 [4096] (train.py:88).",
        ),
        (
            {"dtype": "BFloat16"},
            "Types differ in all_reduce #5: rank 1 passed bfloat16 [4096] (train.py:88),"
            " the others float32 [4096] (train.py:88).",
        ),
    ],
)
def test_calls_that_do_not_match(odd: dict[str, Any], text: str) -> None:
    usual, other = pickled(*stuck(5)), pickled(*stuck(5, **odd))
    assert said(usual, other, usual, usual) == [text]


def test_of_two_ranks_none_is_the_odd_one() -> None:
    (text,) = said(pickled(*stuck(5), ranks=(0, 1)), pickled(*stuck(5, name="barrier"), ranks=(0, 1)))
    assert text == "Rank 1 called barrier #5 (train.py:88), rank 0 all_reduce #5 (train.py:88)."


def test_what_follows_a_call_that_does_not_match_is_not_reported() -> None:
    ahead = pickled(*until(4), entry(5, "all_gather", "completed"), entry(6, state="started"))
    assert [
        one.split(" called")[0] for one in said(ahead, pickled(*stuck(5)), pickled(*stuck(5)), pickled(*stuck(5)))
    ] == ["Rank 0"]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("all_to_all", ([[4]], [[8]])),
        ("all_gather_v", ([[4]], [[8]])),
        ("all_reduce", ([[4, 2]], [[8]])),  # as many elements
        ("barrier", ([[1]], [[]])),
    ],
)
def test_sizes_that_may_differ(name: str, sizes: tuple[Any, Any]) -> None:
    found = [pickled(*stuck(5, name=name, sizes=one), ranks=(0, 1)) for one in sizes]
    assert [one.kind for one in compare(records(*found)).discrepancies] == ["stuck"]


def test_a_broadcast_that_its_root_has_left_is_not_an_entry_that_is_missing() -> None:
    root = pickled(*until(4), entry(5, "broadcast"), ranks=(0, 1))
    waits = pickled(*stuck(5, name="broadcast"), ranks=(0, 1))
    assert said(root, waits) == ["Rank 1 waits in broadcast #5 (train.py:88), which rank 0 completed."]


def test_where_all_entered_it_the_ranks_without_a_record_may_be_missing() -> None:
    waits = pickled(*stuck(5))
    assert said(waits, waits) == [
        "All 2 recorded ranks wait in all_reduce #5 (train.py:88).",
        "There is no record of ranks 2, 3: not entering a collective cannot be excluded there.",
    ]


def test_a_rank_without_any_collective_is_missing_from_the_first() -> None:
    waits, none = pickled(*stuck(1)), pickled()
    first = compare(records(waits, waits, waits, none)).first
    assert first is not None
    assert (first.ranks, first.text) == (("rank 3",), "rank 3 never entered all_reduce #1 (train.py:88)")


def test_ranks_outside_a_group_are_not_missing_from_it() -> None:
    pair = entry(1, "all_gather", "started", group=TP)
    inside, outside = pickled(*until(3), pair, **TP_RANKS), pickled(*until(3))
    assert [one.ranks for one in compare(records(inside, inside, outside, outside)).discrepancies] == [()]


def test_a_rank_that_waits_for_a_message_is_said_to() -> None:
    waits = pickled(*until(3), peer("recv 1<-0", 4, line=51))
    done = pickled(*until(3))
    assert said(done, waits, done, done) == ["Rank 1 waits in recv 1<-0 (train.py:51)."]


def test_a_job_between_steps_waits_in_nothing() -> None:
    done = pickled(*until(3))
    assert said(done, done, done, done) == ["No rank waits in a collective."]


def test_many_ranks_are_counted() -> None:
    assert names([f"rank {n}" for n in range(20)]) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"
    assert (names(["rank 3"]), names(["4711", "host"])) == ("rank 3", "4711, host")
    late, waits = pickled(*until(4), ranks=range(64)), pickled(*stuck(5), ranks=range(64))
    found = compare(records(*([waits] * 60), *([late] * 4)))
    assert found.first is not None
    assert found.first.text.startswith("ranks 60, 61, 62, 63 never entered all_reduce #5")
