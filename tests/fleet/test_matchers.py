"""Label matchers: what the command line may say, and how every selector of an expression gets them."""

from __future__ import annotations

import re

import pytest

from gputop.fleet.matchers import Matcher, of_labels, parse, quoted, restricted
from gputop.fleet.queries import RECORDED, FleetQueries, usable
from gputop.prometheus.rules import RECORDING_RULES

CLUSTER = Matcher("cluster", "=", "a")


@pytest.mark.parametrize(
    ("text", "matchers"),
    [
        ('cluster="a"', (CLUSTER,)),
        ("cluster='a'", (CLUSTER,)),
        ('{cluster="a"}', (CLUSTER,)),
        (' cluster = "a" , rack=~"r1|r2",', (CLUSTER, Matcher("rack", "=~", "r1|r2"))),
        ('rack!="r{1}", x!~"a,b"', (Matcher("rack", "!=", "r{1}"), Matcher("x", "!~", "a,b"))),
        (r'a="q\"q\\n"', (Matcher("a", "=", 'q"q\\n'),)),
        ('a=""', (Matcher("a", "=", ""),)),
    ],
)
def test_a_list_of_matchers_is_read_as_prometheus_reads_it(text: str, matchers: tuple[Matcher, ...]) -> None:
    assert parse(text) == matchers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no label matcher"),
        ("cluster=a", "not a label matcher"),
        ('cluster=="a"', "not a label matcher"),
        ('cluster="a" or up', "separate matchers with commas"),
        ('cluster="a"} or up{x="b"', "separate matchers with commas"),
        ('9x="a"', "not a label matcher"),
        ('x:y="a"', "not a label matcher"),
        ('__name__="up"', "__name__ cannot be matched"),
        (r'a="\d"', "not an escape"),
        ('a="line\nbreak"', "not a label matcher"),
        ('a="\x1b]0;owned\x07', "not a label matcher"),
        ("a" * 3000, "more than 2000"),
    ],
)
def test_everything_else_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as refused:
        parse(text)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", ['a"b', "a\\", 'x"} or up{a="', "line\nbreak", "{}", "ü"])
def test_a_value_stays_a_value(value: str) -> None:
    assert parse(f"a={quoted(value)}") == (Matcher("a", "=", value),)
    (selected,) = parse(str(of_labels({"a": value})[0]))
    assert selected.value == value


def test_every_selector_of_every_expression_gets_them() -> None:
    for rule in RECORDING_RULES:
        expr = restricted(rule.expr, (CLUSTER,))
        assert len(re.findall(r"\bgputop_\w+", rule.expr)) == expr.count('cluster="a"'), rule.name
        assert restricted(rule.name, (CLUSTER,)) == f'{rule.name}{{cluster="a"}}'
    asked = FleetQueries((CLUSTER,), RECORDED.values())
    for expr in (asked.values(), asked.findings(), asked.seen(), asked.busy(), asked.history(), asked.recorded_count()):
        selectors = re.findall(r"(?:\binstance:)?\bgputop_(?!value)\w+(?::\w+)?\{[^}]*\}|\{[^}]*\}", expr)
        assert selectors
        assert all('cluster="a"' in one for one in selectors), expr


def test_recorded_series_are_used_where_they_have_every_host() -> None:
    every = dict.fromkeys(RECORDED.values(), 40.0)
    assert usable({"gputop_gpus": 40.0, **every}) == set(RECORDED.values())
    assert usable({"gputop_gpus": 40.0}) == frozenset()
    lost = RECORDED["lost"]
    assert usable({"gputop_gpus": 40.0, **every, lost: 39.0}) == set(RECORDED.values()) - {lost}
    assert usable({lost: 12.0}) == {lost}  # a Prometheus that keeps only what rules record
    assert "rate(" in FleetQueries().values()
    assert "rate(" not in FleetQueries((), RECORDED.values()).values()


def test_every_recorded_value_is_one_of_a_rule() -> None:
    assert set(RECORDED.values()) <= {rule.name for rule in RECORDING_RULES}
