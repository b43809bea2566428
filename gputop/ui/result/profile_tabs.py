"""A profile of stacks as tabs: flame graph, functions, threads, phases, files, and its page."""

from __future__ import annotations

from dataclasses import replace

from gputop.profile import report
from gputop.profile.stacks import Profile
from gputop.profile.store import StoredProfile
from gputop.profile.training_parts import PARTS, main, shares, worker
from gputop.report import Page
from gputop.safe.files import Refused
from gputop.ui.result.content import Content, kept_about
from gputop.ui.result.files import Files
from gputop.ui.result.flame import FlameChoice, Flames, of_profile
from gputop.ui.result.functions import Functions
from gputop.ui.result.phases import PhasesTab, parts
from gputop.ui.result.report import ReportTab
from gputop.ui.result.threads import ThreadsTab
from gputop.ui.result.verdicts import Saying, Says
from gputop.ui.widgets.tabs import Tab

_LEAST = 0.10  # of the samples: what is rarer confirms nothing


def of_profile_kept(profile: Profile, page: Page, kept: StoredProfile) -> Content:
    """A profile of stacks."""
    seconds, choice = kept.meta.get("seconds"), FlameChoice(of_profile(profile))
    if not choice.choices:
        raise Refused("no samples: profile for longer")
    length = f" {seconds:g} s" if isinstance(seconds, (int, float)) else ""
    of = "" if main(profile) is profile else " of all threads"
    about = kept_about(kept, f"py-spy{length}, {profile.total:.0f} samples{of}")
    flames = Flames(choice)
    tabs: list[Tab] = [flames, Functions(choice), ThreadsTab(choice), PhasesTab(parts(profile))]
    files = Files(about.files, about.older, kept)

    def compare(before: StoredProfile) -> Page:
        return report.compared(before.open(), profile, (before.title, kept.title))

    return Content(
        about=replace(about, notes=tuple(profile.notes)),
        says=says_of(profile, page),
        tabs=(*tabs, files, ReportTab(page)),
        page=page,
        compare=compare,
    )


def says_of(profile: Profile, page: Page) -> Says:
    """What its page says; the share of waiting is the most that could be won."""
    loads = any(worker(stack) is not None for stack in main(profile).stacks)
    found = {} if loads else {part.name: share for part, share in shares(main(profile)).items()}
    name = max(("waits-for-data", "loads-in-main"), key=lambda name: found.get(name, 0.0))
    data = found.get(name, 0.0)
    sayings = tuple(
        Saying(
            severity=point.severity,
            text=point.text,
            name=name if place == 0 and data >= _LEAST else "",
            facts=" · ".join(point.facts),
            steps=tuple(step if isinstance(step, str) else step.command for step in point.steps),
            lost_share=data if place == 0 and data >= _LEAST else None,
        )
        for place, point in enumerate(page.points)
    )
    return Says(
        sayings=sayings,
        words=page.words,
        names=frozenset(name for name, share in found.items() if share >= _LEAST),
        known=frozenset() if loads else frozenset(part.name for part in PARTS),  # it says nothing of what waits for it
        action="profile",
    )
