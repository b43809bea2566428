"""Commands that inspect a running process: its stacks, a profile, a trace of its steps."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli.options import OK, USAGE, CliCommand, Failure, ascii_only, duration, json_flag, positive_duration
from gputop.cli.process import call_with_deadline, rank_of, run_action, run_actions, sibling_ranks, target_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gputop.actions import Rights
    from gputop.actions.pyspy import Sampling, Shown, StackResult
    from gputop.actions.torch_trace import Traced
    from gputop.collectives.report import Collectives
    from gputop.config import Settings
    from gputop.model import Frame, Process
    from gputop.profile.ranks import Ranks
    from gputop.profile.stacks import Profile
    from gputop.profile.store import StoredProfile
    from gputop.report import Page


def stack(args: argparse.Namespace, settings: Settings) -> int:
    """Print the current stacks of a process's threads."""
    from gputop.actions import Scope
    from gputop.actions.handles import led, reaches
    from gputop.actions.pyspy import STACK, Asked, StackResult
    from gputop.model import Role

    frame, process, rights = target_process(args, settings)
    if why := call_with_deadline(process, STACK.why_not, process, rights):
        raise Failure(why)
    if args.native and settings.readonly:
        raise Failure("--native pauses the process, which --readonly forbids: omit one")
    launches = process.role is Role.LAUNCHER and not args.workers  # its own stacks follow those of its ranks
    leads = launches or (not args.workers and bool(led(frame, process) or sibling_ranks(frame, args.pid)))
    scope = Scope.JOB if args.job or leads else Scope.LOADERS if args.workers else Scope.PROCESS
    if scope is Scope.JOB and not any(reach.scope is scope for reach in reaches(frame, process)):
        sys.stderr.write(
            f"gputop: {process.pid} is the only process of its job\n" if process.job else _no_job_text(process)
        )
        scope = Scope.PROCESS
    result, code = run_action(STACK, frame, process, STACK.rights(rights), Asked(scope, args.native))
    if launches and not args.job and isinstance(result, StackResult):
        own, _ = run_action(STACK, frame, process, STACK.rights(rights), Asked(Scope.PROCESS, args.native))
        if isinstance(own, StackResult):
            result = replace(result, processes=(*result.processes, *own.processes), lines=(*result.lines, *own.lines))
    if not isinstance(result, StackResult) or all(shown.barred for shown in result.processes):
        raise Failure(": ".join((result.text, *result.lines[:1])), code)
    if args.as_json:
        print(json.dumps(_object(result)))
    else:
        print("\n".join(_text(result, ascii_only(settings))))
    for line in result.lines:
        sys.stderr.write(f"gputop: {line}\n")
    return code


def _no_job_text(process: Process) -> str:
    return f"gputop: {process.pid} belongs to no known job: showing only its own stacks\n"


def _text(result: StackResult, plain: bool) -> list[str]:
    from gputop import labels
    from gputop.export.format import masked
    from gputop.profile.dump import lines
    from gputop.report import text
    from gputop.safe.text import to_ascii

    out: list[str] = []
    if result.ranks is not None:
        out += [text(_page(result.ranks, result.collectives, result.processes), ascii=plain)]
    for shown in result.processes:
        out.append(f"{shown.process.pid}  {labels.command(masked(shown.process))}")
        out += lines(shown.threads) if shown.barred is None else [f"  {shown.barred.line}"]
        out.append("")
    known = result.collectives
    if known is not None and (result.ranks is None or known.comparison is not None):
        out += [*text(known.page(words=result.ranks is None), ascii=plain).split("\n")]
    return [to_ascii(line.replace("…", "...")) if plain else line for line in out[:-1]]


def _page(ranks: Ranks, known: Collectives | None, processes: Sequence[Shown]) -> Page:
    """Where the ranks are, and what they reported of their collectives: one list of findings."""
    from gputop.report import Page, ReportTable

    words: tuple[str, ...] = (ranks.text, *(known.words if known else ()))
    if known and known.comparison and known.comparison.discrepancies:  # these say where the ranks are, too
        words = (*known.words, *ranks.progress)
    rows = tuple(
        (
            f"{'> ' if place.odd else ''}{place.label}",
            str(shown.process.pid),
            {True: "yes", False: "no", None: "unknown"}[place.moves],
            place.collective.text if place.collective else place.inner.text if place.inner else "unreadable",
            place.own.text if place.own else "",
        )
        for place, shown in zip(ranks.places, processes, strict=False)  # the launcher may follow them
    )
    table = ReportTable("Ranks", ("", "pid", "progress", "in", "own code"), rows)
    return Page(title=f"{len(rows)} ranks, sampled for 1 s", words=words, tables=(table,))


