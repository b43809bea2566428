"""Settings: defaults, overruled by the file, it by GPUTOP_* variables, they by flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from gputop import toml, units
from gputop.frozen_dataclass import frozen_dataclass

VERSION = 1  # of the file; a later one is not guessed at
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_NAMED = 3  # how many problems the warning names; the rest it counts
_LONGEST = 200
_MENTIONS = re.compile(rb"(?:^|[\r\n])[ \t]*[\"']?readonly[\"']?[ \t]*=")  # and is no comment
_MARKS = bytes.maketrans(b"", b""), b"\0\xef\xbb\xbf\xfe\xff"  # zeros of UTF-16, and what stands before a text
_SEE = "see `gputop docs configuration`"

Read = Callable[[str], "bytes | None"]  # None: there is no such file; an exception says in one line why it is refused
Choices = Callable[[], tuple[str, ...]]  # the words that a setting may be
Keys = tuple[tuple[str, tuple[str, ...]], ...]  # other keys, by the id of what they do
Thresholds = Mapping[str, Mapping[str, float]]  # the numbers of the rules
Adopt = Callable[[object], "tuple[Thresholds | None, list[str]]"]  # of the file of this name; what of it is not used
# of a table: the keys, what of it is not used, and who has lost a key to another
Remap = Callable[[object], "tuple[Mapping[str, tuple[str, ...]], list[str], list[str]]"]


FIRST, LAST = "pid", "command"  # columns that are always there, and where


def _columns() -> tuple[str, ...]:
    """Of the table of processes, by their ids; the last one cannot be chosen."""
    from gputop.ui.table.columns import SORTABLE  # late: few commands look at the table

    return tuple(column.id for column in SORTABLE)


def _setting(
    default: Any, help: str, *, key: str = "", choices: str | Choices = "", low: float = 0, high: float = 0,
    later: bool = False, several: bool = False,
) -> Any:  # fmt: skip
    choose: Choices = partial(tuple, choices.split()) if isinstance(choices, str) else choices
    more = {"choose": choose, "low": low, "high": high, "later": later, "several": several}
    return field(default=default, metadata={"key": key, "help": help, **more})


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the settings of this run come from, for who wants to change them."""

    path: str | None = None  # of the file, which need not be there
    trouble: str = ""  # why nothing of the file is used: then it is not written either
    unused: str = ""  # what of it and of the environment is not used, as one line
    given: frozenset[str] = frozenset()  # keys that somebody chose, wherever
    overruled: Mapping[str, str] = field(default_factory=dict)  # by key: the flag or variable that overrules the file


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was chosen. The text beside each setting is its page in the manual."""

    interval_s: float = _setting(1.0, "time between two looks", key="interval", low=0.25, high=3600)
    nvml: bool = _setting(
        True, "ask the NVIDIA driver; without it no GPU is shown, and nothing touches the driver", later=True
    )
    gpm: str = _setting(
        "auto", "read SM, tensor and memory activity (Hopper and newer)", choices="auto on off", later=True
    )
    readonly: bool = _setting(False, "do nothing that changes a process or writes a file", later=True)
    theme: str = _setting("auto", "colours; auto is dark, or the terminal's own 16", choices="auto dark light terminal")
    ascii: str = _setting("auto", "draw with ASCII only; auto does where there is no UTF-8", choices="auto on off")
    mouse: bool = _setting(True, "clicks and wheel; without, the terminal selects text as usual")
    alert: str = _setting(
        "off", "at a new warning ring, or tell the desktop by OSC 9 or OSC 777", choices="off bell osc9 osc777"
    )
    density: str = _setting("auto", "how much room each GPU gets; auto fits them all", choices="auto card row cell")
    columns: tuple[str, ...] = _setting(
        (), "the columns of the main view, from the left; PID is always first, COMMAND last", choices=_columns,
        several=True,
    )  # fmt: skip
    sort: str = _setting("cpu", "the column by which processes are ordered", choices=_columns)
    reverse: bool = _setting(False, "order them the other way round")
    tree: bool = _setting(True, "show jobs as a tree; else a flat list")
    follow: bool = _setting(True, "keep the cursor on its process when rows change places")
    every_process: bool = _setting(False, "show also processes that have nothing to do with a GPU")
    remember: bool = _setting(
        True, "keep findings about your jobs for 30 days, and measure at the next run what a fix has gained", later=True
    )

    keys: Keys = ()  # the table [keys]: what differs from the declared ones
    thresholds: Thresholds | None = field(
        default=None, compare=False
    )  # of the file that `thresholds` names; None: as shipped
    origin: Origin = field(default_factory=Origin, compare=False)


@frozen_dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    field: str
    default: Any
    key: str  # in the file
    help: str
    choose: Choices
    low: float
    high: float
    later: bool  # a change means something at the next start only
    several: bool  # some of the choices, in an order; none of them: auto

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be; none: it is no word."""
        return self.choose()

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return f"GPUTOP_{self.key.upper()}"

    @property
    def allowed(self) -> str:
        """What it may be, in words."""
        if isinstance(self.default, float):
            return f"{self.low:g} to {self.high:g} seconds"
        words = self.choices or ("true", "false")
        if self.several:
            return f"auto, or a list of some of {', '.join(words)}"
        return f"{', '.join(words[:-1])} or {words[-1]}"

    def value(self, given: object) -> Any:
        """What was given, as a value of this setting; ValueError says what it may be."""
        found: Any
        if self.several:
            found = _several(given, self.choices)
        elif self.choices:
            found = _choice(given, self.choices)
        elif isinstance(self.default, bool):
            found = _truth(given)
        else:
            found = _seconds(given, self.low, self.high)
        if found is None:
            raise ValueError(f"must be {self.allowed}")
        return found


