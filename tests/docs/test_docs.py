"""The manual says everything that is declared, and nothing that is not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gputop import __version__, config, docs, model, thresholds
from gputop.cli import parser
from gputop.columns import COLUMNS
from gputop.config import SETTINGS
from gputop.diagnose.rules import RULES
from gputop.docs.keys import key_summary
from gputop.docs.markdown import table
from gputop.docs.rules import rule_list, threshold_pages
from gputop.glossary import TERMS, named_in
from gputop.model import metrics
from gputop.ui.commands.remap import remap
from gputop.ui.commands.table import COMMANDS
from gputop.ui.gpus.fields import CELL, ROW, TINY
from tests.faults import MUST, rows_of

TESTS = Path(__file__).parents[1]
OWNERS = [owner for name in model.__all__ if hasattr(owner := getattr(model, name), "__dataclass_fields__")]


def rows(page: str) -> list[list[str]]:
    """The cells of every table of a page, without heads and rulers."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rulers = [number for number, row in enumerate(cells) if not "".join(row).strip("- ")]
    return [row for number, row in enumerate(cells) if number not in rulers and number + 1 not in rulers]


def items(page: str) -> list[tuple[str, str]]:
    """The names and texts of every list of a page, unwrapped."""
    joined = re.sub(r"\n  (?=\S)", " ", page)
    return re.findall(r"^\* ([^:\n]+): (.*)$", joined, re.MULTILINE)


@pytest.mark.parametrize("topic", docs.TOPICS)
def test_a_page_has_a_title_and_nothing_left_to_fill_in(topic: str) -> None:
    page = docs.read(topic)
    assert re.match(r"# \S", page)
    assert page.endswith("\n")
    assert "{{" not in page
    assert "<!--" not in page
    assert not re.search(r"\b(TODO|TBD|FIXME|lorem)\b", page, re.IGNORECASE)


def test_topics_are_the_pages_that_are_shipped() -> None:
    pages = {path.stem for path in Path(docs.__file__).parent.glob("*.md")}
    assert {topic for topic, _ in docs.topics()} == set(docs.TOPICS) == pages
    assert all(title and title.isprintable() for _, title in docs.topics())
    with pytest.raises(KeyError):
        docs.read("../../etc/passwd")


def test_every_metric_is_in_the_manual_once_for_each_owner() -> None:
    tiers = {"core": "", "extended": "; extended"}
    declared = sorted(
        (f"`{metric.name}`", f"{metric.help}{tiers[metric.tier]}") for owner in OWNERS for metric in metrics(owner)
    )
    assert len(declared) > 100
    _, _, tables = docs.read("metrics").partition("\n## gpus\n")
    of_each, _, _ = tables.partition("\n## Which GPU has which metric")
    assert sorted((name, help) for name, _, help in rows(of_each)) == declared


def test_every_setting_column_and_key_is_in_the_manual() -> None:
    settings = [
        (name.split("`")[1], text.partition(". It may be ")[0]) for name, text in items(docs.read("configuration"))
    ]
    assert settings == [(setting.key, setting.help) for setting in SETTINGS]
    columns = [(f"{column.title} (`{column.id}`)", column.definition) for column in COLUMNS]
    assert items(docs.read("columns")) == columns
    assert sorted((row[1], row[2]) for row in rows(docs.read("keys"))) == sorted((key.id, key.help) for key in COMMANDS)


def test_the_glossary_defines_every_column_field_and_state_once() -> None:
    page = docs.read("glossary")
    named = [name for name, _ in items(page)]
    shown = {field.title.strip() for field in (*ROW, *CELL, *TINY)} - {""}
    assert shown <= {term.name for term in TERMS["gpu"]}
    assert {term.name for terms in TERMS.values() for term in terms} <= set(named)
    assert {rule.state for rule in RULES.values() if rule.state} <= set(named)
    assert {f"{column.title} (`{column.id}`)" for column in COLUMNS} <= set(named)
    for group, terms in TERMS.items():
        names = [term.name for term in terms]
        assert len(names) == len(set(names)), group
        assert not any(term.meaning.endswith(".") for term in terms), group
    assert all(term.source for term in (*TERMS["gpu"], *TERMS["host"]))


def test_a_text_names_its_terms_and_a_longer_name_hides_one_inside_it() -> None:
    def terms(text: str) -> list[str]:
        return [term.name for term in named_in([text], "cause", "cpu", "memory", "gpu")]

    assert terms("hardware thermal slowdown, SM clock 1200 MHz") == ["hardware thermal slowdown", "SM MHz"]
    assert terms("Dataloader-bound, run queue wait 40 %") == ["dataloader-bound", "run queue wait"]
    assert terms("the last state of a NUMAX box") == []


def test_every_rule_is_in_the_manual_and_its_numbers_in_the_list_of_thresholds() -> None:
    page = docs.read("diagnosis")
    parts = [part.partition("\n") for part in f"\n{threshold_pages()}".split("\n## ")]
    told = {title: {name for name, *_ in rows(text)} for title, _, text in parts}
    for table_, numbers in thresholds.shipped().items():
        assert {f"`{name}`" for name in numbers} <= told[table_]
    assert set(RULES) <= set(told)
    assert set(RULES) <= {part.partition("\n")[0] for part in page.split("\n## ")}
    assert all(rule.question in page for rule in RULES.values())


