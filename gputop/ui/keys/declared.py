"""What every key does, declared once: bindings, key bar, help, README and `gputop keys` are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gputop.frozen_dataclass import frozen_dataclass
from gputop.ui.keys.names import shown

Group = Literal["MOVE", "PICK", "SORT", "LOOK", "ACT", "TIME", "LEAVE", "DETAILS", "RESULT"]
GROUPS: tuple[Group, ...] = ("MOVE", "PICK", "SORT", "LOOK", "ACT", "TIME", "LEAVE", "DETAILS", "RESULT")
Place = Literal["main", "details", "result"]  # the screens with keys of their own: a key may mean another thing on each
EVERY: tuple[Place, ...] = ("main", "details", "result")
BOTH: tuple[Place, ...] = ("main", "details")
DETAILS: tuple[Place, ...] = ("details",)
RESULT: tuple[Place, ...] = ("result",)


@frozen_dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be done. `keys` are named as Textual names them; the first is the one to show."""

    id: str  # for remapping
    keys: tuple[str, ...]
    title: str  # in the key bar
    help: str
    group: Group
    action: str  # the screen's method that does it
    keep: int = 0  # in the key bar the higher one stays when it is narrow; 0 is never there
    joins: bool = False  # in help it stands on the line of the key before it, by its title
    on: tuple[Place, ...] = ("main",)
    also: str = ""  # other words for it, by which somebody may look for it in the palette

    @property
    def names(self) -> tuple[str, ...]:
        """The keys as a person reads them: F10, PgUp, Ctrl+C, S-Tab, ?."""
        return tuple(shown(key) for key in self.keys)


def _tab(number: str, id: str, title: str, help: str, joins: bool = True) -> Key:
    """What opens a tab of the details."""
    return Key(f"{id}-tab", (number,), title, help, "DETAILS", f"open('{id}')", joins=joins, on=DETAILS)


def _on_result(
    id: str, keys: tuple[str, ...], title: str, help: str, action: str, keep: int = 0, *, joins: bool = True
) -> Key:
    """What is done on the screen of a result."""
    return Key(f"result-{id}", keys, title, help, "RESULT", action, keep, joins, RESULT)


def _view(number: int) -> Key:
    """What opens a view of a result, by its place."""
    keys = (str(number % 10),)
    return _on_result(f"view-{number}", keys, "A view", "a view", f"open({number - 1})", joins=number > 1)