SETTINGS = tuple(
    Setting(f.name, f.default, **{**f.metadata, "key": f.metadata["key"] or f.name})
    for f in fields(Settings)
    if f.metadata
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
FLAGS = frozenset(BY_KEY)  # what the command line may overrule, by the names it has there


def default_path(environ: Mapping[str, str]) -> str | None:
    """Where the file is looked for; None where neither XDG_CONFIG_HOME nor HOME says."""
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # as the XDG specification has it
        home = Path(environ.get("HOME", ""))
        if _no_folder(home):  # as services and containers have it: HOME=/dev/null
            return None
        base = home / ".config"
    return str(base / "gputop" / "config.toml") if base.is_absolute() else None


def _no_folder(place: Path) -> bool:
    try:
        return place.exists() and not place.is_dir()
    except OSError:  # a name that is too long, or below a folder that we may not read
        return False


def load(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    read: Read,
    remap: Remap = lambda _: ({}, [], []),
    adopt: Adopt = lambda _: (None, []),
) -> tuple[Settings, tuple[str, ...]]:
    """The settings, and a line for what of the file and the environment is not used and why, one for keys given away.

    `path` is a file that a person named; the usual one need not be there. `remap` knows what keys there are,
    `adopt` the numbers of the rules.
    ValueError for a flag that cannot be, and where it cannot be told whether nothing may be changed: `readonly`.
    """
    at = path or default_path(environ)
    found = _of_file(at, path is not None, read, remap, adopt) if at else _Found()
    chosen, problems = found.chosen, found.problems(at)
    given = {setting.key: environ[setting.variable] for setting in SETTINGS if environ.get(setting.variable)}
    if wrong := _take(given, "{0.variable}", chosen):
        problems.append(_brief(wrong))
    doubt = _doubt(given, BY_KEY["readonly"].variable) if "readonly" in given else found.doubt
    for problem in _take(flags, "--{0.key}", chosen):
        raise ValueError(problem)
    if doubt and "readonly" not in flags:
        raise ValueError(_plain(f"not started, as it may have to be read-only: {doubt}; mend that, or say --readonly"))
    by_flags = {key: f"--no-{key}" if value is False else f"--{key}" for key, value in flags.items()}
    by_variables = {key: BY_KEY[key].variable for key in given}
    unused = _plain(f"settings not used: {'; '.join(problems)}; {_SEE}") if problems else ""
    moved = _plain(f"keys given away: {_brief(found.clashes)}; `gputop keys` has all of them") if found.clashes else ""
    origin = Origin(
        path=at,
        trouble=found.trouble,
        unused=unused,
        given=frozenset(setting.key for setting in SETTINGS if setting.field in chosen),
        overruled={**by_variables, **by_flags},
    )
    return Settings(**chosen, origin=origin), tuple(filter(None, (unused, moved)))


@dataclass(slots=True)
class _Found:
    """What the file says: settings, what of it is not used, keys given away."""

    chosen: dict[str, Any] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    trouble: str = ""
    doubt: str = ""  # why it is not known whether it wants nothing to be changed

    def problems(self, at: str | None) -> list[str]:
        """What is not used, with the file's name once."""
        why = _brief(self.unused)
        return [why if at is None or at in why else f"{why} ({at})"] if self.unused else []


def _of_file(at: str, named: bool, read: Read, remap: Remap, adopt: Adopt) -> _Found:
    found, raw = _Found(), None
    table: dict[str, object] = {}
    try:
        content = read(at)
        raw = content or b""
        table = _table(content, named)
        keys, not_keys, found.clashes = remap(table.pop("keys")) if "keys" in table else ({}, [], [])
        found.chosen["keys"] = tuple(keys.items())
        numbers, not_numbers = adopt(table.pop("thresholds")) if "thresholds" in table else (None, [])
        found.chosen["thresholds"] = numbers
        found.unused = _take(table, "{0.key}", found.chosen) + not_keys + not_numbers
    except Exception as error:  # a refusal of the reader, or what a parser makes of bytes that are none of its kind
        found.trouble = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        found.unused = [found.trouble]
    if raw is None:  # it is there, and was not read: who may only look must not get hands by that
        found.chosen["readonly"] = True
        found.unused = [f"{found.trouble}; as it may say readonly, nothing is changed without GPUTOP_READONLY=off"]
    elif "readonly" not in found.chosen and ("readonly" in table or _MENTIONS.search(raw.translate(*_MARKS))):
        why = found.trouble or _doubt(table, "readonly") or "readonly stands below a [table], and belongs above all"
        found.doubt = why if at in why else f"{why} ({at})"
    return found


def _doubt(given: Mapping[str, object], called: str) -> str:
    """Why what was given for `readonly` is not understood; empty where it is, or where nothing was given."""
    setting = BY_KEY["readonly"]
    try:
        setting.value(given.get("readonly", setting.default))
    except ValueError as error:
        return f"{called} {error}"
    return ""


def store(path: str, setting: Setting, value: Any, read: Read, write: Callable[[str, bytes], None]) -> None:
    """Put one setting into the file, whatever else it says; an exception in one line where that cannot be.

    A default is only written over something else.
    """
    raw = read(path)
    table = _table(raw, wanted=False)
    try:
        said = setting.value(table[setting.key]) if setting.key in table else setting.default
    except ValueError:
        said = None
    if said != value:
        write(path, toml.edited(raw or toml.BEGIN.encode(), setting.key, spelled(value)))


def spelled(value: Any) -> Any:
    """A value as it stands in the file."""
    return (list(value) or "auto") if isinstance(value, tuple) else value


def _take(given: Mapping[str, object], called: str, chosen: dict[str, Any]) -> list[str]:
    """Put what is a setting into `chosen`; what is none is returned, in words."""
    problems = []
    for key, value in given.items():
        setting = BY_KEY.get(key)
        if setting is None:
            problems.append(f"{key[:40]!a} is no setting")
            continue
        try:
            chosen[setting.field] = setting.value(value)
        except ValueError as error:
            problems.append(f"{called.format(setting)} {error}")
    return problems


def _table(raw: bytes | None, wanted: bool) -> dict[str, object]:
    """What a file says; ValueError when it cannot be used."""
    if raw is None:
        if wanted:
            raise ValueError("there is no such file")
        return {}
    table = toml.parse(raw)
    version = table.pop("version", VERSION)
    if version != VERSION:
        raise ValueError(f"it is of version {version!a:.20}, this gputop reads {VERSION}")
    return table


def _brief(problems: list[str]) -> str:
    more = len(problems) - _NAMED
    return "; ".join(problems[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _plain(line: str) -> str:
    return line if line.isprintable() else ascii(line)


def _choice(given: object, choices: tuple[str, ...]) -> str | None:
    # in TOML one writes on and off as true and false
    word = ("on" if given else "off") if isinstance(given, bool) else given
    return word if isinstance(word, str) and word in choices else None


def _several(given: object, choices: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names in an order, each once, with what is always there; none for auto."""
    words = given.replace(",", " ").split() if isinstance(given, str) else given
    if words == ["auto"]:
        return ()
    if not isinstance(words, (list, tuple)) or not all(word in (*choices, LAST) for word in words):
        return None
    others = [word for word in dict.fromkeys(words) if word not in (FIRST, LAST)]
    return (FIRST, *others) if words else ()


def _truth(given: object) -> bool | None:
    return _WORDS.get(given.strip().lower()) if isinstance(given, str) else given if isinstance(given, bool) else None


def _seconds(given: object, low: float, high: float) -> float | None:
    try:
        seconds = units.duration(given) if isinstance(given, str) else given
    except ValueError:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return None
    return float(seconds) if low <= seconds <= high else None
