"""Which names say that their value is a secret: of an option, of a variable, and before `=` or `:` in any text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

Place = Literal["option", "variable", "text"]

_WORD = re.compile(r"[a-z]+")
_NOTHING: frozenset[str] = frozenset()
_TOKENS = """
    pad eos bos eot eod unk mask cls sep stop special start end image video audio placeholder initializer
    per max min num first last next
"""
_KEYS = """
    sort group primary foreign public cache state label image video audio text input output data dataset prompt
    response target source feature hash partition lookup row column json dict metric monitor eval reward loss
    score batch sample index order join unique shuffle seed config name field query value message messages
    content caption question answer id map time object num per head model param weight layer train val file
    past next last first mixed cross self sub missing unexpected
    hot mon don tur hoc joc lac whis
"""
_PASSES = "by com encom tres sur over under low high band all forward backward single multi num"
# how a name ends, also without anything between the words, and what before that makes it something else
_ENDINGS = {
    **dict.fromkeys(("password", "passwd", "passphrase", "passcode", "secret", "credential", "credentials"), _NOTHING),
    "token": frozenset(_TOKENS.split()),
    "key": frozenset(_KEYS.split()),
    "pass": frozenset(_PASSES.split()),
    "pwd": frozenset({"old"}),
    "pw": _NOTHING,
}
# nearly every key or token in a variable is some service's: few words make it something else
_NOBODYS = frozenset({"public", "foreign", "primary", "sort", "pad", "eos", "bos", "hot", "mon", "don", "tur"})
_OF_VARIABLES = {**_ENDINGS, **{ending: _ENDINGS[ending] & _NOBODYS for ending in ("key", "token")}}
# words of their own that end a name
_WORDS = frozenset(
    {
        "auth",
        "cred",
        "creds",
        "cookie",
        "webhook",
        "dsn",
        "jwt",
        "pat",
        "otp",
        "pin",
        "bearer",
        "sessionid",
        "connectionstring",
    }
)
_PAIRS = frozenset(
    {("session", "id"), ("connection", "string"), ("webhook", "url"), ("amz", "signature"), ("goog", "signature")}
)
# anywhere in the name of a variable, which is seldom a number to train with
_INSIDE = re.compile(r"pass(?:word|wd|phrase|code)|token(?!i[sz])|secret|credential|private|cookie|webhook")
# what says nothing alone: in a text they are words of code and of sentences
_ALONE: dict[Place, frozenset[str]] = {
    "option": _NOTHING,
    "variable": frozenset({"pwd"}),
    "text": frozenset({"key", "pass", "pw", "pwd", "pat", "otp", "pin"}),
}
_COUNTED = frozenset({"token", "key", "auth", "id"})  # words that also stand for what has numbers


class _Client(NamedTuple):
    """A program and its flags of one letter whose value is a secret: in the next word, glued to the flag."""

    names: str
    apart: str = ""
    glued: str = ""


# each from the manual page of the program. Of mysql, 7z and rar `-p` alone asks for the password
_CLIENTS = (
    _Client(r"mysql(?:dump|admin|import|show|check|slap|binlog|pump|sh|_\w+)?|mariadb(?:-[\w-]+)?", "", "p"),
    _Client(r"7z[arz]?|(?:un)?rar", "", "p"),
    _Client(r"sshpass|mongo(?:sh|dump|restore|import|export|stat|top|files)?", "p", "p"),
    _Client(r"cqlsh|cypher-shell|cbq|cbc|arangosh|beeline|rabbitmqadmin|rdesktop|useradd|usermod", "p", "p"),
    _Client(r"sqlcmd|bcp|tsql|isql|ipmitool|mosquitto_(?:pub|sub|rr)|zip(?:cloak|note)?|unzip", "P", "P"),
    _Client(r"(?:redis|valkey|keydb)-cli", "a", ""),
    _Client(r"ldap(?:search|add|modify|delete|modrdn|compare|exop|whoami)|kadmin(?:\.local)?", "w", "w"),
    _Client(r"ldappasswd", "was", "was"),
    _Client(r"curl|lftp", "uU", "uU"),
    _Client(r"smbclient|smbget|smbcacls|rpcclient|winexe|net", "U", "U"),
    _Client(r"snmp(?:walk|get|getnext|bulkget|bulkwalk|set|table|trap|inform)", "AXc", ""),
    _Client(r"openssl", "kK", ""),
    _Client(r"influx", "pt", ""),
    _Client(r"login", "p", "p"),  # of docker, podman, helm, oc, az, cf: elsewhere in these it is a port
)
_CLIENT = re.compile("|".join(f"(?P<c{number}>{one.names})" for number, one in enumerate(_CLIENTS)))
# programs of which -p and -P are known to be something else: a port, a partition, a folder, a pid, a pattern
_OTHERS = re.compile(
    r"ssh|scp|sftp|rsync|mosh|autossh|ssh-\w+|mkdir|cp|mv|tar|install|touch|ls|find|read|declare|export|trap|type"
    r"|ps|top|htop|pgrep|pkill|kill|lsof|strace|ltrace|gdb|perf|py-spy|taskset|chrt|renice|ionice|prlimit|pidstat|nsenter"
    r"|srun|sbatch|salloc|squeue|sinfo|scancel|sacct|scontrol|sstat|qsub|qstat|bsub|mpirun|mpiexec"
    r"|docker|docker-compose|podman|nerdctl|kubectl|helm|git|make|cmake|ninja|cargo|npx|npm|pnpm|yarn|pip\d*|uv|conda|mamba"
    r"|pytest|papermill|xargs|parallel|grep|sed|less|diff|patch|nmap|nc|ncat|wget|df|du|restic|tmux|screen|vim?|nvim"
    r"|gcc|g\+\+|clang|nvcc|ffmpeg|java|javac|claude|codex|llama-cli|ollama|fio|iperf3?|nsys|ncu|gputop|uvicorn|gunicorn"
)
_ANEW = re.compile(  # interpreters and what starts others: what follows is a program of its own
    r"python[\d.]*|pypy\d*|bash|sh|zsh|dash|node|perl|ruby|torchrun|accelerate|deepspeed|sudo|env|nohup|nice|time|exec|timeout"
)
_JOINTS = (";", "|", "&")  # where a shell begins another command
_USERS = {"-u", "-U", "--user", "--proxy-user", "--username"}
_USER_AND = re.compile(r"[\w.@\\/-]+[:%](?P<value>.*[^\d].*)", re.DOTALL)  # numbers are a user and his group
_PORTS = re.compile(r"[\d.,:/x%*+-]+(?:[smhdkKMGTB]{0,2}|/(?:tcp|udp))|0x[0-9a-f]+|\d+e-?\d+|[\w.-]+:\d+(?::\d+)?")
_PATHS = re.compile(
    r"(?:\.{0,2}/|~|\$|%).*|[a-z_./-]*/[a-z_./-]*"
    r"|[\w.-]+\.(?:ya?ml|json|toml|cfg|conf|ini|txt|csv|py|sh|pt|pth|ckpt|safetensors|onnx|xml|log|zip|gz|parquet|npz?)",
    re.DOTALL,
)
_FLAG_ALONE = re.compile(r"-[a-zA-Z]*([a-zA-Z])")  # -sSu as well

_SWITCH = re.compile(r"[01]|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_NUMBER = re.compile(r"(?=.{1,7}\Z)-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def is_secret(name: str, value: str, place: Place) -> bool:
    """Whether the value that stands under a name is to be masked, by the name alone: no number, no yes or no."""
    said, value = _said(name, place), value.strip(",;)]}")
    if not said or _SWITCH.fullmatch(value):
        return False
    if said == "pwd" and value.startswith("/"):  # what containers call the folder they work in
        return False
    return not (said in _COUNTED and _NUMBER.fullmatch(value))


def lettered(words: Iterable[str]) -> Iterator[int | None]:
    """For each word where a secret begins that a flag of one letter gives, as `mysql -pVALUE`; None without one.

    Of a program that nobody knows, -p and -P give a secret, too, unless the value is a number, a port or a path: it
    may be a password, and masking what is none costs a reader little. So does what follows the name in -u NAME:VALUE.
    """
    client: _Client | None = None
    known, before = False, ""
    for word in words:
        name = word.rpartition("/")[2].strip("\"'`($")
        start = _of_client(client, before, word) if client else None if known else _of_anybody(before, word)
        yield start
        if start is None and not before.startswith("--"):  # --name mysql
            if found := _CLIENT.fullmatch(name):
                client = _CLIENTS[int(str(found.lastgroup)[1:])]
            elif _ANEW.fullmatch(name) and client is None:
                known = False
            elif _OTHERS.fullmatch(name) and not (client and before in ("-h", "-H")):
                client, known = (client, True) if client and client.names == "login" else (None, True)
        if word.endswith(_JOINTS):
            client, known = None, False
        before = word


def _of_client(client: _Client, before: str, word: str) -> int | None:
    alone = _FLAG_ALONE.fullmatch(before)
    if alone and alone[1] in client.apart and (len(before) == 2 or client.apart == "uU"):
        return _after_user(word) if alone[1] in "uU" else 0
    if before in ("--user", "--proxy-user") and "u" in client.apart:
        return _after_user(word)
    if len(word) > 2 and word[0] == "-" and word[1] in client.glued:
        return 2 + _after_user(word[2:]) if word[1] in "uU" else 2
    return None


def _after_user(value: str) -> int:
    """Where the password begins in what follows -u: a value that names no user may be a token."""
    found = re.match(r"[^:%,]+[:%,](?=.)", value)
    return found.end() if found else 0


def _of_anybody(before: str, word: str) -> int | None:
    if before in ("-p", "-P"):
        plain = word.strip("\"'`,;)")
        other = not plain or plain[0] == "-" or "=" in plain or _PORTS.fullmatch(plain) or _PATHS.fullmatch(plain)
        return None if other or _SWITCH.fullmatch(plain) else 0
    if before in _USERS and (found := _USER_AND.fullmatch(word)):
        return found.start("value")
    if before and word[:2] in ("-p", "-P") and len(word) > 2:  # a word alone is of some program
        plain = word[2:]
        mixed = re.search(r"[A-Za-z]", plain) and re.search(r"[\d!@#$%^&*+]", plain)  # -pthread is no password
        return 2 if mixed and "=" not in plain and not _PORTS.fullmatch(plain) and not _PATHS.fullmatch(plain) else None
    return None


@lru_cache(maxsize=4096)
def _said(name: str, place: Place) -> str:
    """The word of the name that says so; empty if none does."""
    words = _WORD.findall(name.lower())
    if len(words) == 1 and words[0] in _ALONE[place]:
        return ""
    pairs = list(zip(("", *words), words, strict=False))
    for before, word in pairs if place == "variable" else pairs[-1:]:
        if said := _ending(word, before, _OF_VARIABLES if place == "variable" else _ENDINGS):
            return said
    if place != "variable":
        return ""
    inside = _INSIDE.search(" ".join(word for word in words if not word.endswith(tuple(_ENDINGS))))
    return inside[0] if inside else ""


def _ending(word: str, before: str, endings: Mapping[str, frozenset[str]]) -> str:
    """What a word, with the one before it, says of a value."""
    if word in _WORDS:
        return word
    if (before, word) in _PAIRS:
        return word
    for ending, others in endings.items():
        if word.endswith(ending):
            return "" if (word[: -len(ending)] or before) in others else ending
    return ""
