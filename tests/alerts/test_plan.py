"""The tables of alerts and receivers in the settings file: what is taken, and one line for what is not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop import config, docs, toml
from gputop.alerts.command import Command
from gputop.alerts.condition import FindingCondition, MetricCondition
from gputop.alerts.mail import Mail
from gputop.alerts.message import as_json
from gputop.alerts.metric_values import metric_names
from gputop.alerts.plan import AlertPlan, parse
from gputop.alerts.terminal import TerminalReceiver
from gputop.alerts.webhook import Webhook
from gputop.ui.commands.remap import remap
from tests.alert_updates import message

BELL = '[receivers.here]\ntype = "terminal"\n'
HOT = '[alerts.hot]\nmetric = "gpu.temperature_celsius"\nabove = 88\nsend = "here"\n'


def load(text: str) -> tuple[AlertPlan, str]:
    """The plan of a settings file, and the warning."""
    settings, warnings = config.load("/x", {}, {}, lambda _: text.encode(), remap, arrange=parse)
    return settings.alerts or AlertPlan(), " ".join(warnings)


@pytest.mark.parametrize("page", ["alerts", "configuration"])
def test_every_example_of_the_manual_is_used_whole(page: str) -> None:
    examples = re.findall(r"```toml\n(.*?)```", docs.read(page), re.DOTALL)
    assert examples
    for example in examples:
        tables = toml.parse(example.encode())
        missing = {} if "receivers" in tables else tables.get("alerts", {})
        sent = {name for table in missing.values() for name in [table["send"]]}
        more = "".join(f'\n[receivers.{name}]\ntype = "terminal"\n' for name in sent)
        found, warning = load(example + more)
        assert warning == "", example
        assert [rule.name for rule in found.rules] == list(tables.get("alerts", {}))
        assert set(tables.get("receivers", {})) <= set(found.receivers)


def test_the_manual_names_every_key_of_the_json_object() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", docs.read("alerts"), re.DOTALL)
    shown = json.loads(example)
    made = as_json(message())
    assert list(shown) == list(made)
    assert {key: type(value) for key, value in shown.items()} == {key: type(value) for key, value in made.items()}
    assert list(shown["subject"]) == list(made["subject"])
    assert {key: shown[key] for key in ("id", "title", "headline", "evidence", "value", "limit", "unit")} == {
        key: made[key] for key in ("id", "title", "headline", "evidence", "value", "limit", "unit")
    }


def test_all_kinds_of_receivers_and_their_defaults() -> None:
    found, warning = load("""
