"""Names whose value is a secret: of options, variables, and words of a program's command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_PASSES = "ask by com encom tres sur over under low high band all forward backward single multi num"
# endings of names, also without separators between words, and preceding words that change the meaning
_ENDINGS = {
    **dict.fromkeys(("password", "passwd", "passphrase", "passcode", "secret", "credential", "credentials"), _NOTHING),
    "token": frozenset(_TOKENS.split()),
    "key": frozenset(_KEYS.split()),
    "pass": frozenset(_PASSES.split()),
    "pwd": frozenset({"old"}),
    "pw": _NOTHING,
}
# nearly every key or token in a variable belongs to a service: few words change that
_OWNERLESS = frozenset({"public", "foreign", "primary", "sort", "pad", "eos", "bos", "hot", "mon", "don", "tur"})
_OF_VARIABLES = {**_ENDINGS, **{ending: _ENDINGS[ending] & _OWNERLESS for ending in ("key", "token")}}
# separate words that end a name
_WORDS = frozenset(
    {
        "auth",
        "cred",
        "creds",
        "cookie",
        "webhook",
        "dsn",
        "jwt",
        "psk",
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
# anywhere in a variable's name, which is rarely a training hyperparameter
_INSIDE = re.compile(r"pass(?:word|wd|phrase|code)|token(?!i[sz])|secret|credential|private|cookie|webhook")
# meaningless alone: in text these are ordinary words of code and sentences
_ALONE: dict[Place, frozenset[str]] = {
    "option": _NOTHING,
    "variable": frozenset({"pwd"}),
    "text": frozenset({"key", "pass", "pw", "pwd", "pat", "otp", "pin"}),
}
_COUNTED = frozenset({"token", "key", "auth", "id"})  # words that also name numbers


SWITCH = re.compile(r"[01]|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_NUMBER = re.compile(r"(?=.{1,7}\Z)-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def is_secret(name: str, value: str, place: Place) -> bool:
    """Whether the value under a name must be masked, by the name alone: neither a number nor a yes or no."""
    said, value = _secret_word(name, place), value.strip(",;)]}")
    if not said or SWITCH.fullmatch(value):
        return False
    if said == "pwd" and value.startswith("/"):  # the usual working folder of containers
        return False
    return not (said in _COUNTED and _NUMBER.fullmatch(value))


@lru_cache(maxsize=4096)
def _secret_word(name: str, place: Place) -> str:
    """The word of the name that marks a secret; empty if none does."""
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
    """Whether a word, with the one before it, marks a secret."""
    if word in _WORDS:
        return word
    if (before, word) in _PAIRS:
        return word
    for ending, others in endings.items():
        if word.endswith(ending):
            return "" if (word[: -len(ending)] or before) in others else ending
    return ""


Tells = Callable[[Sequence[str], str], int | None]  # (preceding words, word): index where a secret begins


def _by(*patterns: str) -> Tells:
    """A match of the whole word against patterns: the secret begins after the group."""
    known = [re.compile(pattern, re.DOTALL) for pattern in patterns]

    def tells(_: Sequence[str], word: str) -> int | None:
        found = next((match for pattern in known if (match := pattern.fullmatch(word))), None)
        return found.start("value") if found else None

    return tells


def _places(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def _last_of(*commands: str) -> Tells:
    """The word that ends a command such as `alias set . . . *`: a dot stands for any word."""
    wanted = [command.split()[:-1] for command in commands]

    def tells(before: Sequence[str], word: str) -> int | None:
        places = [] if word.startswith("-") else _places(before)
        alike = (
            len(one) == len(places) and all(a in (".", b) for a, b in zip(one, places, strict=True)) for one in wanted
        )
        return 0 if any(alike) else None

    return tells


def _htpasswd(before: Sequence[str], word: str) -> int | None:
    """With -b the password follows the file and the user; with -n there is no file."""
    flags = "".join(one[1:] for one in before if one.startswith("-"))
    others = [one for at, one in enumerate(before) if at and before[at - 1] in ("-C", "-r")]
    places = [one for one in _places(before) if one not in others]
    given = "b" in flags and not word.startswith("-") and before[-1] not in ("-C", "-r")
    return 0 if given and len(places) == (1 if "n" in flags else 2) else None


def _login(before: Sequence[str], word: str) -> int | None:
    """A bare key after `login`, as opposed to a server, an option's value, or NAME=VALUE."""
    if not {"login", "auth", "authtoken", "add-authtoken"}.intersection(before) or word.startswith("-"):
        return None
    taken = before[-1] in ("--host", "--entity", "--base-url", "-method", "-path", "-address")
    return None if taken or "://" in word or "=" in word or word in ("login", "auth") else 0


