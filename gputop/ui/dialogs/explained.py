"""What F1 explains: the columns, fields or terms that the cursor is on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gputop import finding_text
from gputop.columns import BY_ID
from gputop.diagnose import Finding
from gputop.diagnose.rules import RULES
from gputop.glossary import TERMS, Group, named_in

if TYPE_CHECKING:
    from gputop.ui.main.screen import MainScreen
    from gputop.ui.screen import CommandScreen

Definition = tuple[str, str]  # the term and its definition


def explained(screen: CommandScreen) -> Sequence[Definition]:
    """The terms of the pane that has the keys; none on a screen without panes."""
    if screen.PLACE != "main":
        return ()
    main: MainScreen = screen  # type: ignore[assignment]  # it is the main screen
    if main.focused is main.gpus:
        return [*_states(main), *_terms("gpu", "gpu state")]
    if main.focused is main.host:
        return [*_terms("host", "cpu")]
    if main.advised:
        chosen = main.advice.finding_list.chosen
        return [*_of_finding(chosen)] if chosen else [*_terms("verdict")]
    sort, seen = main.table.listing.view.sort, main.columns_in_sight()
    columns = sorted((BY_ID[id] for id in seen), key=lambda column: column.id != sort)
    return [*((column.title, column.definition) for column in columns), *_terms("job")]


def _terms(*groups: Group) -> Iterator[Definition]:
    yield from ((term.name, term.text) for group in groups for term in TERMS[group])


def _states(main: MainScreen) -> Iterator[Definition]:
    """The states that findings give the GPUs now."""
    words = {state.word for state in main.advice.states.gpus.values()}
    yield from ((rule.state, rule.question) for rule in RULES.values() if rule.state and rule.state in words)


def _of_finding(finding: Finding) -> Iterator[Definition]:
    """Its rule, and the terms in its text."""
    yield finding.rule, finding_text.question(finding.rule)
    texts = [finding.headline, *(item.text for item in finding.evidence), *(step.text for step in finding.steps)]
    terms = named_in(texts, "cause", "cpu", "memory", "gpu", "job")
    yield from ((term.name, term.text) for term in terms)
    yield from _terms("verdict")
