"""Settings: defaults, overridden by the file, GPUTOP_* variables and flags, in this order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gputop import toml, units
from gputop.frozen_dataclass import frozen_dataclass
from gputop.suggest import nearest, unknown_entry

VERSION = 1  # of the file; later ones are not interpreted
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_NAMED = 3  # problems named in the warning; the rest are counted
_LONGEST = 200
_MENTIONS = re.compile(rb"(?:^|[\r\n])[ \t]*[\"']?readonly[\"']?[ \t]*=")  # and is no comment
_MARKS = bytes.maketrans(b"", b""), b"\0\xef\xbb\xbf\xfe\xff"  # zeros of UTF-16, and byte order marks
_SEE = "see `gputop docs configuration`"

Read = Callable[[str], "bytes | None"]  # None: there is no such file; an exception says in one line why it is refused
Choices = Callable[[], tuple[str, ...]]  # the words that a setting may be
Keys = tuple[tuple[str, tuple[str, ...]], ...]  # remapped keys by action id
Groups = tuple[tuple[str, tuple[str, ...]], ...]  # hosts by the name of their group
Thresholds = Mapping[str, Mapping[str, float]]  # the numbers of the rules
Adopt = Callable[[object], "tuple[Thresholds | None, list[str]]"]  # of the file of this name; unused entries
Arrange = Callable[[object, object], "tuple[object, list[str]]"]  # of the tables alerts and receivers; unused entries
# of a table: the keys, unused entries, and actions that lost a key to another
Remap = Callable[[object], "tuple[Mapping[str, tuple[str, ...]], list[str], list[str]]"]


_TABLES = ("keys", "hosts", "thresholds", "alerts", "receivers")  # beside the settings
FIRST, LAST = "pid", "command"  # columns that are always shown, with their positions


def _columns() -> tuple[str, ...]:
    """Columns of the process table by id; the last one cannot be chosen."""
    from gputop.columns import SORTABLE  # late: few commands look at the table

    return tuple(column.id for column in SORTABLE)


def _setting(
    default: Any, help: str, *, key: str = "", choices: str | Choices = "", low: float = 0, high: float = 0,
    later: bool = False, several: bool = False,
) -> Any:  # fmt: skip
    choose: Choices = partial(tuple, choices.split()) if isinstance(choices, str) else choices
    more = {"choose": choose, "low": low, "high": high, "later": later, "several": several}
    return field(default=default, metadata={"key": key, "help": help, **more})


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOrigin:
    """Where the settings of this run come from."""

    path: str | None = None  # of the file, which may be missing
    trouble: str = ""  # why the file is not used: then it is not written either
    unused: str = ""  # unused entries of file and environment, in one line
    given: frozenset[str] = frozenset()  # keys that were set anywhere
    overruled: Mapping[str, str] = field(default_factory=dict)  # by key: the flag or variable that overrides the file


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings in effect. The text beside each setting is its page in the manual."""

    interval_s: float = _setting(1.0, "refresh interval: time between two samples", key="interval", low=0.25, high=3600)
    nvml: bool = _setting(
        True, "query the NVIDIA driver; off: no GPU is shown and the driver is never called", later=True
    )
    gpm: str = _setting(
        "auto", "read GPM metrics: SM, tensor and memory activity (Hopper and newer)", choices="auto on off", later=True
    )
    readonly: bool = _setting(False, "change no process and write no file", later=True)
    theme: str = _setting(
        "auto", "colors; auto: dark, or the 16 colors of the terminal", choices="auto dark light terminal"
    )
    ascii: str = _setting(
        "auto", "draw with ASCII characters only; auto: if the terminal has no UTF-8", choices="auto on off"
    )
    mouse: bool = _setting(True, "clicks and mouse wheel; off: the terminal selects text as usual")
    alert: str = _setting(
        "off",
        "on a new warning: ring the bell, or notify the desktop with OSC 9 or OSC 777",
        choices="off bell osc9 osc777",
    )
    density: str = _setting(
        "auto", "space for each GPU; auto: as much as fits for all of them", choices="auto card row cell"
    )
    columns: tuple[str, ...] = _setting(
        (), "columns of the process table, left to right; PID is always first, COMMAND last", choices=_columns,
        several=True,
    )  # fmt: skip
    sort: str = _setting("cpu", "column to sort processes by", choices=_columns)
    reverse: bool = _setting(False, "reverse the sort order")
    tree: bool = _setting(True, "show jobs as a tree; off: a flat list")
    follow: bool = _setting(True, "keep the cursor on its process when rows move")
    every_process: bool = _setting(False, "also show processes that belong to no GPU job")
    remember: bool = _setting(
        True, "store findings on your jobs for 30 days, and measure the gain of a fix at the next run", later=True
    )

    alerts: object = field(default=None, compare=False)  # the tables [alerts.NAME] and [receivers.NAME]
    keys: Keys = ()  # the table [keys]: differences from the declared ones
    hosts: Groups = ()  # the table [hosts]
    thresholds: Thresholds | None = field(
        default=None, compare=False
    )  # of the file named by `thresholds`; None: as shipped
    origin: SettingsOrigin = field(default_factory=SettingsOrigin, compare=False)


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
    later: bool  # a change takes effect at the next start
    several: bool  # several of the choices, in order; empty: auto

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed words; empty if it is not a word."""
        return self.choose()

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return f"GPUTOP_{self.key.upper()}"

    @property
    def allowed(self) -> str:
        """Its allowed values, as text."""
        if isinstance(self.default, float):
            return f"{self.low:g} to {self.high:g} seconds"
        words = self.choices or ("true", "false")
        if self.several:
            return f"auto, or a list of {', '.join(words)}"
        return f"{', '.join(words[:-1])} or {words[-1]}"

    def value(self, given: object) -> Any:
        """A given value converted to this setting's type; ValueError lists the allowed ones."""
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
            raise ValueError(f"must be {self.allowed}{self._hint(given)}")
        return found

    def _hint(self, given: object) -> str:
        """The nearest allowed word to a misspelt one."""
        if self.key == "alert" and isinstance(given, (list, dict)):  # one name cannot be a word and a table
            return " (a table is [alerts.NAME])"
        words = given.replace(",", " ").split() if isinstance(given, str) else given if isinstance(given, list) else ()
        wrong = [word for word in words if isinstance(word, str) and word not in (*self.choices, LAST)]
        near = nearest(wrong[0], self.choices) if wrong else None
        return f" (did you mean {near}?)" if near else ""