def _vault(before: Sequence[str], word: str) -> int | None:
    places = _places(before)
    if places[:1] == ["kv"] and places[1:2] in (["put"], ["patch"]):
        return word.find("=") + 1 or None
    if places[:1] == ["token"] or places[:1] == ["unseal"] or places[:2] == ["operator", "unseal"]:
        is_value = len(places) > 1 - (places[0] == "unseal") and not word.startswith("-")
        return 0 if is_value and places[1:2] != ["create"] else None
    return _login(before, word)


_SETS = frozenset({"set", "config", "configure", "modify", "create", "add", "update", "connect", "default"})
_SET_NAME = re.compile(r"[\w.:/@-]{1,200}")


def _settings(before: Sequence[str], word: str) -> int | None:
    """`set NAME VALUE`, if the setting's name marks a secret."""
    name = before[-1] if before else ""
    if name == "obscure" or (len(before) > 1 and before[-2].startswith("http-basic.")):  # of rclone; poetry
        return 0
    if word[:1] in ("", "-") or name in _SETS or not _SET_NAME.fullmatch(name) or name.startswith("-"):
        return None
    section = name.partition(".")[0]
    says = is_secret(name, word, "option") or ("-" in section and is_secret(section, word, "option"))
    return 0 if says and not _SETS.isdisjoint(before[:-1]) else None


def _redis(before: Sequence[str], word: str) -> int | None:
    asked = [one.lower() for one in before]
    if "auth" in asked[-2:]:
        return 0
    return _settings(asked, word)


_COOKIE_FLAG = re.compile(r"-[a-zA-Z]*b")  # -sb as well


def _curl(before: Sequence[str], word: str) -> int | None:
    """Cookies to send; a value without `=` is a file name."""
    if before and _COOKIE_FLAG.fullmatch(before[-1]):
        return word.find("=") + 1 or None
    return word.find("=") + 1 or None if word.startswith("-b") else None


def _smb(before: Sequence[str], word: str) -> int | None:
    """A password may follow the share's name."""
    shares = bool(before) and before[-1].startswith(("//", "\\\\"))
    return 0 if shares and not word.startswith("-") and len(_places(before)) == 1 else None


def _passwd(before: Sequence[str], word: str) -> int | None:
    """openssl passwd -6 VALUE"""
    is_value = before[:1] == ["passwd"] and not word.startswith("-")
    return 0 if is_value and before[-1] not in ("-salt", "-in", "-rand", "-writerand") else None


def _body(before: Sequence[str], word: str) -> int | None:
    """gh secret set NAME --body VALUE"""
    if _places(before)[:2] != ["secret", "set"]:
        return None
    if before[-1] in ("-b", "--body"):
        return 0
    return len("--body=") if word.startswith("--body=") else None


class _Client(NamedTuple):
    """A program with its single-letter flags for secrets, in the next word or attached to the flag.

    `tells` finds secrets without a flag.
    """

    names: str
    apart: str = ""
    glued: str = ""
    tells: Tells | None = None