def _object(result: StackResult) -> dict[str, Any]:
    odd = [] if result.ranks is None else [place.label for place in result.ranks.odd]
    return {
        "version": 1,
        "gputop": __version__,
        "text": result.text if result.ranks is None else result.ranks.text,
        "odd": odd,
        "collectives": None if result.collectives is None else result.collectives.as_json(),
        "processes": [_process(shown) for shown in result.processes],
    }


def _process(shown: Shown) -> dict[str, Any]:
    process = shown.process
    return {
        "pid": process.pid,
        "name": process.name,
        "role": process.role.value,
        "rank": process.rank,
        "error": None if shown.barred is None else shown.barred.text,
        "unlock": None if shown.barred is None else shown.barred.unlock,
        "threads": [
            {
                "tid": thread.tid,
                "name": thread.name,
                "main": thread.main,
                "active": thread.active,
                "state": thread.state,
                "gil": thread.gil,
                "frames": [
                    {"name": call.name, "file": call.file, "line": call.line, "own": call.own} for call in thread.calls
                ],
            }
            for thread in shown.threads
        ],
    }


def _stack_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, metavar="PID", help="process to read; for a launcher, also its ranks")
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--workers", action="store_true", help="include its DataLoader workers")
    targets.add_argument("--job", action="store_true", help="all ranks of its job side by side; the outlier is marked")
    parser.add_argument(
        "--native", action="store_true", help="include C and C++ frames; pauses the process for about 0.3 s"
    )
    json_flag(parser)


def profile(args: argparse.Namespace, settings: Settings) -> int:
    """Profile a process, store the profile, and print the report."""
    from gputop.actions import handles
    from gputop.actions.pyspy import PROFILE, ProfileResult, Sampling, invalid_options
    from gputop.profile import report
    from gputop.report import markdown, text

    if args.list:
        return _list(args)
    if args.pid is None:
        raise Failure("PID is missing: gputop profile PID, or --list for stored profiles", USAGE)
    chosen = Sampling(seconds=args.seconds, rate=args.rate, children=not args.alone, gil=args.gil, native=args.native)
    if why := invalid_options(chosen):
        raise Failure(why, USAGE)
    frame, process, rights = target_process(args, settings)
    led = () if args.launcher else handles.led(frame, process) or sibling_ranks(frame, args.pid)
    if args.job or led:
        ranks = _ranks(args, frame, process, led)
        if len(ranks) > 1:
            return _profile_ranks(args, settings, frame, ranks, rights, chosen)
        process = ranks[0] if ranks else process
    if why := call_with_deadline(process, PROFILE.why_not, process, rights):
        raise Failure(why)
    if args.native:
        sys.stderr.write("gputop: --native pauses the process for each sample; the overhead is measured\n")
    result, code = run_action(PROFILE, frame, process, PROFILE.rights(rights), chosen)
    if not isinstance(result, ProfileResult) or result.page is None or result.kept is None or result.profile is None:
        raise Failure(": ".join((result.text, *result.lines[:1])), code)
    if args.as_json:
        said = report.as_json(result.profile, result.kept.path)
        print(json.dumps({"version": 1, "gputop": __version__, **said, "about": dict(result.kept.meta)}))
    elif args.format == "md":
        print(markdown(result.page), end="")
    else:
        print(text(result.page, ascii=ascii_only(settings)), end="")
    if not args.as_json:
        _files(result.kept)
    return code


_MOST_RANKS = 16  # profiled at once


def _ranks(args: argparse.Namespace, frame: Frame, process: Process, led: tuple[Process, ...]) -> tuple[Process, ...]:
    """The ranks of a process's job to profile; empty if it is in no job."""
    if led:
        itself = "" if process in led else f" (--launcher profiles {process.pid})"
        pid = args.pid if process in led else process.pid
        sys.stderr.write(f"gputop: {pid} is a launcher: profiling its ranks{itself}\n")
    job = next((job for job in frame.jobs if job.key == process.job), None)
    if job is None and not led:
        sys.stderr.write(f"gputop: {process.pid} belongs to no known job: profiling only this process\n")
        return ()
    ranks = led or tuple(frame.by_identity[identity] for identity in (job.ranks if job else ()))
    if len(ranks) > _MOST_RANKS:
        sys.stderr.write(f"gputop: the job has {len(ranks)} ranks: profiling the first {_MOST_RANKS}\n")
    return ranks[:_MOST_RANKS]