SETTINGS = tuple(
    Setting(f.name, f.default, **{**f.metadata, "key": f.metadata["key"] or f.name})
    for f in fields(Settings)
    if f.metadata
)
BY_KEY = {setting.key: setting for setting in SETTINGS}
FLAGS = frozenset(BY_KEY)  # settings the command line may override, by their names there


def default_path(environ: Mapping[str, str]) -> str | None:
    """Default location of the file; None without XDG_CONFIG_HOME and HOME."""
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # per the XDG specification
        home = Path(environ.get("HOME", ""))
        if _no_folder(home):  # services and containers: HOME=/dev/null
            return None
        base = home / ".config"
    return str(base / "gputop" / "config.toml") if base.is_absolute() else None


def _no_folder(place: Path) -> bool:
    try:
        return place.exists() and not place.is_dir()
    except OSError:  # an overlong name, or one below an unreadable folder
        return False


def load(
    path: str | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    read: Read,
    remap: Remap = lambda _: ({}, [], []),
    adopt: Adopt = lambda _: (None, []),
    arrange: Arrange = lambda *_: (None, []),
) -> tuple[Settings, tuple[str, ...]]:
    """The settings, and a line for each unused entry of file and environment, and for each reassigned key.

    `path` is a file named by the user; the default one may be missing. `remap` validates keys, `adopt` the numbers of
    the rules, `arrange` the alerts. ValueError for an invalid flag, and if `readonly` cannot be determined.
    """
    at = path or default_path(environ)
    found = _of_file(at, path is not None, read, _Tables(remap, adopt, arrange)) if at else _FileContents()
    chosen, problems = found.chosen, found.problems(at)
    given = {setting.key: environ[setting.variable] for setting in SETTINGS if environ.get(setting.variable)}
    if wrong := _take(given, "{0.variable}", chosen):
        problems.append(_brief(wrong))
    doubt = _doubt(given, BY_KEY["readonly"].variable) if "readonly" in given else found.doubt
    for problem in _take(flags, "--{0.key}", chosen):
        raise ValueError(problem)
    if doubt and "readonly" not in flags:
        raise ValueError(_plain(f"not started, as readonly may be set: {doubt}; fix that, or use --readonly"))
    by_flags = {key: f"--no-{key}" if value is False else f"--{key}" for key, value in flags.items()}
    by_variables = {key: BY_KEY[key].variable for key in given}
    unused = _plain(f"settings ignored: {'; '.join(problems)}; {_SEE}") if problems else ""
    moved = _plain(f"keys reassigned: {_brief(found.clashes)}; `gputop keys` lists them all") if found.clashes else ""
    origin = SettingsOrigin(
        path=at,
        trouble=found.trouble,
        unused=unused,
        given=frozenset(setting.key for setting in SETTINGS if setting.field in chosen),
        overruled={**by_variables, **by_flags},
    )
    return Settings(**chosen, origin=origin), tuple(filter(None, (unused, moved)))


class _Tables(NamedTuple):
    """What takes the tables of the file, which are settings of other packages."""

    remap: Remap
    adopt: Adopt
    arrange: Arrange

    def take(self, table: dict[str, object], found: _FileContents) -> list[str]:
        """Move the tables from `table` to the settings; a text for each unused entry."""
        unused: list[str] = []
        if "keys" in table:
            keys, unused, found.clashes = self.remap(table.pop("keys"))
            found.chosen["keys"] = tuple(keys.items())
        found.chosen["hosts"], not_hosts = _groups(table.pop("hosts", {}))
        unused += not_hosts
        if "thresholds" in table:
            found.chosen["thresholds"], not_numbers = self.adopt(table.pop("thresholds"))
            unused += not_numbers
        if "alerts" in table or "receivers" in table:
            found.chosen["alerts"], not_alerts = self.arrange(table.pop("alerts", None), table.pop("receivers", None))
            unused += not_alerts
        return unused