# each from the program's manual page. For mysql, 7z and rar `-p` alone asks for the password
_CLIENTS = (
    _Client(r"mysql(?:dump|admin|import|show|check|slap|binlog|pump|sh|_\w+)?|mariadb(?:-[\w-]+)?", "", "p"),
    _Client(r"7z[arz]?|(?:un)?rar", "", "p", _by(r"-hp(?P<value>.+)")),
    _Client(r"sshpass|mongo(?:sh|dump|restore|import|export|stat|top|files)?", "p", "p"),
    _Client(r"cqlsh|cypher-shell|cbq|cbc|arangosh|beeline|rabbitmqadmin|rdesktop|useradd|usermod", "p", "p"),
    _Client(r"sqlcmd|bcp|tsql|mssql-cli|ipmitool|mosquitto_(?:pub|sub|rr)|zip(?:cloak|note)?|unzip", "P", "P"),
    _Client(r"isql|iusql", "P", "P", _last_of(". . *")),
    _Client(r"(?:redis|valkey|keydb)\d*-cli", "a", "", _redis),
    _Client(r"ldap(?:search|add|modify|delete|modrdn|compare|exop|whoami)|kadmin(?:\.local)?", "w", "w"),
    _Client(r"ldappasswd", "was", "was"),
    _Client(r"curl", "uU", "uU", _curl),
    _Client(r"lftp", "uU", "uU"),
    _Client(r"smbclient|smbget|smbcacls", "U", "U", _smb),
    _Client(r"rpcclient|winexe|net", "U", "U"),
    _Client(r"snmp(?:walk|get|getnext|bulkget|bulkwalk|set|table|trap|inform)", "AXc", ""),
    _Client(r"openssl", "kK", "", _passwd),
    _Client(r"influx", "pt", ""),
    _Client(r"ssh-keygen", "NP", ""),
    _Client(r"htpasswd", "", "", _htpasswd),
    _Client(r"(?:x|wl|sdl-?)?freerdp", "p", "", _by(r"/(?:gp|p|pth|pass(?:word)?|gateway:.*,p):(?P<value>.+)")),
    _Client(
        r"mount(?:\.\w+)?|sshfs|curlftpfs",
        "",
        "",
        _by(
            r"(?:-o)?(?:.*,)?(?:pass(?:word2?|wd)?|pw)=(?P<value>.+)",
            r"(?:-o)?(?:.*,)?user(?:name)?=[^,:%]+[:%](?P<value>.+)",
        ),
    ),
    _Client(
        r"sqlplus|sqlcl|sqlldr|expdp|impdp|rman", "", "",
        _by(r"(?:userid=)?[\"']?[\w$#.]+/(?P<value>[^/@\s][^@\s]*)(?:@\S*)?"),
    ),
    _Client(r"mc|mcli", "", "", _last_of("alias set . . . *", "admin user add . . *", "config host add . . . *")),
    _Client(r"wpa_passphrase", "", "", _last_of(". *")),
    _Client(r"vault|bao", "", "", _vault),
    _Client(r"wandb|snyk|ngrok", "", "", _login),
    _Client(r"gh", "", "", _body),
    _Client(r"kubectl|oc", "", "", _by(r"--from-literal=[^=]+=(?P<value>.+)")),
    _Client(
        r"aws|git|dvc|rclone|poetry|npm|pnpm|yarn|pip|uv|conda|mamba|gcloud|databricks|oci|nmcli|swanlab|ngc",
        "", "", _settings,
    ),
    _Client(r"login", "p", "p"),  # of docker, podman, helm, oc, az, cf: in other uses of these it is a port
)  # fmt: skip
_COMMANDS = frozenset(one.names for one in _CLIENTS if one.tells in (_vault, _login, _settings, _body))
_CLIENT = re.compile("|".join(f"(?P<c{number}>{one.names})" for number, one in enumerate(_CLIENTS)))
_VERSION = re.compile(r"[-_.]?v?\d+(?:\.\d+)*$|\.exe$")  # redis-cli-7, xfreerdp3
# secrets without a single-letter flag
NAMED = re.compile(
    r"\b(?:sqlplus|sqlldr|sqlcl|expdp|impdp|rman|htpasswd|\w*freerdp\d?|mc|mcli|wandb|snyk|ngrok|vault|bao|aws|git|dvc|rclone|poetry"
    r"|npm|pnpm|yarn|pip\d*|conda|mamba|gcloud|nmcli|smbclient|isql|kubectl|oc|gh|wpa_passphrase|redis\d*-cli|openssl)\S*[\s·]"
)
# programs whose -p and -P are known to be something else: a port, a partition, a folder, a PID, a pattern
_OTHERS = re.compile(
    r"ssh|scp|sftp|rsync|mosh|autossh|ssh-\w+|mkdir|cp|mv|tar|install|touch|ls|find|read|declare|export|trap|type"
    r"|ps|top|htop|pgrep|pkill|kill|lsof|strace|ltrace|gdb|perf|py-spy|taskset|chrt|renice|ionice|prlimit|pidstat|nsenter"
    r"|srun|sbatch|salloc|squeue|sinfo|scancel|sacct|scontrol|sstat|qsub|qstat|bsub|mpirun|mpiexec"
    r"|docker|docker-compose|podman|nerdctl|kubectl|helm|git|make|cmake|ninja|cargo|npx|npm|pnpm|yarn|pip\d*|uv|conda|mamba"
    r"|pytest|papermill|xargs|parallel|grep|sed|less|diff|patch|nmap|nc|ncat|wget|df|du|restic|tmux|screen|vim?|nvim"
    r"|gcc|g\+\+|clang|nvcc|ffmpeg|java|javac|claude|codex|llama-cli|ollama|fio|iperf3?|nsys|ncu|gputop|uvicorn|gunicorn"
)
_LAUNCHERS = re.compile(  # interpreters and launchers: another program follows
    r"python[\d.]*|pypy\d*|bash|sh|zsh|dash|node|perl|ruby|torchrun|accelerate|deepspeed|sudo|env|nohup|nice|time|exec|timeout"
)
_JOINTS = (";", "|", "&")  # start of another command in a shell
_USERS = {"-u", "-U", "--user", "--proxy-user", "--username"}
_USER_AND = re.compile(r"[\w.@\\/-]+[:%](?P<value>.*[^\d].*)", re.DOTALL)  # numbers are a user and a group
_PORTS = re.compile(r"[\d.,:/x%*+-]+(?:[smhdkKMGTB]{0,2}|/(?:tcp|udp))|0x[0-9a-f]+|\d+e-?\d+|[\w.-]+:\d+(?::\d+)?")
_PATHS = re.compile(
    r"(?:\.{0,2}/|~|\$|%).*|[a-z_./-]*/[a-z_./-]*"
    r"|[\w.-]+\.(?:ya?ml|json|toml|cfg|conf|ini|txt|csv|py|sh|pt|pth|ckpt|safetensors|onnx|xml|log|zip|gz|parquet|npz?)",
    re.DOTALL,
)
_FLAG_ALONE = re.compile(r"-[a-zA-Z]*([a-zA-Z])")  # -sSu as well


