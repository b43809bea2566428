"""The filter's language: what matches, what is wrong and where, and that any text is one or the other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gputop import docs
from gputop.model import Role
from gputop.ui.table.filter import ALIASES, EXAMPLE, FIELDS, HINT, Filter, FilterError, parse
from tests.hostile import STRINGS
from tests.scripted_jobs import GIB, MIB, frame, process, training

LLAMA = training("llama", 41000, ranks=2, loaders=2)  # GPUs 0 and 1
SD3 = training("sd3", 52000, ranks=1, loaders=1, first_gpu=4, user="bob")
SHELL = process(
    7, user="root", name="bash", command=("bash", "-l"), state="D", rss_bytes=2 * GIB + 40 * MIB, age_s=90.0
)
CONDA = process(
    9,
    user="carol",
    name="python3.11",
    command=("/opt/conda/bin/python3.11", "-u", "/home/carol/a.py", "x" * 500, "--lr=1"),
)
UNKNOWN = process(8, user=None, command=(), name="ghost", read_bytes_per_s=None, state=None, rss_bytes=None)
SHOWN = frame(LLAMA, SD3, gpus=8, loose=(SHELL, UNKNOWN, CONDA))
EVERYBODY = {41000, 41100, 41101, 41102, 41200, 41201, 41202, 52000, 52100, 52101, 7, 8, 9}
ALICE = {41000, 41100, 41101, 41102, 41200, 41201, 41202}
TRAINERS = {41100, 41200, 52100}
LOADERS = {41101, 41102, 41201, 41202, 52101}


def found(text: str) -> set[int]:
    asked = parse(text)
    assert asked is not None
    return {identity.pid for identity in asked.found(SHOWN)}


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        ("alice", ALICE),
        ("ALICE", ALICE),
        ("llama", ALICE | {52100}),
        ("worker", LOADERS),
        ("alice worker", LOADERS - {52101}),
        ("alice !worker", ALICE - LOADERS),
        ('"bash -l"', {7}),
        ("--config", EVERYBODY - LOADERS - {41000, 52000, 7, 8, 9}),
        ("rank0", {41100, 52100}),
        ("/opt/conda", {9}),
        ("python3.11", {9}),
        ('"python -u"', {9}),
        ("--lr=1", {9}),
        ("cmd=conda", {9}),
        ("name=python3.11", {9}),
        ("name=bash", {7}),
        ("41100", {41100}),
        ("user=alice", ALICE),
        ("user=al", set()),  # another user
        ("user=bo,alice", ALICE),
        ("user=bob,root", {52000, 52100, 52101, 7}),
        ("user!=alice", EVERYBODY - ALICE - {8}),
        ("!user=alice", EVERYBODY - ALICE),
        ("job=sd3", {52000, 52100, 52101}),
        ("job=LLAM", ALICE),
        ("gpu=0", {41100, 41101, 41102, 41000}),
        ("gpu=1", {41200, 41201, 41202, 41000}),
        ("gpu=1-4", {41200, 41201, 41202, 41000, 52100, 52101, 52000}),
        ("gpu=0,4", {41100, 41101, 41102, 41000, 52100, 52101, 52000}),
        ("gpu>1", {52100, 52101, 52000}),
        ("rank=1", {41200}),
        ("rank>=0 user=alice", {41100, 41200}),
        ("state=D", {7}),
        ("state!=D", EVERYBODY - {7, 8}),
        ("!state=D", EVERYBODY - {7}),
        ("!state!=D", {7, 8}),
        ("!rss>1", {8}),
        ("mem=2G", LOADERS | {7}),
        ("RES=2G MEM=2G memory=2G", LOADERS | {7}),
        ("name=train.py", EVERYBODY - LOADERS - {7, 8, 9}),
        ("age<5m", {7}),
        ("s=D owner=root", {7}),
        ("gpu_busy>0", TRAINERS),
        ("read>50M", LOADERS),
        ("read>50MB/s", LOADERS),
        ("read>1g", set()),
        ("read<1", EVERYBODY - LOADERS - {8}),
        ("rss=2G", LOADERS | {7}),
        ("rss=1G-2G", EVERYBODY - {41100, 41200, 52100, 7, 8}),
        ("cpu>=50 cpu<100", LOADERS),
        ("cpu%=50", LOADERS),
        ("thr=63", {41100, 41200, 52100}),
        ("pid=7-8", {7, 8}),
        ("time<5m", {7}),
        ("cmd=train.py", EVERYBODY - LOADERS - {7, 8, 9}),
        ("role=loader", LOADERS),
        ("role=worker", LOADERS),
        ("role!=worker", EVERYBODY - LOADERS),
        ("CPU>=100", {41100, 41200, 52100}),
        ("user=alice gpu=0-3 read>50M state=S worker", LOADERS - {52101}),
    ],
)  # fmt: skip
def test_what_matches(text: str, pids: set[int]) -> None:
    assert found(text) == pids


@pytest.mark.parametrize("text", ["", "   ", "\t"])
def test_nothing_typed_asks_nothing(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("user=alice gpuu=0", "gpuu", "unknown field gpuu: did you mean gpu?"),
        ("!vramm>1G", "vramm", "unknown field vramm: did you mean vram?"),
        ("xyzzyx=3", "xyzzyx", f'unknown field xyzzyx; quote "xyzzyx=3" to search for it as text; {HINT}'),
        ("frame=3", "frame", f'unknown field frame; quote "frame=3" to search for it as text; {HINT}'),
        ("alice read>5X", "5X", "5X is not a valid value, for example read>50M"),
        ("alice read > 50M", ">", "no spaces around >, as in read>50M"),
        ("read >=50M", ">=", "no spaces around >=, as in read>50M"),
        ("read>", "read>", "read> needs a value, for example read>50M"),
        ("gpu=0-", "0-", "0- is not a valid value, for example gpu=0-3"),
        ("gpu=3-1", "3-1", "3-1 is an empty range: the lower value comes first"),
        ("gpu=0,,1", ",", "a value is missing, for example gpu=0-3"),
        ("rss>1G,2G", "1G,2G", "> needs one value, as in rss>50M"),
        ("rss>1G-2G", "1G-2G", "> needs one value, as in rss>50M"),
        ("user>3", ">", "a text field only takes = and !=, as in user=alice"),
        ("user==alice", "=", "use = alone, for example user=alice"),
        ("job!==llama", "=", "use != alone, for example job=llama"),
        ("user=>bob", ">", "use = alone, for example user=alice"),
        ("alice user=,", ",", "a word is missing, for example user=alice"),
        ('user=""', '"', "a word is missing, for example user=alice"),
        ('alice "bob', '"', "a quote is not closed"),
        ("!", "!", "a word is missing"),
        ("time>5x", "5x", "5x is not a valid value, for example time>5m"),
        (f"{'y' * 30}=1", "y" * 30, f'unknown field {"y" * 19}…; quote "{"y" * 19}…" to search for it as text; {HINT}'),
    ],
)
def test_an_error_says_what_is_wrong_and_points_at_it(text: str, at: str, said: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert str(caught.value) == said
    assert text[caught.value.start : caught.value.end] == at


PIECES = st.sampled_from(
    [*FIELDS, "=", "!=", ">", "<", ">=", "<=", "!", '"', " ", ",", "-", "0", "3", "50M", "1.5", "alice"]
)


def tried(text: str) -> tuple[Filter | None, FilterError | None]:
    """What a text is: a filter, or wrong."""
    try:
        return parse(text), None
    except FilterError as wrong:
        return None, wrong


@given(st.text() | st.lists(PIECES, max_size=12).map("".join) | st.sampled_from(STRINGS))
@settings(max_examples=400)
@example("gpu=" + "9" * 400)
@example("nice=-5--1 pid=٣")
@example("rss=" + "9" * 15 + "P")
def test_any_text_is_a_filter_or_wrong_at_a_place_in_it(text: str) -> None:
    asked, wrong = tried(text)
    if wrong:
        assert str(wrong)
        assert 0 <= wrong.start < wrong.end <= len(text) + 1
        assert wrong.start < len(text)
    else:
        assert (asked is None) == (not text.strip())
        assert asked is None or {identity.pid for identity in asked.found(SHOWN)} <= EVERYBODY


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_takes_the_value_of_its_own_example(name: str) -> None:
    example = FIELDS[name].example
    if not example.endswith("…"):
        assert parse(example) is not None


def test_another_name_of_a_field_is_no_field_of_its_own_and_is_in_the_manual() -> None:
    page = docs.read("columns")
    for name, others in ALIASES.items():
        for other in others:
            assert FIELDS[other] is FIELDS[name]
            assert f"`{other}`" in page


def test_what_the_bar_offers_exists() -> None:
    assert set(HINT.removeprefix("fields: ").split()) <= set(FIELDS)
    assert len(HINT) < 80, "a blank stands before it"
    assert parse(EXAMPLE) is not None


def test_the_nearest_name_is_offered() -> None:
    for text, nearest in (("user=alcie", ("user", "alice", 7)), ("lamma", ("job", "llama", 7)), ("zzzzz", None)):
        asked = parse(text)
        assert asked is not None
        assert asked.found(SHOWN) == frozenset()
        assert asked.nearest(SHOWN) == nearest
    asked = parse("user=alice read>50G")
    assert asked is not None
    assert asked.nearest(SHOWN) is None, "nobody is misspelled"


def test_a_stray_loader_counts_on_all_gpus_of_its_job() -> None:
    job, members = training("one", 100, ranks=2, loaders=0)
    stray = process(300, 1, job="one", role=Role.LOADER, name="pt_data_worker")
    asked = parse("gpu=1 role=loader")
    assert asked is not None
    assert {identity.pid for identity in asked.found(frame((job, [*members, stray])))} == {300}
    assert asked.found(frame((replace(job, key="other"), [*members, stray]))) == frozenset()