def _profile_ranks(
    args: argparse.Namespace,
    settings: Settings,
    frame: Frame,
    ranks: Sequence[Process],
    rights: Rights,
    chosen: Sampling,
) -> int:
    """Profile all ranks at once, store each, and print their joint report first."""
    from gputop.actions.pyspy import PROFILE, ProfileResult

    for process in ranks:
        if why := call_with_deadline(process, PROFILE.why_not, process, rights):
            raise Failure(why)
    results, code = run_actions(PROFILE, frame, ranks, PROFILE.rights(rights), chosen)
    done: list[tuple[Process, Page, StoredProfile, Profile]] = []
    for process, result in zip(ranks, results, strict=True):
        if isinstance(result, ProfileResult) and result.page and result.kept and result.profile:
            done.append((process, result.page, result.kept, result.profile))
        else:
            sys.stderr.write(f"gputop: {process.pid}: {': '.join((result.text, *result.lines[:1]))}\n")
    if not done:
        return code
    _print_ranks(args, settings, done)
    return code


def _print_ranks(
    args: argparse.Namespace, settings: Settings, done: Sequence[tuple[Process, Page, StoredProfile, Profile]]
) -> None:
    """Print the joint report, then each rank's, and where it is stored."""
    from gputop.profile import ranks, report
    from gputop.report import markdown, text

    labels = [str(one.pid) if one.rank is None else f"rank {one.rank}" for one, *_ in done]
    first = ranks.page([(label, one[0].pid, one[3]) for label, one in zip(labels, done, strict=True)])
    if args.as_json:
        each = [
            {"rank": one.rank, "pid": one.pid, **report.as_json(profile, kept.path), "about": dict(kept.meta)}
            for one, _, kept, profile in done
        ]
        print(json.dumps({"version": 1, "gputop": __version__, "text": " ".join(first.words), "ranks": each}))
        return
    for page in (first, *(page for _, page, _, _ in done)):
        print(markdown(page) if args.format == "md" else text(page, ascii=ascii_only(settings)), end="")
        print()
    for _, _, kept, _ in done:
        _files(kept)


def _files(kept: StoredProfile) -> None:
    """Print where a profile is stored, and what opens it."""
    from gputop.profile.store import COLLAPSED, FLAME, SPEEDSCOPE

    sys.stdout.write(f"\n{kept.path}/\n")
    for name, text in (
        (SPEEDSCOPE, "open in https://www.speedscope.app (stays in your browser)"),
        (FLAME, "flame graph for any browser"),
        (COLLAPSED, "collapsed stacks for gputop explain, flamegraph.pl, inferno"),
    ):
        sys.stdout.write(f"  {name:22} {text}\n")


def _list(args: argparse.Namespace) -> int:
    """List stored profiles, of a process or all, newest first."""
    from gputop.profile import store
    from gputop.safe.files import Refused

    try:
        found = store.history(args.pid)
    except Refused as refused:
        raise Failure(str(refused)) from None
    if args.as_json:
        print(json.dumps([{"path": one.path, **one.meta} for one in found]))
        return OK
    for one in found:
        print(f"{one.title}\n  {one.path}")
    if not found:
        sys.stderr.write(f"gputop: no stored profile{f' of {args.pid}' if args.pid else ''}\n")
    return OK


def _profile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", type=int, nargs="?", metavar="PID", help="process to profile; for a launcher, its ranks")
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--job", action="store_true", help="all ranks of its job, side by side")
    targets.add_argument("--launcher", action="store_true", help="the launcher itself instead of its ranks")
    parser.add_argument(
        "--for", dest="seconds", type=positive_duration, default=10.0, metavar="T", help="duration: 10s, 1m (10s)"
    )
    parser.add_argument("--rate", type=int, metavar="HZ", help="samples per second (100, fewer with many threads)")
    parser.add_argument("--alone", action="store_true", help="exclude DataLoader workers and other children")
    parser.add_argument("--gil", action="store_true", help="only threads that hold the GIL")
    parser.add_argument(
        "--native", action="store_true", help="include C and C++ frames; pauses the process for each sample"
    )
    parser.add_argument("--list", action="store_true", help="list stored profiles, of PID or all")
    json_flag(parser)
    parser.add_argument(
        "--format", choices=("text", "md"), default="text", help="output format; md is Markdown for a ticket (text)"
    )