[receivers.team]
type = "slack"
url = "https://hooks.slack.com/services/x"
timeout = "3s"
[receivers.page]
type = "command"
command = ["/bin/page", "{title}"]
[receivers.ops]
type = "mail"
to = "ops@example.com"
[receivers.here]
type = "terminal"
how = "osc777"
""")
    assert warning == ""
    assert found.receivers == {
        "team": Webhook(name="team", shape="slack", url="https://hooks.slack.com/services/x", timeout_s=3.0),
        "page": Command(name="page", argv=("/bin/page", "{title}"), timeout_s=10.0),
        "ops": Mail(name="ops", to=("ops@example.com",), timeout_s=10.0),
        "here": TerminalReceiver(name="here", how="osc777"),
    }


def test_an_alert_and_its_defaults() -> None:
    found, warning = load(BELL + HOT + '[alerts.any]\nsend = ["here", "here"]\n')
    assert warning == ""
    hot, any_finding = found.rules
    metric = metric_names()["gpu.temperature_celsius"]
    assert hot.condition == MetricCondition(metric=metric, test="above", limit=88)
    assert (hot.for_s, hot.cooldown_s, hot.recovery, hot.send) == (60.0, 900.0, True, ("here",))
    assert any_finding.condition == FindingCondition()
    assert (any_finding.for_s, any_finding.send) == (0.0, ("here",))
    assert found.judges
    assert not found.extended
    assert not load(BELL + HOT)[0].judges


@pytest.mark.parametrize(
    ("limit", "metric", "value"),
    [
        ("90", "gpu.busy_percent", 90),
        ('"90 %"', "gpu.busy_percent", 90.0),
        ('"20G"', "host.memory_available_bytes", 20 * 2**30),
        ('"1.5 TiB"', "host.memory_available_bytes", 1.5 * 2**40),
        ('"512B"', "process.mean_read_bytes", 512),
        ("0.05", "disk.await_s", 0.05),
    ],
)
def test_limits_with_and_without_units(limit: str, metric: str, value: float) -> None:
    found, warning = load(f'{BELL}[alerts.x]\nmetric = "{metric}"\nabove = {limit}\nsend = "here"\n')
    assert warning == ""
    assert found.rules[0].condition.limit == value  # type: ignore[attr-defined]


SECRET = "https://hooks.slack.com/services/pathsecret"
X = '[alerts.x]\nsend = "here"\n'
BUSY = f'{X}metric = "gpu.busy_percent"\n'
UNUSED = "alerts.x is not used: "
Y = "[receivers.y]\ntype = "
WEB = f'{Y}"webhook"\nurl = "{SECRET}"\n'
KINDS = "slack, teams, ntfy, webhook, command, mail, terminal"
BAD = {
    "alerts = 3": "alerts must be tables: [alerts.NAME]",
    'receivers = "x"': "receivers must be tables: [receivers.NAME]",
    "[alerts]\nx = 1": "alerts.x must be a table: [alerts.x]",
    '[alerts."a b"]\nsend = "here"': "alerts.'a b': a name is letters, digits, - and _",
    "[alerts.x]": f"{UNUSED}send must name at least one receiver",
    f'{Y}"slak"\n[alerts.x]\nsend = "y"': f"{UNUSED}its receiver y is not used",
    '[alerts.x]\nsend = "hear"': f"{UNUSED}unknown receiver 'hear' (did you mean here?)",
    "[alerts.x]\nsend = 3": f"{UNUSED}send must be a list of names",
    f'{X}cooldwn = "5m"': "unknown setting 'alerts.x.cooldwn' (did you mean alerts.x.cooldown?)",
    f"{X}above = 5": "unknown setting 'alerts.x.above'",
    f'{X}rules = ["thermel"]': f"{UNUSED}unknown rule 'thermel' (did you mean thermal?)",
    f'{X}severity = "info"': f"{UNUSED}severity must be warn or crit",
    f'{X}for = "soon"': f"{UNUSED}for must be a duration up to 7d, such as 60s or 5m",
    f"{X}cooldown = -1": f"{UNUSED}cooldown must be a duration",
    f'{X}recovery = "no"': f"{UNUSED}recovery must be true or false",
    f'{X}note = "a\\nb"': f"{UNUSED}note must be one line of text",
    f'{X}metric = "temperature_celsius"\nabove = 5': "(did you mean gpu.temperature_celsius?)",
    f'{X}metric = "gpu.temp"\nabove = 5': f"{UNUSED}unknown metric 'gpu.temp'",
    f"{X}metric = 5\nabove = 5": f"{UNUSED}metric must be a metric such as gpu.temperature_celsius",
    BUSY: f"{UNUSED}a metric needs one of above, below and is",
    f"{BUSY}above = 1\nbelow = 2": f"{UNUSED}a metric needs one of above, below and is",
    f"{BUSY}above = nan": f"{UNUSED}above must be a number in %, such as 90",
    f"{BUSY}above = true": f"{UNUSED}above must be a number in %, such as 90",
    f'{X}metric = "gpu.vram_used_bytes"\nabove = "90%"': f'{UNUSED}above must be a number in B, such as 20 or "20G"',
    f'{X}metric = "gpu.remap_pending"\nabove = 1': f"{UNUSED}gpu.remap_pending is true or false: use is",
    f'{X}metric = "host.cpu_governor"\nis = 1': f"{UNUSED}host.cpu_governor is a word: use is",
    f'{BUSY}of = "host.cpu_percent"\nabove = 9': f"{UNUSED}of must be a metric of gpu in the same unit",
    f'{Y}"slak"': f"receivers.y is not used: type must be one of {KINDS} (did you mean slack?)",
    f'{Y}"terminal"\nhow = "loud"': "how must be bell, osc9 or osc777",
    f'{Y}"slack"': "url must be an address that begins with https:// or http://",
    f'{Y}"slack"\nurl = "file:///etc/pathsecret"': "url must be an address",
    f'{Y}"slack"\nurl = "https://a b/pathsecret"': "url must be an address",
    f'{Y}"slack"\nurl = "https://me:pathsecret@x/y"': "url must not contain a user or password",
    f'{Y}"slack"\nurl = "{SECRET}"\ntoken = "t"': "unknown setting 'receivers.y.token'",
    f"{WEB}timeout = 0": "timeout must be a duration up to 2m",
    f'{WEB}token = "a b"': "token must be one word",
    f'{WEB}headers = {{ "a:" = "b" }}': "headers: 'a:' cannot be set",
    f'{WEB}headers = {{ Host = "b" }}': "headers: 'Host' cannot be set",
    f'{WEB}headers = {{ a = "b\\r\\nc: pathsecret" }}': "headers.a must be one line of ASCII text",
    f'{Y}"ntfy"\nurl = "https://ntfy.sh/"': "url must end in the topic: https://ntfy.sh/TOPIC",
    f'{Y}"command"\ncommand = "rm -rf /"': "command must be a list of program and arguments",
    f'{Y}"command"\ncommand = ["page"]': "the program of command must be an absolute path",
    f'{Y}"command"\ncommand = ["/bin/page", "{{titel}}"]': "command: {titel} is none of {status}",
    f'{Y}"mail"': "to and from must be mail addresses, such as ops@example.com",
    f'{Y}"mail"\nto = "a@b\\nBcc: c@d"': "to must be a list of names",
    f'{Y}"mail"\nto = "|/bin/sh"': "to and from must be mail addresses",
    f'{Y}"mail"\nto = "root"\nprogram = "msmtp"': "program must be an absolute path",
    '[[alert]]\nname = "x"': "alert must be off, bell, osc9 or osc777 (a table is [alerts.NAME])",
    "[receiver.x]": "unknown setting 'receiver' (did you mean receivers?)",
}


@pytest.mark.parametrize(("text", "why"), BAD.items())
def test_f12_a_bad_entry_is_one_line_and_the_rest_works(text: str, why: str) -> None:
    whole = {"alerts = 3": BELL, 'receivers = "x"': "", "[alerts]\nx = 1": BELL}.get(text)  # a group is given but once
    found, warning = load(f"{text}\n{BELL}{HOT}" if whole is None else f"{text}\n{whole}")
    assert why in warning
    assert "\n" not in warning
    assert "pathsecret" not in warning
    assert whole is not None or "hot" in [rule.name for rule in found.rules]


def test_an_alert_keeps_the_receivers_that_can_be_used() -> None:
    found, warning = load(BELL + '[receivers.x]\ntype = "slack"\n[alerts.a]\nsend = ["here", "x", "nobody"]\n')
    assert [rule.send for rule in found.rules] == [("here",)]
    assert "receivers.x is not used" in warning
    assert "alerts.a.send: unknown receiver 'nobody'" in warning


def test_the_old_setting_stays_a_word_beside_the_tables() -> None:
    settings, warnings = config.load(
        "/x", {}, {}, lambda _: f'alert = "bell"\n{BELL}{HOT}'.encode(), remap, arrange=parse
    )
    assert (settings.alert, warnings) == ("bell", ())
    assert isinstance(settings.alerts, AlertPlan)


def test_a_setting_changed_on_the_screen_leaves_the_tables_as_they_are() -> None:
    written: list[bytes] = []
    before = f"interval = 2\n\n# whom to call\n{BELL}{HOT}"
    config.store("/x", config.BY_KEY["theme"], "light", lambda _: before.encode(), lambda _, data: written.append(data))
    assert written == [before.replace("interval = 2\n", 'interval = 2\ntheme = "light"\n').encode()]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    ["type", "url", "token", "headers", "timeout", "command", "to", "from", "how", "metric", "of", "above", "is", "for",
     "send", "rules", "severity", "note", "cooldown", "recovery", "user", "job", "x"]
)  # fmt: skip
kinds = st.sampled_from(["slack", "ntfy", "webhook", "command", "mail", "terminal", 3])


@given(st.dictionaries(keys, anything, max_size=6), kinds)
def test_f12_no_contents_of_a_table_is_an_error(table: dict[str, Any], kind: object) -> None:
    found, problems = parse(
        {"a": {**table, "send": ["here"]}}, {"x": {**table, "type": kind}, "here": {"type": "terminal"}}
    )
    assert all("\n" not in ascii(problem) for problem in problems)
    assert set(found.receivers) <= {"x", "here"}
