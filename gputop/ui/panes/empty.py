"""Empty states: what is missing, what is still shown, what to do. Said once, calmly, from the frame's notes."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from textual.strip import Strip

from gputop import units
from gputop.labels import amount
from gputop.last_job import LastJob
from gputop.model import Frame, Gpu, Note
from gputop.ui.commands.command import Names, hint
from gputop.ui.gpus.state import IDLE_BELOW
from gputop.ui.table.filter import Filter
from gputop.ui.theme import Look
from gputop.ui.widgets import drawing
from gputop.ui.widgets.drawing import Line, Run
from gputop.ui.widgets.key_bar import pressed

_PARTS = re.compile(r"(`[^`]+`)")
_NO_GPUS = Note(
    subject="driver",
    key="no-gpus",
    text="No GPU: the driver works but lists none.",
    help=("to see a demo   `gputop demo`",),
)
_ASIDE = frozenset({"slow", "old-driver", "twins"})  # not why there is no GPU
_WIDEST = 140  # prose is not read wider


def without_gpus(frame: Frame, width: int, look: Look) -> list[Strip]:
    """What stands in place of the GPU pane while there is no GPU: why, what helps, what is shown anyway."""
    notes = [note for note in frame.notes if note.subject == "driver" and note.key not in _ASIDE]
    if not notes:
        notes = [_NO_GPUS]
    notes = [_with_users(note, frame) if note.key == "mismatch" else note for note in notes]
    rows = [row for note in notes for row in said(note, width)]
    rows.append([Run("  Processes and host are shown below.", "dim")])
    return [
        drawing.blank(width, look),
        *(Line(look).runs(row).strip(width) for row in rows),
        drawing.blank(width, look),
    ]


def _with_users(note: Note, frame: Frame) -> Note:
    """Processes that have the driver's libraries mapped prevent it from being loaded again; some may be hidden."""
    users = sum("cuda" in process.libraries for process in frame.processes)
    if not users:
        return note
    use = "process uses" if users == 1 else "processes use"
    return replace(note, help=(*note.help, f"At least {users} {use} it now; see below."))


def no_gpu_process(
    frame: Frame, width: int, look: Look, names: Names, hidden: int = 0, last_job: LastJob | None = None,
    *, records: bool = False,
) -> list[Strip]:  # fmt: skip
    """What stands in the process pane while no process uses a GPU.

    `hidden` is how many others could be shown; with `records` it says how to have the next job on file.
    """
    gpus = [gpu for gpu in frame.gpus if gpu.parent_uuid is None]
    busy = [gpu.index for gpu in gpus if _does(gpu) == "busy"]
    if busy:
        text = f"{_gpus(len(busy))} busy, but the driver lists no process: GPU {', '.join(busy)}."
    elif gpus:
        text = _at_rest(gpus)
    else:
        text = "No training job, and no other process uses more than one core."
    said = (Line(look).add(f"  {part}") for part in wrap(text, width - 4))
    strips = [drawing.blank(width, look), *(line.strip(width) for line in said)]
    if last_job:
        parts = wrap(_farewell(last_job), width - 6)  # a number is never cut
        strips += [drawing.blank(width, look), *(Line(look).add(f"    {part}", "dim").strip(width) for part in parts)]
    ways = [pressed(names, "everything", f"show all {amount(hidden, 'process')}")] if hidden else []
    if records and gpus:
        ways.append(pressed(names, "record", "record, to capture the next job"))
    lines = [Line(look).add("    ").runs(way).strip(width) for way in ways if way]
    return [*strips, drawing.blank(width, look), *lines] if lines else strips


def _does(gpu: Gpu) -> str:
    """What a card does, as far as it can be asked: one that does not answer is not idle."""
    if gpu.condition != "ok":
        return gpu.condition
    if gpu.busy_percent is None or gpu.age_s > 0:
        return "in MIG mode" if gpu.mig_mode else "unknown"
    return "idle" if gpu.busy_percent < IDLE_BELOW else "busy"


def _at_rest(gpus: Sequence[Gpu]) -> str:
    """How many are idle and what these draw, and what the others are."""
    idle = [gpu for gpu in gpus if _does(gpu) == "idle"]
    watts = [gpu.power_watts for gpu in idle if gpu.power_watts is not None]
    counts = Counter(map(_does, gpus))
    others = ", ".join(f"{count} {what}" for what, count in counts.items() if what != "idle")
    if not idle:
        return f"No process on any GPU. {amount(len(gpus), 'GPU')}: {others}."
    rest = f"{amount(len(idle), 'GPU')} idle" + (f", drawing {sum(watts):.0f} W" if watts else "")
    return f"No process on any GPU. {rest}; {others}." if others else f"No process on any GPU. {rest}."


def nothing_matches(
    frame: Frame, asked: Filter, user: str | None, gpu: Gpu | None, width: int, look: Look, names: Names
) -> list[Strip]:
    """What the process pane shows while the filter hides all: the nearest name, and the way back."""
    of = (f" of {user}" if user else "") + (f" on GPU {gpu.index}" if gpu else "")
    first = Line(look).add(f"  0 of {len(frame.processes)} processes{of} match  ", "text")
    first.add(drawing.cut(asked.text, max(1, width - first.cells - 1), look.glyphs.more), "bright", bold=True)
    second = Line(look).add("    ")
    if nearest := asked.nearest(frame):
        kind, name, count = nearest
        second.add(f"did you mean {kind} ", "dim").add(name, "text").add(f" ({amount(count, 'process')})?    ", "dim")
    back = pressed(names, "back", "clear the filter")
    lines = [first, Line(look), second]
    if second.cells + drawing.cells(back) > width and nearest:
        lines.append(Line(look).add("    "))
    lines[-1].runs(back)
    return [drawing.blank(width, look), *(line.strip(width) for line in lines)]