@dataclass(slots=True)
class _FileContents:
    """Contents of the file: settings, unused entries, reassigned keys."""

    chosen: dict[str, Any] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)
    clashes: list[str] = field(default_factory=list)
    trouble: str = ""
    doubt: str = ""  # why it is unknown whether it sets `readonly`

    def problems(self, at: str | None) -> list[str]:
        """Unused entries, with the file's name once."""
        why = _brief(self.unused)
        return [why if at is None or at in why else f"{why} ({at})"] if self.unused else []


def _of_file(at: str, named: bool, read: Read, tables: _Tables) -> _FileContents:
    found, raw = _FileContents(), None
    table: dict[str, object] = {}
    try:
        content = read(at)
        raw = content or b""
        table = _table(content, named)
        unused = tables.take(table, found)
        found.unused = _take(table, "{0.key}", found.chosen) + unused
    except Exception as error:  # a refusal of the reader, or a parser's error on invalid bytes
        found.trouble = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        found.unused = [found.trouble]
    if raw is None:  # it exists but was not read: that must not enable actions it may forbid
        found.chosen["readonly"] = True
        found.unused = [f"{found.trouble}; readonly is assumed, as the file may set it: GPUTOP_READONLY=off overrides"]
    elif "readonly" not in found.chosen and ("readonly" in table or _MENTIONS.search(raw.translate(*_MARKS))):
        why = found.trouble or _doubt(table, "readonly") or "readonly is inside a [table]: move it above the first one"
        found.doubt = why if at in why else f"{why} ({at})"
    return found


def _groups(table: object) -> tuple[Groups, list[str]]:
    """The groups of hosts, and a line for each entry that is not a list of names."""
    if not isinstance(table, dict):
        return (), ["hosts must be a table: [hosts]"]
    good: list[tuple[str, tuple[str, ...]]] = []
    problems = []
    for name, hosts in table.items():
        if isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts):
            good.append((name, tuple(hosts)))
        else:
            problems.append(f"group {name} of [hosts] must be a list of host names")
    return tuple(good), problems


def _doubt(given: Mapping[str, object], called: str) -> str:
    """Why the value of `readonly` is not understood; empty if it is, or if there is none."""
    setting = BY_KEY["readonly"]
    try:
        setting.value(given.get("readonly", setting.default))
    except ValueError as error:
        return f"{called} {error}"
    return ""


def store(path: str, setting: Setting, value: Any, read: Read, write: Callable[[str, bytes], None]) -> None:
    """Write one setting into the file and keep everything else; raises an exception with one line on failure.

    A default is written only over an existing value.
    """
    raw = read(path)
    table = _table(raw, wanted=False)
    try:
        said = setting.value(table[setting.key]) if setting.key in table else setting.default
    except ValueError:
        said = None
    if said != value:
        write(path, toml.set_value(raw or toml.BEGIN.encode(), setting.key, spelled(value)))


def spelled(value: Any) -> Any:
    """A value as written in the file."""
    return (list(value) or "auto") if isinstance(value, tuple) else value


def _take(given: Mapping[str, object], called: str, chosen: dict[str, Any]) -> list[str]:
    """Add valid settings to `chosen`; return a text for each invalid entry."""
    problems = []
    for key, value in given.items():
        setting = BY_KEY.get(key)
        if setting is None:
            problems.append(unknown_entry("setting", key, (*BY_KEY, *_TABLES)))
            continue
        try:
            chosen[setting.field] = setting.value(value)
        except ValueError as error:
            problems.append(f"{called.format(setting)} {error}")
    return problems


def _table(raw: bytes | None, wanted: bool) -> dict[str, object]:
    """The contents of a file; ValueError if unusable."""
    if raw is None:
        if wanted:
            raise ValueError("file not found")
        return {}
    table = toml.parse(raw)
    version = table.pop("version", VERSION)
    if version != VERSION:
        raise ValueError(f"its version is {version!a:.20}, but this gputop reads version {VERSION}")
    return table


def _brief(problems: list[str]) -> str:
    more = len(problems) - _NAMED
    return "; ".join(problems[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _plain(line: str) -> str:
    return line if line.isprintable() else ascii(line)


def _choice(given: object, choices: tuple[str, ...]) -> str | None:
    # in TOML on and off are true and false
    word = ("on" if given else "off") if isinstance(given, bool) else given
    return word if isinstance(word, str) and word in choices else None


def _several(given: object, choices: tuple[str, ...]) -> tuple[str, ...] | None:
    """Names in order, each once, with the mandatory ones; empty for auto."""
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
