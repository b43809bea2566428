"""The table of DCGM exporter's names: what its release notes count, and names of ours that there are."""

from __future__ import annotations

import re

from gputop import docs
from gputop.prometheus.dcgm import DCGM_LABELS, DCGM_METRICS
from gputop.prometheus.families import families
from gputop.prometheus.rules import RECORDING_RULES
from tests.prometheus.test_real_prometheus import queries

DEFAULTS = [one for one in DCGM_METRICS if not one.optional]


def test_as_many_defaults_were_renamed_as_the_release_notes_of_4_9_say() -> None:
    """23 fields, one of them the label with the version of the driver; eleven changed their unit as well."""
    renamed = [one for one in DEFAULTS if one.before != one.since]
    assert len(renamed) + 1 == 23
    assert len([one for one in renamed if one.note.endswith("before 4.9")]) == 11
    assert len({one.before for one in DCGM_METRICS}) == len({one.since for one in DCGM_METRICS}) == len(DCGM_METRICS)


def test_a_name_since_4_9_ends_with_its_base_unit() -> None:
    for one in DEFAULTS:
        if one.note.endswith("before 4.9"):
            assert re.search(r"_(HERTZ|RATIO|BYTES|JOULES_TOTAL|BYTES_PER_SECOND)$", one.since), one.since


def test_ours_are_series_that_there_are() -> None:
    known = {family.name for family in families()}
    for one in DCGM_METRICS:
        assert {*re.findall(r"gputop_\w+", one.ours)} <= known
    for said in DCGM_LABELS.values():
        assert {*re.findall(r"gputop_\w+", said)} <= known


def test_every_default_has_a_row_and_the_page_shows_it() -> None:
    page = docs.read("prometheus")
    assert all(one.before in page for one in DCGM_METRICS)
    assert [one.before for one in DEFAULTS if not one.ours] == ["DEV_VGPU_LICENSE_STATUS"]


def test_series_that_the_page_names_are_exported() -> None:
    known = {family.name for family in families()}
    recorded = {rule.name.split(":")[1] for rule in RECORDING_RULES}
    named = {*re.findall(r"\bgputop_[a-z0-9_]+", docs.read("prometheus"))}
    assert named - known - recorded == set()
    assert len(queries()) > 50