KEYS: tuple[Key, ...] = (
    Key("help", ("f1", "h", "question_mark"), "Help", "help", "LEAVE", "help", keep=100, on=EVERY),
    Key("up", ("up",), "Move", "one line up", "MOVE", "move(-1)", on=EVERY),
    Key("down", ("down",), "Move", "one line down", "MOVE", "move(1)", joins=True, on=EVERY),
    Key("page-up", ("pageup",), "Move", "one page up", "MOVE", "page(-1)", joins=True, on=EVERY),
    Key("page-down", ("pagedown",), "Move", "one page down", "MOVE", "page(1)", joins=True, on=EVERY),
    Key("home", ("home",), "Move", "to the first line", "MOVE", "move(-1000000)", joins=True, on=EVERY),
    Key("end", ("end",), "Move", "to the last line", "MOVE", "move(1000000)", joins=True, on=EVERY),
    Key("fold", ("left",), "Fold", "fold, or go to the parent; when flat, scroll the commands", "MOVE", "fold"),
    Key("unfold", ("right",), "Unfold", "unfold; when flat, scroll the commands", "MOVE", "unfold", joins=True),
    Key("unfold-level", ("plus",), "Unfold", "unfold one level everywhere", "MOVE", "level(1)"),
    Key("fold-level", ("minus",), "Fold", "fold one level everywhere", "MOVE", "level(-1)", joins=True),
    Key("levels", ("asterisk",), "All levels", "unfold everything, and back", "MOVE", "level(0)", joins=True),
    Key("next-pane", ("tab",), "Next pane", "to the next pane", "MOVE", "pane(1)"),
    Key("previous-pane", ("shift+tab",), "Previous", "to the previous pane", "MOVE", "pane(-1)", joins=True),
    Key("follow", ("F",), "Follow", "follow the process, or not", "MOVE", "follow"),
    Key("find", ("slash", "f3"), "Find", "find by any words; what is folded is unfolded", "PICK", "find", keep=95),
    Key("find-next", ("n",), "Next", "the next one that was found", "PICK", "find_next", joins=True),
    Key("filter", ("f4", "backslash"), "Filter", "filter by words or read>50M", "PICK", "filter", keep=80,
        also="search grep only hide"),
    Key("user", ("u",), "User", "show one user only", "PICK", "user", keep=30),
    Key("gpu", ("f",), "One GPU", "choose a GPU; again: show its processes only", "PICK", "gpu", keep=32,
        also="filter only card device gpus processes"),
    Key("tag", ("space",), "Tag", "tag the process, or no longer", "PICK", "tag(False)"),
    Key("tag-children", ("c",), "With children", "tag the process with its children", "PICK", "tag(True)", joins=True),
    Key("untag", ("U",), "Untag", "tag nothing", "PICK", "untag", joins=True),
    Key("sort-cpu", ("P",), "CPU", "by CPU", "SORT", "sort('cpu')"),
    Key("sort-memory", ("M",), "Memory", "by resident memory", "SORT", "sort('rss')", joins=True),
    Key("sort-time", ("T",), "Time", "by time since the start", "SORT", "sort('time')", joins=True),
    Key("sort-pid", ("N",), "PID", "by process id", "SORT", "sort('pid')", joins=True),
    Key("sort-gpu", ("G",), "GPU busy", "by GPU busy", "SORT", "sort('gpu-busy')"),
    Key("sort-vram", ("V",), "VRAM", "by device memory", "SORT", "sort('vram')", joins=True),
    Key("sort-read", ("r",), "Read", "by bytes read", "SORT", "sort('read')"),
    Key("sort-write", ("w",), "Write", "by bytes written", "SORT", "sort('write')", joins=True),
    Key("order", ("o",), "Order", "by a letter, as in nvitop", "SORT", "order"),
    Key("sort-previous", ("comma",), "Column left", "by the column to the left", "SORT", "shift_sort(-1)"),
    Key("sort-next", ("full_stop",), "Right", "by the column to the right", "SORT", "shift_sort(1)", joins=True),
    Key("sort", ("f6",), "Sort", "choose the column", "SORT", "choose_sort", keep=90, also="order by column"),
    Key("reverse", ("I",), "Reverse", "the other way round", "SORT", "reverse", keep=20),
    Key("tree", ("f5",), "Tree", "a tree of jobs, or a list", "SORT", "tree", keep=60),
    Key("density", ("g",), "GPUs", "GPUs as card, row, cell", "LOOK", "density", keep=50),
    Key("pane-gpus", ("1",), "Hide GPUs", "show or hide the GPUs", "LOOK", "hide('gpus')"),
    Key("pane-host", ("2",), "host", "show or hide the host", "LOOK", "hide('host')", joins=True),
    Key("pane-processes", ("3",), "processes", "show or hide the processes", "LOOK", "hide('processes')", joins=True),
    Key("pane-advice", ("4",), "advice", "show or hide the advice", "LOOK", "hide('advice')", joins=True),
    Key("zoom", ("z",), "Zoom", "this pane alone, and back", "LOOK", "zoom"),
    Key("everything", ("H",), "All", "processes without a GPU too", "LOOK", "every_process"),
    Key("advice", ("a",), "Advice", "all of the advice, and back", "LOOK", "advice", keep=88,
        also="findings diagnosis why problems bottleneck slow"),
    Key("experiments", ("E",), "Experiments", "the experiments side by side, and back", "LOOK", "experiments",
        joins=True, also="jobs compare runs contention threads"),
    Key("advice-mute", ("x",), "Mute", "mute the finding until it changes", "LOOK", "mute", 86, joins=True),
    Key("details", ("enter",), "Details", "one process; unfolds a job; a GPU: its processes", "LOOK", "open", keep=85),
    Key("environment", ("e",), "Environment", "its environment", "LOOK", "open('environment')", joins=True, on=BOTH),
    Key("files", ("l",), "Files", "its open files", "LOOK", "open('files')", joins=True, on=BOTH),
    Key("setup", ("f2",), "Setup", "settings, saved at once", "LOOK", "setup", keep=65, on=BOTH,
        also="settings options preferences config columns"),
    Key("view", ("v",), "View", "columns: steps, I/O, memory, CPU", "LOOK", "next_preset", keep=15,
        also="columns preset view"),
    Key("copy", ("y",), "Copy", "copy the pid; again: the command line (OSC 52)", "LOOK", "copy", keep=5, on=BOTH),
    Key("show", ("Y",), "Show", "what y copies on a plain screen, for the mouse", "LOOK", "show", joins=True, on=BOTH),
    Key("save", ("S",), "Save", "save the screen: a picture, text or JSON", "LOOK", "save", joins=True, on=BOTH,
        also="screenshot export json svg"),
    Key("palette", ("ctrl+p",), "All", "everything, by name; themes", "LOOK", "palette", keep=30, on=EVERY),
    Key("release-driver", ("D",), "Release", "release the driver, or back", "LOOK", "driver"),
    Key("signal", ("f9", "k"), "Signal", "send a signal; it asks which, and to whom", "ACT", "signal", 80, on=BOTH,
        also="kill terminate stop end suspend resume pause"),
    Key("profile", ("p",), "py-spy", "where its time goes: py-spy; asks how", "ACT", "profile('profile')", 84, on=BOTH,
        also="profiles profiler flame graph flamegraph sampling"),
    Key("torch", ("t",), "torch", "a few steps by torch.profiler; asks how", "ACT", "profile('trace')", 83, on=BOTH,
        also="trace profiles profiler pytorch kernels operators perfetto"),
    Key("stack", ("s",), "Stacks", "where its threads are, now; of a job its ranks", "ACT", "stack", 79, on=BOTH,
        also="stacks dump traceback backtrace hang where"),
    Key("measure", ("m",), "Measure", "run what verifies the finding; asks first", "ACT", "measure",
        also="verify lab loader experiment maxbatch memory"),
    Key("nice-up", ("f8",), "Nice +", "one step nicer: others get the CPU first", "ACT", "nice(1)",
        also="renice priority"),
    Key("nice-down", ("f7",), "Nice -", "one step less nice; only root may", "ACT", "nice(-1)", also="renice priority"),
    Key("freeze", ("Z",), "Freeze", "freeze the picture", "TIME", "freeze", keep=70, on=BOTH,
        also="pause hold stop refresh"),
    Key("delay", ("d",), "Delay", "time between two looks", "TIME", "delay", keep=40,
        also="interval refresh rate speed"),
    Key("record", ("R",), "Record", "record to a file, for replay; and stop", "TIME", "record", keep=35),
    Key("pause", ("vertical_line",), "Replay: pause", "replay: pause, and play on", "TIME", "hold", on=BOTH),
    Key("slower", ("less_than_sign",), "Slower", "replay: slower", "TIME", "hurry(-1)", 0, True, BOTH),
    Key("faster", ("greater_than_sign",), "Faster", "replay: faster", "TIME", "hurry(1)", 0, True, BOTH),
    Key("second-back", ("left_square_bracket",), "Replay: 1 s back", "replay: 1 s back", "TIME", "step(-1)", on=BOTH),
    Key("second-on", ("right_square_bracket",), "1 s on", "replay: 1 s on", "TIME", "step(1)", 0, True, BOTH),
    Key("minute-back", ("left_curly_bracket",), "60 s back", "replay: 60 s back", "TIME", "step(-60)", 0, True, BOTH),
    Key("minute-on", ("right_curly_bracket",), "60 s on", "replay: 60 s on", "TIME", "step(60)", 0, True, BOTH),
    Key("recording-end", ("0",), "End", "replay: to the end", "TIME", "end_of_recording", on=BOTH),
    Key("back", ("escape",), "Back", "back; ends what is open or frozen", "LEAVE", "back"),
    Key("quit", ("q", "f10"), "Quit", "quit", "LEAVE", "quit", keep=100, on=EVERY, also="exit close leave"),
    Key("interrupt", ("ctrl+c",), "Quit", "quit, when pressed twice", "LEAVE", "interrupt", on=EVERY),
    Key("suspend", ("ctrl+z",), "Suspend", "to the shell; fg comes back", "LEAVE", "suspend_process", on=EVERY),
    Key("close", ("escape",), "Back", "back to where you were", "DETAILS", "back", keep=95, on=DETAILS),
    Key("take", ("enter", "space"), "Open", "open a relative; show, hide a secret", "DETAILS", "take", 80, on=DETAILS),
    _tab("1", "threads", "Threads", "its threads", joins=False),
    _tab("2", "io", "I/O", "what it reads and writes"),
    _tab("3", "gpu", "GPU", "what it has of its GPUs"),
    _tab("4", "environment", "Environment", "its environment"),
    _tab("5", "children", "Children", "its parents and children"),
    _tab("6", "files", "Files", "its open files"),
    _tab("7", "limits", "Limits", "its limits and rights"),
    _tab("8", "memory", "Memory", "where its memory is"),
    Key("next-tab", ("tab",), "Next tab", "the next tab", "DETAILS", "turn(1)", 70, on=DETAILS),
    Key("previous-tab", ("shift+tab",), "Previous", "the tab before", "DETAILS", "turn(-1)", joins=True, on=DETAILS),
    Key("left", ("left",), "Left", "long lines from their beginning", "DETAILS", "sideways(-1)", on=DETAILS),
    Key("right", ("right",), "Right in long lines", "long lines on", "DETAILS", "sideways(1)", joins=True, on=DETAILS),
    Key("others", ("O",), "Show it", "root: the environment of another user", "DETAILS", "others", 85, on=DETAILS),
    _on_result("close", ("escape",), "Back", "back to where you were", "back", 99, joins=False),
    *map(_view, range(1, 11)),
    _on_result("tab", ("tab",), "Next view", "the next view", "turn_tab(1)", 60, joins=False),
    _on_result("tab-back", ("shift+tab",), "Previous", "the view before", "turn_tab(-1)"),
    _on_result("take", ("enter",), "Open", "zoom into a frame; open a line", "act('take')", 90, joins=False),
    _on_result("out", ("backspace",), "Zoom out", "zoom out of the frame", "act('out')", 80),
    _on_result("left", ("left",), "Move", "earlier; the frame to the left", "act('sideways', -1)", joins=False),
    _on_result("right", ("right",), "Move", "later; the frame to the right", "act('sideways', 1)"),
    _on_result("in", ("plus",), "Zoom", "a shorter time", "act('zoom', 1)", 75, joins=False),
    _on_result("less", ("minus",), "Zoom out", "a longer time", "act('zoom', -1)"),
    _on_result("gap", ("n",), "Next gap", "the next gap; the next that was found", "act('next')", 78, joins=False),
    _on_result("find", ("slash", "f3"), "Find", "find functions", "find", 85, joins=False),
    _on_result("turn", ("r",), "Next thread", "the next rank, or the next thread", "turn", 88, joins=False),
    _on_result("again", ("R",), "Again", "take the stacks again", "again", 91, joins=False),
    _on_result("self", ("s",), "By self", "by own time", "act('self')", 70, joins=False),
    _on_result("total", ("t",), "By total", "by all that they call", "act('total')", 70),
    _on_result("diff", ("d",), "Compare", "compare with an earlier one", "compare", 72, joins=False),
    _on_result("path", ("y",), "Copy path", "copy the path of the file (OSC 52)", "copy_path", 66, joins=False),
    _on_result("scp", ("Y",), "scp", "the line that fetches it, for the mouse", "show_path", 65),
)  # fmt: skip

# after `o`, the letters of nvitop: what they sort by
ORDERS: dict[str, str] = {
    "c": "cpu",
    "m": "rss",
    "t": "time",
    "p": "pid",
    "s": "gpu-busy",
    "g": "vram",
    "u": "user",
}


def told(group: Group, keys: Sequence[Key] = KEYS) -> list[tuple[str, str]]:
    """A group for people: names of keys and what they do; those that join share a line and are told by titles.

    What has no key is not told.
    """
    lines: list[list[Key]] = []
    for row in keys:
        if row.group == group and row.keys:
            lines = [*lines[:-1], [*lines[-1], row]] if row.joins and lines else [*lines, [row]]
    return [
        (
            " ".join(name for row in line for name in row.names),
            line[0].help if len(line) == 1 else ", ".join(dict.fromkeys(row.title.lower() for row in line)),
        )
        for line in lines
    ]


def key(id: str) -> Key:
    """The key with this id; KeyError when there is none."""
    for row in KEYS:
        if row.id == id:
            return row
    raise KeyError(id)
