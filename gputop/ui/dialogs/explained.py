"""What F1 explains: the columns, fields or terms that the cursor is on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gputop import finding_text
from gputop.columns import BY_ID
from gputop.diagnose import Finding
from gputop.diagnose.rules import RULES
from gputop.glossary import TERMS, Group, in_titles, named_in
from gputop.hosts.columns import COLUMNS as HOST_COLUMNS
from gputop.ui.details import relatives
from gputop.ui.result import report
from gputop.ui.result.report import ReportTab
from gputop.ui.widgets.tabs import ListTab

if TYPE_CHECKING:
    from gputop.ui.details.screen import ProcessScreen
    from gputop.ui.hosts.screen import HostsScreen
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.result.screen import ResultScreen
    from gputop.ui.screen import CommandScreen

Definition = tuple[str, str]  # the term and its definition
_STATES: tuple[Group, ...] = ("gpu state", "cause", "cpu", "verdict")  # where a state may be defined


def explained(screen: CommandScreen) -> Sequence[Definition]:
    """The terms of the open tab or of the pane that has the keys; none while a result is read."""
    if screen.PLACE == "details":
        return _of_details(screen)  # type: ignore[arg-type]  # it is the screen of a process
    if screen.PLACE == "result":
        return [*_of_result(screen)]  # type: ignore[arg-type]  # it is the screen of a result
    if screen.PLACE == "hosts":
        return [*_of_hosts(screen)]  # type: ignore[arg-type]  # it is an overview of hosts
    main: MainScreen = screen  # type: ignore[assignment]  # it is the main screen
    if main.focused is main.gpus:
        return [*_states(main), *_terms("gpu", "gpu state")]
    if main.focused is main.host:
        return [*_terms("host", "cpu")]
    if main.advised:
        if main.advice.alone and main.advice.page.name == "experiments":
            return [*_terms("experiments")]
        chosen = main.advice.finding_list.chosen
        return [*of_finding(chosen)] if chosen else [*_terms("verdict")]
    sort, seen = main.table.listing.view.sort, main.columns_in_sight()
    columns = sorted((BY_ID[id] for id in seen), key=lambda column: column.id != sort)
    return [*((column.title, column.definition) for column in columns), *_terms("job")]


def _of_hosts(screen: HostsScreen) -> Iterator[Definition]:
    """The columns of its hosts: those of recorded metrics only where there are some."""
    recorded = any(row.trend for row in screen.list.every)
    for column in HOST_COLUMNS:
        if recorded or not column.recorded:
            yield column.title, f"{column.help[0].upper()}{column.help[1:]}."


def _terms(*groups: Group) -> Iterator[Definition]:
    yield from ((term.name, term.text) for group in groups for term in TERMS[group])


def _of_details(screen: ProcessScreen) -> Sequence[Definition]:
    """The columns of the open tab, and of the workers below it; what has none is about its metrics."""
    width, tab = screen.app.size.width, screen.tab
    tab.view = screen.view
    titles = [strip.text for strip in tab.body(width, screen.look).head]
    if tab.loaders:
        titles += [strip.text for strip in relatives.pane(tab.view, width, 3)[1:2]]
    found = [(term.name, term.text) for term in in_titles("\n".join(titles), "details")]
    if not found and tab.id not in ("gpu", "memory"):  # nothing is read yet
        return [*_terms("details")]
    other: dict[str, tuple[Group, ...]] = {"gpu": ("gpu", "gpu state"), "memory": ("memory",)}
    return [*(_terms(*other[tab.id]) if tab.id in other else ()), *found]


def _of_result(screen: ResultScreen) -> Iterator[Definition]:
    """The columns and terms of the open tab, then the terms of a report, or of the verdict above the tab."""
    tab, width, look = screen.tab, screen.app.size.width, screen.look
    if tab is None or screen.content is None:  # it is being read
        return
    known = {term.name: term for term in TERMS["results"]}
    titles = [strip.text for strip in tab.body(width, look).head[-1:]] if isinstance(tab, ListTab) else []
    if isinstance(tab, ReportTab):
        texts = [run.text for runs in report.lines(tab.report, width, look) for run in runs]
    else:
        says = screen.content.says
        texts = [*says.words, *(part for each in says.sayings for part in (each.text, each.facts, *each.steps))]
    terms = [*in_titles("\n".join(titles), "results"), *(known[name] for name in tab.terms)]
    terms += named_in(texts, "cause", "cpu", "memory", "gpu", "job")
    yield from ((term.name, term.text) for term in dict.fromkeys(terms))


def _states(main: MainScreen) -> Iterator[Definition]:
    """The states that findings give the GPUs now."""
    for word in dict.fromkeys(state.word for state in main.advice.states.gpus.values()):
        yield from _state(word)


def _state(word: str | None, by: str = "") -> Iterator[Definition]:
    """A state: the glossary's definition, else the question of a rule that has it, of the rule `by` first."""
    known = (term for group in _STATES for term in TERMS[group] if term.name == word)
    if defined := next(known, None):
        yield defined.name, defined.text
        return
    rules = sorted(
        (rule for rule in RULES.values() if rule.state and rule.state == word), key=lambda rule: rule.id != by
    )
    yield from ((rule.state, rule.question) for rule in rules[:1])


def of_finding(finding: Finding) -> Iterator[Definition]:
    """Its rule, and the terms in its text."""
    yield from _state(finding.state, finding.rule)
    yield finding.rule, finding_text.question(finding.rule)
    texts = [finding.headline, *(item.text for item in finding.evidence), *(step.text for step in finding.steps)]
    terms = named_in(texts, "cause", "cpu", "memory", "gpu", "job")
    yield from ((term.name, term.text) for term in terms)
    yield from _terms("verdict")
