"""gputop explain: reports on traces, profiles and pasted texts, and differences between two."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from gputop import __version__
from gputop.cli.options import FAILED, OK, USAGE, CliCommand, Failure, ascii_only, json_flag
from gputop.safe.text import clean

if TYPE_CHECKING:
    from gputop.config import Settings
    from gputop.paste import FlightDump, Pasted
    from gputop.profile import Profile
    from gputop.report import Page
    from gputop.trace.verdict import TraceView

    Opened = TraceView | Profile | Pasted | FlightDump

MOST_FILES = 256
_TRACES = (".json", ".json.gz")
MOST_PROFILE = 256 << 20  # characters
MOST_INPUT = 1 << 30  # bytes
STANDARD_INPUT = "standard input"


def explain(args: argparse.Namespace, settings: Settings) -> int:
    """Print reports on the files; several traces, or several flight recorder dumps, may be ranks of one job."""
    from gputop.paste import pasted
    from gputop.report import markdown, text
    from gputop.safe.files import Refused
    from gputop.trace.verdict import TraceView

    pasted.adopt(settings.thresholds)
    try:
        if args.diff and len(args.files) != 2:
            raise Failure("--diff takes two files or two folders: gputop explain --diff BEFORE AFTER", USAGE)
        sides = [_trace_files(name) for name in args.files]
        files = [file for side in sides for file in side]
        folders = set(files) - set(args.files)
        opened, left_out = _open_all(files, folders, compare=args.diff and not folders)
    except Refused as refused:
        raise Failure(str(refused)) from None
    files = [name for name in files if name not in dict(left_out)]
    traces = [each for each in opened if isinstance(each, TraceView)]
    names = _display_names(files)
    for each, name in zip(opened, names, strict=True):
        if isinstance(each, TraceView):
            each.trace.name = name
    left = [{"file": clean(Path(name).name, 200), "why": reason} for name, reason in left_out]
    pairs = _pairs(opened, sum(name in files for name in sides[0]), args.files, left_out) if args.diff else []
    why = None if args.diff else _why_not_one_job(traces, left_out)
    if args.as_json:
        changes = [change for pair in pairs for change in _changes(pair, names)]
        result = {"files": changes if args.diff else list(map(_object, opened, names)), "apart": why, "left_out": left}
        result |= _joint_dumps(opened, names)[1]
        print(json.dumps({"version": 1, "gputop": __version__, **result}, allow_nan=False))
        return FAILED if left else _exit_code(opened)
    pages = _differences(pairs, names) if args.diff else [*_joint_pages(traces, why), *_each_page(opened, names)]
    if left:
        words = (f"{each['file']} is skipped: {each['why']}." for each in left)
        pages[0] = replace(pages[0], words=(*words, *pages[0].words))
    drawn = (markdown(page) if args.format == "md" else text(page, ascii=ascii_only(settings)) for page in pages)
    print("\n".join(drawn), end="")
    return FAILED if left else _exit_code(opened)


_UNKNOWN = "it is neither a torch trace"
LeftOut = list[tuple[str, str]]  # unreadable files, and why


def _open_all(names: Sequence[str], folders: set[str], *, compare: bool) -> tuple[list[Opened], LeftOut]:
    """The contents of each file; of several, the readable ones, of a folder the traces. Refused if none is readable."""
    from gputop.safe.files import Refused
    from gputop.trace.verdict import TraceView

    found: list[tuple[str, Opened]] = []
    left_out: LeftOut = []
    first: Refused | None = None
    for name in names:
        try:
            found.append((name, _open_input() if name == "-" else _open(name)))
        except Refused as refused:
            first = first or refused
            left_out.append((name, _reason(name, str(refused))))
            if compare:
                break
    if first is not None and (compare or not found):
        raise first
    known = any(isinstance(each, TraceView) and not each.trace.foreign for _, each in found)
    kept = []
    for name, each in found:
        if known and not compare and isinstance(each, TraceView) and each.trace.foreign:
            left_out.append((name, "not a torch.profiler trace"))
        elif known and not compare and name in folders and not isinstance(each, TraceView):
            left_out.append((name, "it is not a trace"))
        else:
            kept.append(each)
    return kept, left_out


def _reason(name: str, refused: str) -> str:
    """Why a file is left out, without its name and the advice."""
    shown = STANDARD_INPUT if name == "-" else name
    if _UNKNOWN in refused:
        return "its format is unknown"
    reason = clean(refused.removeprefix(shown).lstrip(": ").partition(": use a trace")[0], 200)
    return f"it {reason}" if reason.startswith("is ") else reason


def _differences(pairs: Sequence[tuple[Opened, Opened]], names: list[str]) -> list[Page]:
    """A page of differences for each pair, preceded by one on all ranks."""
    from gputop.trace.report import compare_ranks
    from gputop.trace.verdict import TraceView

    ranks = [(a, b) for a, b in pairs if isinstance(a, TraceView) and isinstance(b, TraceView)]
    return [*([compare_ranks(ranks)] if len(ranks) > 1 else []), *(_comparison(pair, names) for pair in pairs)]


def _pairs(
    opened: Sequence[Opened], first: int, sides: Sequence[str], left_out: LeftOut
) -> list[tuple[Opened, Opened]]:
    """The pairs to compare: two files, or equal ranks; `first`: number of files on the first side.

    Raises Failure if they do not match.
    """
    from gputop.trace.verdict import TraceView

    if len({isinstance(each, TraceView) for each in opened}) > 1 or _is_pasted(opened):
        raise Failure("--diff compares two traces or two profiles, not a mix", USAGE)
    before, after = opened[:first], opened[first:]
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    ranks = []
    for side, name in ((before, sides[0]), (after, sides[1])):
        views = [each for each in side if isinstance(each, TraceView)]
        if (why := _why_not_one_job(views, left_out)) is not None:
            raise Failure(f"{name}: not the ranks of one job ({why}): name one file of it", USAGE)
        by_name = all(view.trace.rank is None for view in views) and len(views) > 1
        if not by_name and any(view.trace.rank is None for view in views):
            raise Failure(f"{name}: a trace without a rank cannot be paired: name one file of each side", USAGE)
        ranks.append({Path(view.trace.name).name if by_name else view.trace.rank: view for view in views})
    common = [rank for rank in ranks[0] if rank in ranks[1]]
    one = min(len(side) for side in ranks) == 1  # a file beside a folder: its rank there
    if not common or (len(common) < max(map(len, ranks)) and not one):
        counts = " and ".join(f"{len(side)} of {name}" for side, name in zip(ranks, sides, strict=True))
        raise Failure(f"--diff compares the same ranks; {counts} do not match: name one file of each side", USAGE)
    common.sort(key=lambda rank: (rank is None, rank))
    return [(ranks[0][rank], ranks[1][rank]) for rank in common]


def _exit_code(opened: Sequence[Opened]) -> int:
    """Exit code: whether parts of the files were repaired or omitted."""
    from gputop.trace.verdict import TraceView

    return FAILED if any((each.trace if isinstance(each, TraceView) else each).problems for each in opened) else OK


def _is_pasted(opened: Sequence[Opened]) -> bool:
    from gputop.paste import FlightDump, Pasted

    return any(isinstance(each, (Pasted, FlightDump)) for each in opened)


def _trace_files(name: str) -> list[str]:
    """The file itself; for a folder the traces in it, as ranks of one job. Refused if it has none."""
    from gputop.safe.files import Refused

    folder = Path(name)
    try:
        if not folder.is_dir():
            return [name]
        found = sorted(str(path) for path in folder.iterdir() if path.name.endswith(_TRACES) and path.is_file())
    except OSError as error:
        raise Refused(f"{name} cannot be read: {error.strerror}") from None
    if not found:
        raise Refused(f"{name}: no trace in this folder; torch.profiler writes .json or .json.gz files")
    if len(found) > MOST_FILES:
        raise Refused(f"{name}: {len(found)} traces in this folder: name at most {MOST_FILES} of them")
    return found


def _display_names(files: list[str]) -> list[str]:
    """Display names of files: each with as many parent folders as distinguish it."""
    paths = [Path(STANDARD_INPUT if name == "-" else name) for name in files]
    deepest = max(len(path.parts) for path in paths)
    tells = (depth for depth in range(1, deepest) if len({path.parts[-depth:] for path in paths}) == len(paths))
    depth = next(tells, 0)
    if not depth:  # the same file twice
        depth = 2 if len({path.name for path in paths}) < len(paths) else 1
    return [clean("/".join(path.parts[-depth:]), 200).lstrip("/") for path in paths]


def _open_input() -> Opened:
    """The contents of standard input; traces must be files."""
    from gputop.safe.files import Refused

    with NamedTemporaryFile(prefix="gputop-") as kept:
        data, size = sys.stdin.buffer, 0
        while piece := data.read(1 << 20):
            size += len(piece)
            if size > MOST_INPUT:
                raise Refused(f"{STANDARD_INPUT} is larger than {MOST_INPUT >> 20} MiB: name the file")
            kept.write(piece)
        kept.flush()
        try:
            return _open(kept.name)
        except Refused as refused:
            raise Refused(str(refused).replace(kept.name, STANDARD_INPUT)) from None


def _open(name: str) -> Opened:
    """The contents of a file: a trace, a profile, or a pasted text."""
    from gputop.paste import recognise
    from gputop.profile import is_json, parse
    from gputop.safe.files import Refused
    from gputop.trace import signatures  # noqa: F401
    from gputop.trace.read import read
    from gputop.trace.text import Text
    from gputop.trace.verdict import TraceView

    text = Text(name)
    try:
        begins = text.beginning()
        if is_json(begins) and "speedscope" not in begins:
            try:
                return TraceView(read(name))
            except Refused:
                if (found := recognise(text)) is None:  # a log may be JSON, too
                    raise
                return found
        if not begins and text.notes:
            raise Refused(text.notes[0])
        if (found := recognise(text)) is not None:
            return found
        text.notes.clear()
        profile = parse(text.whole(MOST_PROFILE))
        profile.problems += text.notes
        return profile
    except Refused as refused:
        reason = str(refused)
        raise Refused(reason if reason.startswith(name) else f"{name}: {reason}") from None
    finally:
        text.close()


def _why_not_one_job(traces: list[TraceView], left_out: LeftOut) -> str | None:
    """Why several traces are not ranks of one job; None, and linked to each other, if they may be."""
    from gputop.trace.summary import why_not_one_job

    why = why_not_one_job(traces) if len(traces) > 1 else None
    if why is None:
        for view in traces:
            view.ranks = traces
            view.all_ranks = not any(_may_be_rank(reason) for _, reason in left_out) or view.trace.ranks == len(traces)
    return why


def _may_be_rank(reason: str) -> bool:
    """Whether an omitted file may have been another rank's trace: one that is empty or truncated."""
    return not any(
        text in reason for text in ("no traceEvents", "not JSON", "torch.profiler", "not a trace", "format is unknown")
    )