def flagged_secrets(words: Iterable[str]) -> Iterator[int | None]:
    """For each word, where a secret given by a single-letter flag begins, as `mysql -pVALUE`; None without one.

    For unknown programs -p and -P count as well, unless the value is a number, a port or a path: it may be a password,
    and unnecessary masking costs little. So does the part after the name in -u NAME:VALUE.
    """
    client: _Client | None = None
    known, before = False, ""
    after: list[str] = []  # what follows the client's name
    for word in words:
        if word and not word.strip("".join(_JOINTS)):
            start = None
        else:
            start = _of_client(client, after, word) if client else None if known else _of_unknown_program(before, word)
        yield start
        after.append(word)
        if start is None and not before.startswith("--"):  # --name mysql
            found = _client(word)
            commands = client is not None and client.names in _COMMANDS
            name = _name(word)
            if found is not None and not (commands and found.names == "login"):
                client, after = found, after if found is client else []  # htpasswd /etc/htpasswd
            elif _LAUNCHERS.fullmatch(name) and (client is None or commands):
                client, known = None, False
            elif _is_other(name) and not (client and before in ("-h", "-H")):
                client, known = (client, True) if client and (client.names == "login" or commands) else (None, True)
        if word.endswith(_JOINTS):
            client, known = None, False
        before = word


def _name(word: str) -> str:
    return word.rpartition("/")[2].strip("\"'`($")


def _client(word: str) -> _Client | None:
    """The client of this name, with or without a version."""
    name = _name(word)
    found = _CLIENT.fullmatch(name) or _CLIENT.fullmatch(_VERSION.sub("", name))
    return _CLIENTS[int(str(found.lastgroup)[1:])] if found else None


def _is_other(name: str) -> bool:
    return (_OTHERS.fullmatch(name) or _OTHERS.fullmatch(_VERSION.sub("", name))) is not None


def _of_client(client: _Client, after: Sequence[str], word: str) -> int | None:
    before = after[-1] if after else ""
    if client.tells and (start := client.tells(after, word)) is not None:
        return start
    alone = _FLAG_ALONE.fullmatch(before)
    if alone and alone[1] in client.apart and (len(before) == 2 or client.apart == "uU"):
        return _after_user(word) if alone[1] in "uU" else 0
    if before in ("--user", "--proxy-user") and "u" in client.apart:
        return _after_user(word)
    if len(word) > 2 and word[0] == "-" and word[1] in client.glued:
        return 2 + _after_user(word[2:]) if word[1] in "uU" else 2
    return None


def _after_user(value: str) -> int:
    """Where the password begins after -u: a value without a user name may be a token."""
    found = re.match(r"[^:%,]+[:%,](?=.)", value)
    return found.end() if found else 0


def _of_unknown_program(before: str, word: str) -> int | None:
    if before in ("-p", "-P"):
        plain = word.strip("\"'`,;)")
        other = not plain or plain[0] == "-" or "=" in plain or _PORTS.fullmatch(plain) or _PATHS.fullmatch(plain)
        return None if other or SWITCH.fullmatch(plain) else 0
    if before in _USERS and (found := _USER_AND.fullmatch(word)):
        return found.start("value")
    if before and word[:2] in ("-p", "-P") and len(word) > 2:  # a bare word belongs to some program
        plain = word[2:]
        mixed = re.search(r"[A-Za-z]", plain) and re.search(r"[\d!@#$%^&*+]", plain)  # -pthread is no password
        return 2 if mixed and "=" not in plain and not _PORTS.fullmatch(plain) and not _PATHS.fullmatch(plain) else None
    return None