def trace(args: argparse.Namespace, settings: Settings) -> int:
    """Trace some steps of all ranks of a process's job at once, then explain them."""
    from gputop.actions import Scope
    from gputop.actions.torch_trace import TRACE, Traced, TraceOrder
    from gputop.actions.torch_trace.capture import MOST_STEPS

    if not 1 <= args.steps <= MOST_STEPS:
        raise Failure(f"--steps must be 1 to {MOST_STEPS}, not {args.steps}", USAGE)
    frame, process, rights = target_process(args, settings)
    process = rank_of(frame, process)
    if barred := call_with_deadline(process, TRACE.barred, process, rights, frame):
        raise Failure(barred.line)
    order = TraceOrder(
        scope=Scope.PROCESS if args.alone else Scope.JOB,
        steps=args.steps,
        shapes=args.shapes,
        stacks=args.stacks,
        memory=args.memory,
        wait_s=args.wait,
        confirmed=frozenset(RISKS) if args.yes else frozenset(),
    )
    result, code = run_action(TRACE, frame, process, TRACE.rights(rights), order)
    if not isinstance(result, Traced):
        raise Failure(result.text, code)
    if result.risk is not None:
        raise Failure(f"{result.text}; add --yes to continue")
    if not result.views:
        raise Failure(": ".join((result.text, *result.lines[:1])), code)
    _print(result, ascii_only(settings))
    for line in result.lines:
        sys.stderr.write(f"gputop: {line}\n")
    return code


RISKS = ("cuda-graphs", "remote-exec", "kineto")


def _print(result: Traced, plain: bool) -> None:
    from gputop.report import text
    from gputop.safe.text import to_ascii
    from gputop.trace.report import page, ranks

    pages = [ranks(result.views)] if len(result.views) > 1 else []
    pages += [page(view) for view in result.views]
    print("\n".join(text(each, ascii=plain) for each in pages))
    said = dict.fromkeys(fact.text for fact in result.notes)
    if said:
        print("\n".join(("Reported by the program", *(f"  {to_ascii(each) if plain else each}" for each in said))))
        print()
    for file in result.files:
        print(file)
    print("open in https://ui.perfetto.dev, or print again with: gputop explain", Path(result.files[0]).parent / "*")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pid", type=int, metavar="PID", help="any process of the job: a rank, a DataLoader worker or the launcher"
    )
    parser.add_argument("--steps", type=int, default=3, metavar="N", help="number of steps, 1 to 100 (3)")
    parser.add_argument("--wait", type=duration, default=30.0, metavar="T", help="longest wait for a step to end (30s)")
    parser.add_argument("--shapes", action="store_true", help="record input shapes")
    parser.add_argument("--stacks", action="store_true", help="record Python stacks; slows the job during the trace")
    parser.add_argument("--memory", action="store_true", help="record memory allocations")
    targets = parser.add_mutually_exclusive_group()
    targets.add_argument("--job", action="store_true", help="all ranks of its job (default)")
    targets.add_argument("--alone", action="store_true", help="only this process")
    parser.add_argument("--yes", action="store_true", help="accept the risks that gputop reported for this job")


COMMANDS = (
    CliCommand(
        name="stack",
        help="show where every thread is; --job to debug a hang",
        examples=("gputop stack $(pgrep -nf train.py)", "gputop stack --job $(pgrep -nf train.py)"),
        run=stack,
        arguments=_stack_arguments,
    ),
    CliCommand(
        name="profile",
        help="sample a process with py-spy: where time goes",
        examples=("gputop profile $(pgrep -nf train.py)", "gputop profile --list"),
        run=profile,
        arguments=_profile_arguments,
    ),
    CliCommand(
        name="trace",
        help="trace steps of a running job with torch.profiler",
        examples=(
            "gputop trace $(pgrep -nf train.py)",
            "gputop trace --steps 5 --stacks $(pgrep -nf train.py)",
        ),
        run=trace,
        arguments=_arguments,
    ),
)
