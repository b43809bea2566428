"""Text from outside, sanitized on its way into the model (clean) and redacted on its way out (redact)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from gputop.safe.secret_names import NAMED, Place, flagged_secrets, is_secret

LIMIT = 4096
MASK = "***"

_UNKNOWN = "\ufffd"
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MAX_MARKS = 2
_PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"} | dict.fromkeys(b"\t\n\r", "·")

_SPELLED = str.maketrans("·…×°µ→•≥≤", ".~x u>*><")  # characters we write ourselves


def clean(s: str, limit: int = LIMIT) -> str:
    """The text without anything a terminal interprets: controls become pictures, invisible characters `�`; truncated.

    At most two combining marks stay on a base. Idempotent, never longer than `limit` characters.
    """
    if len(s) > limit:
        s = s[: limit - 1] + "…"
    if s.isascii():
        return s if s.isprintable() else s.translate(_PICTURES)
    return _clean_unicode(s.translate(_PICTURES))


def _clean_unicode(s: str) -> str:
    out: list[str] = []
    marks = 0
    category = unicodedata.category
    for ch in s:
        kind = "Lo" if ch.isascii() else category(ch)
        if kind[0] == "M" and out:
            marks += 1
            if marks > _MAX_MARKS:
                continue
        else:
            marks = 0
            # a mark without a base would attach to the preceding output
            if kind in _INVISIBLE or kind[0] == "M":
                ch = _UNKNOWN
        out.append(ch)
    return "".join(out)


def decode(raw: bytes, limit: int = LIMIT) -> str:
    """Bytes of unknown encoding as clean text: UTF-8, with `�` for each invalid byte."""
    # a character has at most four bytes, so the rest of a 128 KiB argument need not be decoded
    return clean(raw[: 4 * limit + 4].decode("utf-8", "surrogateescape"), limit)


def to_ascii(cleaned: str) -> str:
    """Clean text for a terminal or file without UTF-8, same length: characters without an equivalent become `?`."""
    return cleaned if cleaned.isascii() else cleaned.translate(_SPELLED).encode("ascii", "replace").decode("ascii")


_NAME = r"(?P<name>[\w.+-]{1,200})"
_VALUE = r"""(?P<value>(?<=")[^"]*|(?<=')[^']*|\S+)"""

# --token X and --token=X
_GIVEN_BY_OPTION = re.compile(rf"""(?<![\w-])--?{_NAME}(?:=|[\s·]+)["']?{_VALUE}""")
# HF_TOKEN=X, model.api_key=X, "api_key": "X"
_GIVEN_BY_NAME = re.compile(rf"""(?<![\w-]){_NAME}["']?\s*[:=]\s*["']?{_VALUE}""")
_SIGNATURE = re.compile(
    r"([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&\s\"'#]+", re.IGNORECASE
)
_HOOK = re.compile(
    r"(\bhooks\.slack\.com/(?:services|triggers|workflows)/|\bdiscord(?:app)?\.com/api/webhooks/)[^\s\"']+",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?)(?:\w+\s+)?[^\s\"']+", re.IGNORECASE)
_BEARER = re.compile(r"(\bbearer[\s·:=]+)[^\s\"']+", re.IGNORECASE)
# a user alone may be a token: short lower-case names are not
_USER = re.compile(r"(\bhttps?://)(?![a-z][a-z.-]{0,14}@)[^\s/:@?#\"']+(?=@)")
_COOKIES = re.compile(
    r"(\bcookie[\"']?(?:\s*[:=]|[\s·])\s*[\"']?[^\s;=\"']+=)[^\s;\"']*(?:;[\s·]*[^\s;=\"']+=[^\s;\"']*)*", re.I
)
_USER_PASSWORD = re.compile(r"(?:(?<=[^\s/:@])|(?<=://)):[^\s/\"]{1,1024}(?=@)")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_[A-Za-z0-9]{16,}"
    r"|(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"
    r"|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|AIza[\w-]{30,}"
    r"|nvapi-[\w-]{16,}"
    r"|xox[a-z]-[\w-]{8,}"
    r"|eyJ[\w=-]{8,}(?:\.[\w=-]*)*"
    r"|wandb_v\d+_\w{16,}"
    r"|[0-9a-fA-F]{40}(?![0-9a-zA-Z])"
    r")"
)
_WORDS = re.compile(r"([\s·]+)")
_LETTER = re.compile(r"(?<!\S)[\"']?-[a-zA-Z]|--user|--proxy-user")
_PASS_OF = re.compile(r"(\bpass:)[^\s\"']+")  # openssl -passin pass:VALUE
_OPTION_NAME = re.compile(rf"--?{_NAME}")
_OPTION_AND_VALUE = re.compile(rf"(?P<dashes>--?)?{_NAME}=(?P<value>.+)", re.DOTALL)