def _joint_pages(traces: list[TraceView], why: str | None) -> list[Page]:
    """The page on several traces: as ranks, or why they are not."""
    from gputop.report import Page
    from gputop.trace.report import ranks

    if why:
        words = f"Not the ranks of one job: {why}. Compare two with gputop explain --diff BEFORE AFTER."
        return [Page(title=f"{len(traces)} traces", words=(words,))]
    return [ranks(traces)] if len(traces) > 1 else []


def _each_page(opened: Sequence[Opened], names: Sequence[str]) -> list[Page]:
    """A page on each file; dumps of the ranks of one job share one."""
    from gputop.paste import FlightDump

    joint, result = _joint_dumps(opened, names)
    shared = bool(result.get("collectives"))
    alone = (
        (one, name) for one, name in zip(opened, names, strict=True) if not (shared and isinstance(one, FlightDump))
    )
    return [*joint, *(_page(one, name) for one, name in alone)]


def _joint_dumps(opened: Sequence[Opened], names: Sequence[str]) -> tuple[list[Page], dict[str, Any]]:
    """The page on the flight recorder dumps of several ranks, or on why they are not of one job; and as an object."""
    from gputop.paste import FlightDump, flight_dump
    from gputop.report import Page

    found = [(one, name) for one, name in zip(opened, names, strict=True) if isinstance(one, FlightDump)]
    if len(found) < 2:
        return [], {}
    dumps, called = [one for one, _ in found], [name for _, name in found]
    if why := flight_dump.why_not_one_job(called, dumps):
        words = f"Not the ranks of one job: {why}. Each is read alone."
        return [Page(title=f"{len(found)} flight recorder dumps", words=(words,))], {"apart": why, "collectives": None}
    return [flight_dump.page(dumps, called)], {"collectives": flight_dump.joint_numbers(dumps, called)}


