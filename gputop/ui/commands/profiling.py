"""Keys that look inside a process: its stacks now, a profile by py-spy, a trace by torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from gputop.actions.handles import Handles, Scope, led
from gputop.model import Frame, Process, Role
from gputop.source import Rehearsed
from gputop.ui.commands.command import BOTH, Command, hint

if TYPE_CHECKING:
    from gputop.hosts.remote_action import RemoteActions
    from gputop.profile.store import StoredProfile
    from gputop.safe.ptrace_access import Barred
    from gputop.ui.job_screen import JobScreen
    from gputop.ui.profiling.background_jobs import BackgroundJobs
    from gputop.ui.profiling.dialog import Answer, ProfileDialog
    from gputop.ui.profiling.tools import Answers, Order, PastResults, Tool, ToolId
    from gputop.ui.session import Session
    from gputop.ui.targets import CommandTarget


def take_stacks(screen: JobScreen) -> None:
    """Stacks now, of a job all ranks side by side; it asks only where it cannot."""
    target, remote = screen.target_to_profile("stack"), screen.session.remote
    if target and remote:
        _run_there(screen, remote, target, "stack")
    elif target:
        stacks_of(screen, target)


def stacks_of(screen: JobScreen, target: CommandTarget) -> None:
    """The same for a target that is chosen already."""
    from gputop.actions.pyspy import STACK, Asked  # late
    from gputop.ui.profiling.tools import BY_ID

    rights, jobs = screen.session.rights, screen.jobs
    looked, leads = _rank_of(target)
    everybody = target.scope is Scope.JOB or leads
    handles = looked.handles(STACK.rights(rights))
    process, others = looked.process, looked.others
    if _rehearsed(screen.session, "stack", process):
        whole = Scope.JOB if everybody else Scope.PROCESS
        trainers = tuple(one for one in handles.processes(whole) if one.role is Role.TRAINER)
        _show_rehearsed(jobs, screen.session, "stack", handles, tuple(others.processes or trainers or (process,)), None)
    elif handles.refusal or STACK.barred(process, rights):
        ask_profile(screen, target, "stack")
    else:
        ranks = sum(each.role is Role.TRAINER for each in handles.processes(Scope.JOB))
        whole = Scope.JOB if everybody and ranks > 1 else Scope.PROCESS
        jobs.start(BY_ID["stack"], handles, Asked(Scope.TAGGED if others.processes else whole))
    handles.close()


def open_profile(screen: JobScreen, tool: ToolId) -> None:
    """Ask how to look, with one of the tools preselected."""
    target, remote = screen.target_to_profile(tool), screen.session.remote
    if target and remote:
        _run_there(screen, remote, target, tool)
    elif target:
        ask_profile(screen, target, tool)


def _run_there(screen: JobScreen, remote: RemoteActions, target: CommandTarget, tool: ToolId) -> None:
    """Run the tool on the host of the process."""
    from gputop.ui.hosts.actions import run_tool  # late

    run_tool(screen, remote, target, tool)


def ask_profile(screen: JobScreen, target: CommandTarget, tool: ToolId) -> None:
    """Ask how to look into a process as it is in a frame. From here on its row does not matter.

    What only leads ranks, as a launcher, stands for the first of them, and can be chosen in the dialog.
    """
    from gputop.actions.pyspy import STACK  # late
    from gputop.ui.profiling.dialog import ProfileDialog, ProfileQuestion
    from gputop.ui.profiling.older import OlderDialog

    session, jobs, app = screen.session, screen.jobs, screen.app
    looked, leads = _rank_of(target)
    handles = looked.handles(STACK.rights(session.rights))
    handles.leader = target.process if leads else None

    def known(id: ToolId, why: Barred | None) -> None:
        dialog.answer(id, why)

    barred = jobs.asking.ask(handles, session.rights, lambda id, why: app.call_later(known, id, why))
    recorded = _allow_rehearsed(session, barred, looked.process)
    everybody = target.scope is Scope.JOB or leads
    question = ProfileQuestion(handles, tool, barred, everybody=everybody, recorded=recorded)

    def start(tool: Tool, order: Order) -> None:
        _start(session, jobs, tool, order, handles, question.each)

    def older(chosen: StoredProfile | None) -> None:
        if chosen is not None:
            jobs.open(chosen)

    def answered(answer: Answer | None) -> None:
        if answer and question.past:
            app.push_screen(OlderDialog(screen.look, question.past), older)

    dialog = ProfileDialog(question, screen.look, _tool_keys(session), start, app.copy_to_clipboard)
    app.push_screen(dialog, answered)
    if tool == "torch":
        _hint_at_tree(screen)
    if not session.rights.why_not:  # nothing is kept there, and no folder made
        _recall(session, dialog, looked.process)


def _tool_keys(session: Session) -> dict[str, ToolId]:
    """The keys that choose a tool in the dialog, as they do on the screen below."""
    from gputop.ui.profiling.tools import BY_ID  # late

    return {name: BY_ID[one.id].id for one in session.commands if one.id in BY_ID for name in one.keys}


def _hint_at_tree(screen: JobScreen) -> None:
    """`t` sorts as a tree in htop: say once which key does so here."""
    if "tree" not in screen.session.hinted:
        screen.session.hinted.add("tree")
        screen.session.say(hint(screen.session.names, "tree view: {}", "tree"))


def _start(
    session: Session, jobs: BackgroundJobs, tool: Tool, order: Order, handles: Handles, each: Sequence[Process]
) -> None:
    """Profile each with a tool; the handles of the dialog are those of its own process."""
    from gputop.actions.pyspy import STACK  # late

    if _rehearsed(session, tool.id, handles.process):
        _show_rehearsed(jobs, session, tool.id, handles, tuple(each), order)
        return
    for process in each:
        own = handles
        if process is not handles.process:
            own = Handles(handles.frame, process, STACK.rights(session.rights))
        jobs.start(tool, own, order)
        if own is not handles:
            own.close()


def _rehearsed(session: Session, tool: ToolId, process: Process) -> bool:
    """Whether a source that is no machine has recorded what a tool finds in a process."""
    source = session.source
    return isinstance(source, Rehearsed) and source.rehearsed(process.identity, tool) is not None


def _show_rehearsed(
    jobs: BackgroundJobs,
    session: Session,
    tool: ToolId,
    handles: Handles,
    processes: tuple[Process, ...],
    order: Order | None,
) -> None:
    """Open what is recorded."""
    from gputop.ui.profiling.recorded import result  # late

    if not isinstance(session.source, Rehearsed):
        return
    several = [(one,) for one in processes] if tool == "profile" else [processes]  # py-spy records one process
    for place, each in enumerate(several):
        about = handles.process if len(several) == 1 else each[0]
        if (found := result(session.source, tool, each, order)) is not None:
            # once the dialog has closed
            session.app.call_later(partial(jobs.add, about, found, shows=place == 0))


def _allow_rehearsed(session: Session, barred: Answers, process: Process) -> bool:
    """Nothing bars a tool whose result is recorded; whether there is one."""
    there = [tool for tool in barred if _rehearsed(session, tool, process)]
    barred.update(dict.fromkeys(there))
    return bool(there)


def _recall(session: Session, dialog: ProfileDialog, process: Process) -> None:
    """Find out in the background which profiles were taken of it before."""
    from gputop.ui.profiling.tools import past  # late

    found: list[PastResults] = []

    def work() -> str:
        found.append(past(process))
        return ""

    session.files.do(work, lambda _: dialog.recall(*found) if found else None)


def _rank_of(target: CommandTarget) -> tuple[CommandTarget, bool]:
    """The first rank instead of what only leads ranks, and whether it does; of a whole job in any case."""
    if target.others.processes:
        return target, False
    if ranks := led(target.frame, target.process):
        return target._replace(process=ranks[0]), True
    first = _first_rank(target.frame, target.process) if target.scope is Scope.JOB else None
    return target._replace(process=first or target.process), False


def _first_rank(frame: Frame, process: Process) -> Process | None:
    job = next((job for job in frame.jobs if job.key == process.job), None)
    return frame.by_identity.get(job.ranks[0]) if job and job.ranks else None


def _unavailable(screen: JobScreen) -> str:
    """Of the advice it is about the finding, whether the processes are shown or not."""
    return "" if screen.about_finding() else screen.no_processes()


COMMANDS = (
    Command("profile", ("p",), "py-spy", "profile with py-spy; asks how", "ACT",
            partial(open_profile, tool="profile"), _unavailable, keep=84, on=BOTH,
            also="profiles profiler flame graph flamegraph sampling"),
    Command("torch", ("t",), "torch", "trace some steps with torch.profiler; asks how", "ACT",
            partial(open_profile, tool="torch"), _unavailable, keep=83, on=BOTH,
            also="trace profiles profiler pytorch kernels operators perfetto"),
    Command("stack", ("s",), "Stacks", "current stacks of its threads; of a job, of its ranks", "ACT", take_stacks,
            _unavailable, keep=79, on=BOTH, also="stacks dump traceback backtrace hang where"),
)  # fmt: skip