def nothing_on(gpu: Gpu, user: str | None, width: int, look: Look, names: Names) -> list[Strip]:
    """What stands there while the one GPU that is shown has no process, as far as the driver names them."""
    of = f" of {user}" if user else ""
    first = f"No process{of} on GPU {gpu.index}, which is {_does(gpu)}."
    if not user and _does(gpu) == "busy":
        first = f"GPU {gpu.index} is busy, but the driver lists no process on it."
    second = Line(look).add("    ").runs(pressed(names, "back", "show all"))
    parts = (Line(look).add(f"  {part}").strip(width) for part in wrap(first, width - 4))
    return [drawing.blank(width, look), *parts, drawing.blank(width, look), second.strip(width)]


def nothing_of(user: str, count: int, width: int, look: Look, names: Names) -> list[Strip]:
    """What stands there while the one user who is shown has no process in the table."""
    first = Line(look).add(f"  {user} has no process on a GPU, and none that is busy.", "text")
    all_of = f"show all {amount(count, 'process')} of {user}    "
    second = Line(look).add("    ").runs(pressed(names, "everything", all_of) if count else [])
    second.runs(pressed(names, "back", "show all users"))
    return [drawing.blank(width, look), first.strip(width), drawing.blank(width, look), second.strip(width)]


def _farewell(job: LastJob) -> str:
    said = f"last job: {job.name} ({job.user or 'unknown'})"
    said += f" exited {time.strftime('%H:%M:%S', time.localtime(job.wall_s))}, exit status unknown"
    said += f", {units.ago_text(job.ran_s)}" if job.ran_s is not None else ""
    return said + (f", average GPU busy {job.busy_percent:.0f} %" if job.busy_percent is not None else "")


def _gpus(count: int) -> str:
    return "1 GPU is" if count == 1 else f"{count} GPUs are"


def noted(frame: Frame) -> Sequence[Note]:
    """The notes that deserve one line while the panes are full: what is hidden, foreign or lost."""
    return [note for note in frame.notes if note.key != "slow" and (frame.gpus or note.subject != "driver")]


def note_line(frame: Frame, width: int, look: Look, names: Names) -> Strip | None:
    """The first such note in one line, and where the rest is; None where there is none."""
    notes = noted(frame)
    if not notes:
        return None
    rest = f"{len(notes)} notes" if len(notes) > 1 else "more" if notes[0].help else ""
    more = hint(names, f"  {{}}: {rest}", "help") if rest else ""
    line = Line(look).add(" ").add(drawing.cut(notes[0].text, max(0, width - len(more) - 2)), "dim").add(more, "dim")
    return line.strip(width)


def said(note: Note, width: int) -> list[list[Run]]:
    """A note in full: what is missing, and what helps."""
    width = min(width, _WIDEST)
    rows: list[list[Run]] = [[Run("  "), Run(line, "bright", True)] for line in wrap(note.text, width - 4)]
    labels = [_split(line)[0] for line in note.help]
    aligned = max((drawing.cells([Run(label)]) for label in labels), default=0)
    rows.append([])
    for line in note.help:
        label, text = _split(line)
        if not label:
            rows += [[Run("    "), *_marked(part)] for part in wrap(text, width - 6)]
        elif width < aligned + 40:
            rows += [[Run(f"    {label}", "dim")], *([Run("      "), *_marked(part)] for part in wrap(text, width - 8))]
        else:
            parts = wrap(text, width - aligned - 8)
            rows += [
                [Run(f"    {drawing.fit(label if not number else '', aligned)}   ", "dim"), *_marked(part)]
                for number, part in enumerate(parts)
            ]
    rows.append([])
    return rows


def _split(line: str) -> tuple[str, str]:
    """A help line's label and text, kept apart by three blanks or more."""
    parts = re.split(r" {3,}", line, maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else ("", line)


def _marked(text: str) -> list[Run]:
    """Text in which what stands in backticks can be copied."""
    return [
        Run(part[1:-1], "command") if part.startswith("`") and len(part) > 2 else Run(part, "text")
        for part in _PARTS.split(text)
        if part
    ]


def _parted(word: str, width: int) -> list[str]:
    """A command that is too long for a line as its words, each in backticks; anything else as it is."""
    _, command, rest = word.split("`") if word.startswith("`") and word.count("`") == 2 else ("", "", "")
    if drawing.cells(_marked(word)) <= width or " " not in command:
        return [word]
    parts = [f"`{part}`" for part in command.split()]
    return [*parts[:-1], parts[-1] + rest]


def wrap(text: str, width: int) -> list[str]:
    """Words in lines of at most `width` cells; a command in backticks stays whole where it can, and is never cut."""
    lines = [""]
    for word in (part for found in re.findall(r"`[^`]+`\S*|\S+", text) for part in _parted(found, width)):
        if lines[-1] and drawing.cells([*_marked(lines[-1]), *_marked(word)]) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else drawing.cut(word, max(1, width))
    return lines