def _page(opened: Opened, name: str) -> Page:
    from gputop.paste import FlightDump, Pasted
    from gputop.profile import Profile, report
    from gputop.trace.report import page

    if isinstance(opened, (Pasted, FlightDump)):
        return opened.page(name)
    return report.page(opened, name) if isinstance(opened, Profile) else page(opened)


def _object(opened: Opened, name: str) -> dict[str, Any]:
    from gputop.paste import FlightDump, Pasted
    from gputop.profile import Profile, report
    from gputop.trace.summary import as_json

    if isinstance(opened, (Pasted, FlightDump)):
        return opened.as_json(name)
    return report.as_json(opened, name) if isinstance(opened, Profile) else as_json(opened)


def _comparison(opened: tuple[Opened, Opened], names: list[str]) -> Page:
    from gputop.profile import Profile, report
    from gputop.trace.report import compared
    from gputop.trace.verdict import TraceView

    before, after = opened
    if isinstance(before, Profile) and isinstance(after, Profile):
        return report.compared(before, after, (names[0], names[1]))
    assert isinstance(before, TraceView)
    assert isinstance(after, TraceView)
    return compared(before, after)


def _changes(opened: Sequence[Opened], names: list[str]) -> list[dict[str, Any]]:
    from gputop.profile import Profile, diff
    from gputop.trace.summary import compare
    from gputop.trace.verdict import TraceView

    before, after = opened
    if isinstance(before, Profile) and isinstance(after, Profile):
        rows = [{"name": name, "before": old, "after": new} for name, old, new in diff(before, after)[:100]]
        return [{"kind": "diff", "before": names[0], "after": names[1], "functions": rows}]
    assert isinstance(before, TraceView)
    assert isinstance(after, TraceView)
    return [compare(before, after)]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="torch.profiler trace or table, py-spy profile, flight recorder dumps of all ranks, nvidia-smi -q or CSV "
        "output, NCCL RAS status, log with an error, or memory snapshot; - for standard input",
    )
    parser.add_argument(
        "--diff",
        action="store_true",
        help="compare the first file with the second",
    )
    json_flag(parser)
    parser.add_argument(
        "--format", choices=("text", "md"), default="text", help="output format; md is Markdown for a ticket (text)"
    )


COMMANDS = (
    CliCommand(
        name="explain",
        help="explain a trace, profile, log or nvidia-smi output",
        examples=("gputop explain trace.json.gz", "nvidia-smi -q | gputop explain -"),
        run=explain,
        arguments=_arguments,
    ),
)