def redact(text: str) -> str:
    """The text with apparent passwords, keys and tokens replaced by a mask of constant length."""
    if _LETTER.search(text) or NAMED.search(text):
        words = _WORDS.split(text)  # the text between them is at odd indices
        words[::2] = _without_flagged(words[::2])
        text = "".join(words)
    for pattern in (_SIGNATURE, _HOOK, _HEADER, _COOKIES, _PASS_OF):
        text = pattern.sub(rf"\1{MASK}", text)
    text = _masked(_GIVEN_BY_OPTION, "option", text)
    text = _masked(_GIVEN_BY_NAME, "text", text)
    text = _BEARER.sub(rf"\1{MASK}", text)
    text = _USER.sub(rf"\1{MASK}", text)
    text = _USER_PASSWORD.sub(f":{MASK}", text)
    return _SHAPES.sub(MASK, text)


def _without_flagged(words: Sequence[str]) -> list[str]:
    places = zip(words, flagged_secrets(words), strict=True)
    return [word if start is None else word[:start] + MASK for word, start in places]


def _masked(given: re.Pattern[str], place: Place, text: str) -> str:
    """The text without values under names that mark secrets."""
    out, at = [], 0
    while found := given.search(text, at):
        if is_secret(found["name"], found["value"], place):
            out += [text[at : found.start("value")], MASK]
            at = found.end("value")
        else:  # the supposed value may be a name
            out.append(text[at : found.end("name")])
            at = found.end("name")
    return "".join((*out, text[at:]))


class _Redacted:
    """A size-limited cache of redacted command lines: those of compilers are long, and short-lived.

    Two tables: when the young one is full it becomes the old one, and unused entries of the former old one are dropped.
    """

    def __init__(self) -> None:
        self._young: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._old: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._held = 0  # bytes in the young one

    def __call__(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The command line with its secrets masked."""
        found = self._young.get(argv)
        if found is None:
            found = self._old.get(argv)
            found = _redacted(argv) if found is None else found
            self._held += sum(map(len, argv)) + _ENTRY * (1 + len(argv))
            self._young[argv] = found
            if self._held > _MOST_HELD:
                self._old, self._young, self._held = self._young, {}, 0
        return found


_MOST_HELD, _ENTRY = 2 << 20, 64  # bytes; of an entry besides its characters
_remembered = _Redacted()


def redact_argv(argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command line with secrets masked, including values in the entry after their option."""
    return _remembered(argv)


def _redacted(argv: tuple[str, ...]) -> tuple[str, ...]:
    out: list[str] = []
    option = ""  # whose value may be the next entry
    for entry in _without_flagged(argv):
        if option and is_secret(option, entry, "option"):
            out.append(MASK)
            option = ""
            continue
        # one entry is one value, spaces included
        whole = _OPTION_AND_VALUE.fullmatch(entry)
        secret = whole and is_secret(whole["name"], whole["value"], "option" if whole["dashes"] else "text")
        out.append(entry[: whole.start("value")] + MASK if whole and secret else redact(entry))
        named = _OPTION_NAME.fullmatch(entry)
        option = named["name"] if named else ""
    return tuple(out)


_KEY_FILE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*", re.DOTALL)


def redact_variable(name: str, value: str) -> str:
    """The value of an environment variable: masked entirely if its name marks a secret, else redacted."""
    if value and is_secret(name, value, "variable"):
        return MASK
    return _KEY_FILE.sub(MASK, redact(value))