def test_every_group_of_rules_is_listed_once() -> None:
    groups = [line for line in rule_list().splitlines() if line.startswith("**")]
    assert groups == list(dict.fromkeys(groups))
    assert len(groups) == len({rule.group for rule in RULES.values()})


def test_every_number_of_a_rule_has_a_source_and_is_used() -> None:
    package = Path(thresholds.__file__).parent
    code = {path: path.read_text() for part in ("diagnose", "paste") for path in (package / part).rglob("*.py")}
    ways = {"engine": "lost_", "pcie-degraded": "replays_gen"}  # names put together from parts
    for name, numbers in thresholds.written().items():
        module = {"classes": "workload_class"}.get(name, name)
        named = re.compile(rf"[\"'.]{name}[\"'.]")
        mine = [text for path, text in code.items() if path.stem == module or named.search(text)]
        for number in numbers:
            limit = number.name.removesuffix("_exit")
            if limit in ("on_s", "window_s"):
                continue
            assert limit != number.name or re.search(r"\[(S\d|I|M|hdr|DCGM|src)\b", number.help), f"{name}.{limit}"
            if not limit.startswith(ways.get(name, "\0")) and limit != "start_s":
                assert any(re.search(rf"[\"'.}}]{limit}[\"']", text) for text in mine), f"{name}.{limit} is not used"


def test_no_number_that_judges_a_pasted_text_stands_in_code() -> None:
    """Sizes of what is read, and of what is shown, are no judgement."""
    sizes = {"MOST", "LONGEST", "ROWS", "KEPT", "QUOTED", "BEFORE"}
    for path in (Path(thresholds.__file__).parent / "paste").glob("*.py"):
        code = path.read_text()
        numbers = re.findall(r"^_?([A-Z][A-Z_]*) = -?[\d.]+(?=$|\s+#)", code, re.MULTILINE)
        assert [name for name in numbers if sizes.isdisjoint(name.split("_"))] == [], path.name
        assert re.findall(r"(?<!<)[<>]=? 0?\.\d+", code) == [], path.name


def test_the_example_of_a_settings_file_is_one() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", docs.read("configuration"), re.DOTALL)
    chosen, warnings = config.load("/x", {}, {}, lambda path: example.encode(), remap)
    assert warnings == ()
    assert (chosen.interval_s, chosen.sort, chosen.gpm) == (2, "vram", "off")
    assert chosen.keys == (("freeze", ("X",)), ("torch", ("B",)), ("keys", ("f12", "question_mark")))


def test_every_fault_in_the_manual_has_a_test_and_every_change_its_version() -> None:
    names = [name for path in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())]
    tested = {row for name in names for row in rows_of(name)}
    described = [row for row, _ in items(docs.read("faults"))]
    assert len(described) > 10
    assert set(described) | set(MUST) <= tested
    assert len(described) == len(set(described))
    assert f"## {__version__}" in docs.read("changelog")


def test_a_table_is_markdown_and_aligned() -> None:
    assert table(("a", "b"), [("long", "x|y"), ("s", "")]).splitlines() == [
        "| a    | b |",
        "| ---- | ---- |",
        "| long | x\\|y |",
        "| s    |  |",
    ]


def test_reading_the_manual_loads_no_screen() -> None:
    program = (
        "import sys; from gputop import docs; [docs.read(t) for t in docs.TOPICS]; "
        "print(sorted({'textual', 'rich', 'psutil', 'pynvml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_readme_shows_the_keys_as_they_are(request: pytest.FixtureRequest) -> None:
    readme = TESTS.parent / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition("<!-- keys -->\n")
    _, _, after = rest.partition("<!-- /keys -->\n")
    wanted = f"{before}<!-- keys -->\n{key_summary()}\n<!-- /keys -->\n{after}"
    if request.config.getoption("--golden"):
        readme.write_text(wanted, encoding="utf-8")
    assert readme.read_text(encoding="utf-8") == wanted, "write it with --golden"


def test_the_readme_names_all_that_opens_the_network() -> None:
    """The man page says `unless told to`."""
    readme = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    (promise,) = re.findall(r"(?s)\n5\. (No network.*?)\. Nothing is written", readme)
    for name in ("`--host`", "`fleet`", "`export prometheus`", "alerts", "collectives"):
        assert name in promise


def test_every_command_of_the_readme_is_one() -> None:
    readme = (TESTS.parent / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^(gputop\b[^#|\n]*)", readme) + re.findall(r"`(gputop [^`]+)`", readme)
    assert len(found) > 8
    for line in found:
        parser().parse_args(line.split()[1:])


def test_the_list_of_rules_says_that_its_number_is_a_level() -> None:
    assert "`thermal` (level 6)" in rule_list()


def test_what_the_guide_names_beside_a_file_stands_in_that_file() -> None:
    """`Column` ... in `gputop/columns.py`: a class that was renamed leads its reader nowhere."""
    guide = (TESTS.parent / "gputop/docs/contributing.md").read_text(encoding="utf-8")
    near = re.findall(
        r"`([A-Z]\w+)`(?: of| in|,| in the module of its feature in) `((?:gputop|tests)/[\w/]+(?:\.py)?)/?`", guide
    )
    assert len(near) > 4
    for name, place in near:
        path = TESTS.parent / place
        texts = [path.read_text()] if path.is_file() else [each.read_text() for each in path.rglob("*.py")]
        assert any(re.search(rf"(?m)^(?:class )?{name}\b", text) for text in texts), f"{name} is not in {place}"
