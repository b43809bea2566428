"""Frames as JSON and back: nothing lost, nothing forged let in."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass, make_dataclass, replace
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputop.demo import SCENARIOS, Demo
from gputop.diagnose import Finding
from gputop.export import codec
from gputop.model import Frame, Gpu, Host, Identity, Missing, Process, Xid
from gputop.safe.text import clean
from tests.full_frame import filled, gaps
from tests.hostile import STRINGS

MINIMAL = {"wall_s": 1, "mono_s": 2, "hostname": "n", "host": {}}


def read(data: Any) -> Frame:
    return codec.decode(Frame, codec.loads(json.dumps(data)))


def changed(**fields: Any) -> dict[str, Any]:
    return MINIMAL | fields


def test_golden_frame_has_every_field_and_can_be_read(golden: Callable[[str, str], None]) -> None:
    frame = filled(Frame)
    assert gaps(frame) == []
    golden("frame-v1.json", json.dumps(codec.encode(frame), indent=1) + "\n")
    assert read(codec.encode(frame)) == frame


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_frames_come_back_equal(name: str) -> None:
    demo = Demo(SCENARIOS[name], pace=False, anchor_s=1_795_185_127)
    frame = demo.frame(demo.at_s)
    line = codec.dumps(codec.frame_line(frame))
    assert "\n" not in line
    assert line.isascii()
    assert codec.decode(Frame, codec.loads(line)["frame"]) == frame


def test_unknown_is_left_out_and_the_known_stays() -> None:
    assert codec.encode(Gpu(uuid="u", index="0", name="n", busy_percent=0.0, remap_pending=False)) == {
        "uuid": "u",
        "index": "0",
        "name": "n",
        "condition": "ok",
        "condition_s": 0.0,
        "age_s": 0.0,
        "unified_memory": False,
        "numa_memory": False,
        "missing": [],
        "busy_samples": [],
        "busy_percent": 0.0,
        "engines": [],
        "nvlink_bytes_per_s": [],
        "nvlinks": [],
        "remap_pending": False,
        "xids": [],
        "peers": [],
    }


def test_sets_are_sorted_and_identities_are_pairs() -> None:
    gpu = Gpu(uuid="u", index="0", name="n", throttle_reasons=frozenset({"power cap", "thermal"}))
    assert codec.encode(gpu)["throttle_reasons"] == ["power cap", "thermal"]
    assert codec.encode(Identity(7, 9)) == [7, 9]
    assert codec.decode(Identity, [7, 9]) == Identity(7, 9)
    assert codec.encode(Process(pid=1, started_ticks=2))["role"] == "other"


def test_older_frames_get_defaults_and_newer_ones_lose_what_is_not_known() -> None:
    assert read(MINIMAL) == Frame(wall_s=1.0, mono_s=2.0, hostname="n", host=Host())
    newer = changed(moon_phase=3, gpus=[{"uuid": "u", "index": "0", "name": "n", "qubits": {"deep": [1]}}])
    assert read(newer).gpus == (Gpu(uuid="u", index="0", name="n"),)


def test_words_of_older_versions_are_read_as_what_they_are_called_today() -> None:
    gpu = {"uuid": "u", "index": "0", "name": "n", "throttle_reasons": ["hard heat", "hardware", "heat", "settings"]}
    today = {"hw thermal", "hw slowdown", "thermal", "clock settings"}
    assert read(changed(gpus=[gpu])).gpus[0].throttle_reasons == today


def test_null_is_unknown() -> None:
    gpu = {"uuid": "u", "index": "0", "name": "n", "busy_percent": None, "xids": None}
    assert read(changed(gpus=[gpu])).gpus[0] == Gpu(uuid="u", index="0", name="n")


@pytest.mark.parametrize("text", [*STRINGS, "\x1b[2Jname", "a" * 10_000])
def test_text_is_cleaned_on_the_way_in(text: str) -> None:
    frame = read(changed(hostname=text, processes=[{"pid": 1, "started_ticks": 2, "command": [text]}]))
    assert frame.hostname == frame.processes[0].command[0] == clean(text)
    assert len(frame.hostname) <= 4096


def gpu(**fields: Any) -> dict[str, Any]:
    return changed(gpus=[{"uuid": "u", "index": "0", "name": "n"} | fields])


def process(**fields: Any) -> dict[str, Any]:
    return changed(processes=[{"pid": 1, "started_ticks": 1} | fields])


FORGED: tuple[tuple[str, Any], ...] = (
    ("frame is a list of 0, not an object", []),
    ("frame is 3, not an object", 3),
    ("frame has no host", {"wall_s": 1, "mono_s": 1, "hostname": "n"}),
    ("frame has no hostname", changed(hostname=None)),
    ("frame.wall_s is 'now', not a number", changed(wall_s="now")),
    ("frame.wall_s is True, not a number", changed(wall_s=True)),
    ("frame.wall_s is 1000000", changed(wall_s=10**60)),
    ("frame.hostname is 7, not a text", changed(hostname=7)),
    ("frame.gpus is an object, not a list", changed(gpus={"0": {}})),
    ("frame.gpus[].uuid is a list of 1, not a text", gpu(uuid=["u"])),
    ("frame.gpus[].condition is 'well', not a word", gpu(condition="well")),
    ("frame.gpus[].pcie_width is 1.5, not a whole number", gpu(pcie_width=1.5)),
    ("frame.gpus[].mig_mode is 1, not true or false", gpu(mig_mode=1)),
    ("frame.gpus[].busy_samples[] is a list of 1, not a list of 2", gpu(busy_samples=[[1]])),
    ("frame.gpus[].throttle_reasons[] is 'boredom', not a word", gpu(throttle_reasons=["boredom"])),
    ("frame.processes[].role is 'boss', not a word", process(role="boss")),
    ("frame.processes[].role is an object, not a word", process(role={})),
    ("frame.processes[].pid is 9223372036854775808, not a whole", process(pid=2**63)),
    ("frame.jobs[].ranks[] is a list of 3", changed(jobs=[{"key": "k", "name": "n", "ranks": [[1, 2, 3]]}])),
    ("frame.host.load is a list of 2, not a list of 3", changed(host={"load": [1, 2]})),
    ("frame.processes is a list of 200001, not", changed(processes=[0] * 200_001)),
)


@pytest.mark.parametrize(("said", "data"), FORGED, ids=[said[:40] for said, _ in FORGED])
def test_forged_frames_are_refused_in_one_line(said: str, data: Any) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        read(data)
    text = str(refused.value)
    assert text.startswith(said)
    assert "\n" not in text
    assert len(text) < 200


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("NaN is not a number", '{"wall_s": NaN}'),
        ("-Infinity is not a number", "[-Infinity]"),
        ("not JSON: Expecting value at character 6", '{"a": '),
        ("not JSON", "\x1b[2J"),
        ("not a frame: nested too deeply", "[" * 200_000),
        ("the maximum of one object", " " * (codec.MOST_CHARS + 1)),
    ],
)
def test_text_that_is_not_ours_is_refused_in_one_line(said: str, text: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        codec.loads(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000])
def test_numbers_beyond_every_bound_are_refused(number: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        codec.decode(Frame, codec.loads(json.dumps(MINIMAL).replace('"wall_s": 1', f'"wall_s": {number}')))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_never_written(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.dumps(codec.encode(replace(read(MINIMAL), late_s=number)))


def test_what_is_not_of_the_model_has_no_place() -> None:
    with pytest.raises(TypeError, match="object has no place"):
        codec.encode(object())
    for kind in (complex, make_dataclass("Odd", [("either", int | str)])):
        with pytest.raises(TypeError, match="has no place"):
            codec.decode(kind, {"either": 1})


def test_the_header_names_the_version() -> None:
    assert codec.header("dgx-07") == {"type": "header", "version": 1, "gputop": codec.__version__, "host": "dgx-07"}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type of the model."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*(st.none() if part is type(None) else values(part) for part in parts))
    if origin is Literal:
        return st.sampled_from(parts)
    if origin is frozenset:
        return st.frozensets(values(parts[0]))
    if origin is tuple and parts[-1] is Ellipsis:
        return st.lists(values(parts[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, parts))
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        kinds = {field.name: values(hints[field.name]) for field in fields(hint)}
        needed = {field.name: kinds.pop(field.name) for field in fields(hint) if field.default is MISSING}
        return st.fixed_dictionaries(needed, optional=kinds).map(lambda given: hint(**given))
    if issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if issubclass(hint, tuple):
        return st.tuples(*map(values, get_type_hints(hint).values())).map(lambda given: hint(*given))
    return {
        str: st.text(max_size=20).map(clean),
        int: st.integers(-(2**63) + 1, 2**63 - 1),
        float: st.floats(-codec.MOST, codec.MOST),
        bool: st.booleans(),
    }[hint]


@pytest.mark.parametrize("kind", [Gpu, Process, Host, Missing, Xid, Finding, Frame])
def test_any_value_comes_back_equal(kind: type[Any]) -> None:
    @settings(max_examples=25, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(values(kind))
    def comes_back(value: Any) -> None:
        assert codec.decode(kind, codec.loads(codec.dumps(codec.encode(value)))) == value

    comes_back()


@settings(max_examples=200, database=None, derandomize=True)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*MINIMAL, "gpus", "processes", "uuid", "pid", "disks"]), inner, max_size=5
            )
        ),
        max_leaves=20,
    )
)
def test_anything_else_is_a_frame_or_a_value_error(data: Any) -> None:
    try:
        found: Frame | str = codec.decode(Frame, data)
    except ValueError as refused:
        found = str(refused)
    assert isinstance(found, Frame) or "\n" not in found
