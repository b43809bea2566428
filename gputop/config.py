"""Settings: defaults, overruled by the file, it by GPUTOP_* variables, they by flags."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from gputop import toml, units
from gputop.declare import record

VERSION = 1  # of the file; a later one is not guessed at
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_NAMED = 3  # how many problems the warning names; the rest it counts
_LONGEST = 200

Read = Callable[[str], "bytes | None"]  # None: there is no such file; an exception says in one line why it is refused
Keys = tuple[tuple[str, tuple[str, ...]], ...]  # other keys, by the id of what they do
Thresholds = Mapping[str, Mapping[str, float]]  # the numbers of the rules
Adopt = Callable[[object], "tuple[Thresholds | None, list[str]]"]  # of the file of this name; what of it is not used
Remap = Callable[[object], "tuple[Mapping[str, tuple[str, ...]], list[str]]"]  # of a table; and what of it is not used


def _setting(
    default: Any, help: str, *, key: str = "", choices: str = "", low: float = 0, high: float = 0, later: bool = False
) -> Any:
    more = {"choices": tuple(choices.split()), "low": low, "high": high, "later": later}
    return field(default=default, metadata={"key": key, "help": help, **more})


@record(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the settings of this run come from, for who wants to change them."""

    path: str | None = None  # of the file, which need not be there
    trouble: str = ""  # why nothing of the file is used: then it is not written either
    overruled: Mapping[str, str] = field(default_factory=dict)  # by key: the flag or variable that overrules the file


@record(frozen=True, slots=True, kw_only=True)
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
    sort: str = _setting(
        "cpu",
        "the column by which processes are ordered",
        choices="pid user gpu gpu-busy vram cpu threads rss pss shm swap faults wait asked forced last-cpu affinity "
        "numa nice read write rchar syscr mean-read io state wchan files time",
    )
    reverse: bool = _setting(False, "order them the other way round")
    tree: bool = _setting(True, "show jobs as a tree; else a flat list")
    follow: bool = _setting(True, "keep the cursor on its process when rows change places")
    every_process: bool = _setting(False, "show also processes that have nothing to do with a GPU")

    keys: Keys = ()  # the table [keys]: what differs from the declared ones
    thresholds: Thresholds | None = field(
        default=None, compare=False
    )  # of the file that `thresholds` names; None: as shipped
    origin: Origin = field(default_factory=Origin, compare=False)


@record(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    field: str
    default: Any
    key: str  # in the file
    help: str
    choices: tuple[str, ...]
    low: float
    high: float
    later: bool  # a change means something at the next start only

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
        return f"{', '.join(words[:-1])} or {words[-1]}"

    def value(self, given: object) -> Any:
        """What was given, as a value of this setting; ValueError says what it may be."""
        found: Any
        if self.choices:
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


def plain(ascii: str, encoding: str | None) -> bool:
    """Whether a stream of this encoding gets ASCII only; `ascii` is the setting: auto, on or off."""
    return ascii == "on" or (ascii != "off" and not _is_utf8(encoding or ""))


def understood(encoding: str | None, environ: Mapping[str, str]) -> str:
    """The encoding of who reads a standard stream that Python writes in this one.

    In the C locale, and in one that is not installed, Python writes UTF-8 whoever reads (PEP 538, PEP 540). A locale
    that is named and does not say UTF-8 is believed; none named, as in most containers, says nothing.
    """
    unasked = sys.flags.utf8_mode and not (environ.get("PYTHONUTF8") or environ.get("PYTHONIOENCODING"))
    named = environ.get("LC_ALL") or environ.get("LANG") or "UTF-8"  # LC_CTYPE: Python has put its own there
    return "ascii" if unasked and not _is_utf8(named) else encoding or "ascii"


def _is_utf8(name: str) -> bool:
    """Whether an encoding, or the one that a locale names, is UTF-8."""
    return name.lower().replace("-", "").partition("@")[0].endswith("utf8")


def default_path(environ: Mapping[str, str]) -> str | None:
    """Where the file is looked for; None where neither XDG_CONFIG_HOME nor HOME says."""
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # as the XDG specification has it
        base = Path(environ.get("HOME", "")) / ".config"
    return str(base / "gputop" / "config.toml") if base.is_absolute() else None


def load(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    read: Read,
    remap: Remap = lambda _: ({}, []),
    adopt: Adopt = lambda _: (None, []),
) -> tuple[Settings, tuple[str, ...]]:
    """The settings, and at most one line that says what of the file and the environment is not used, and why.

    `path` is a file that a person named; the usual one need not be there. `remap` knows what keys there are,
    `adopt` the numbers of the rules.
    ValueError for a flag that cannot be.
    """
    at = path or default_path(environ)
    chosen: dict[str, Any] = {}
    problems: list[str] = []
    trouble = ""
    if at:
        try:
            table = _table(read(at), path is not None)
            other_keys, clashes = remap(table.pop("keys")) if "keys" in table else ({}, [])
            chosen["keys"] = tuple(other_keys.items())
            chosen["thresholds"], wrong = adopt(table.pop("thresholds")) if "thresholds" in table else (None, [])
            unused = _take(table, "{0.key}", chosen) + clashes + wrong
        except Exception as error:  # a refusal of the reader, or what a parser makes of bytes that are none of its kind
            trouble = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
            unused = [trouble]
        if unused:
            why = _brief(unused)
            problems.append(why if at in why else f"{why} ({at})")
    given = {setting.key: environ[setting.variable] for setting in SETTINGS if environ.get(setting.variable)}
    if unused := _take(given, "{0.variable}", chosen):
        problems.append(_brief(unused))
    for problem in _take(flags, "--{0.key}", chosen):
        raise ValueError(problem)
    by_flags = {key: f"--no-{key}" if value is False else f"--{key}" for key, value in flags.items()}
    by_variables = {key: BY_KEY[key].variable for key in given}
    origin = Origin(path=at, trouble=trouble, overruled={**by_variables, **by_flags})
    return Settings(**chosen, origin=origin), (_warning(problems),) if problems else ()


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
        write(path, toml.edited(raw or toml.BEGIN.encode(), setting.key, value))


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


def _warning(problems: list[str]) -> str:
    line = f"settings not used: {'; '.join(problems)}; see `gputop docs configuration`"
    return line if line.isprintable() else ascii(line)


def _choice(given: object, choices: tuple[str, ...]) -> str | None:
    # in TOML one writes on and off as true and false
    word = ("on" if given else "off") if isinstance(given, bool) else given
    return word if isinstance(word, str) and word in choices else None


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
