"""Text from outside: nothing a terminal obeys comes out of clean(), no secret out of redact()."""

from __future__ import annotations

import tracemalloc
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.safe.text import MASK, clean, decode, redact, redact_argv, to_ascii
from tests import hostile

ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=200)

CASES = {
    "train.py": "train.py",
    "": "",
    "\x1b[31mred": "␛[31mred",
    "a\x00b": "a␀b",
    "a\tb\nc\rd": "a·b·c·d",
    "a\x7fb": "a␡b",
    "\x9b2J": "�2J",
    "\u202egnp": "�gnp",
    "a\u2028b": "a�b",
    "\ud800": "�",
    "\ue000": "�",
    "\u00a0": "\u00a0",
    "café": "café",
    "訓練": "訓練",
    "a\u0301\u0301\u0301\u0301b": "a\u0301\u0301b",
    "\u0336x": "�x",
    "\x1b\u0336x": "␛\u0336x",
    "[/foo]": "[/foo]",
}


@pytest.mark.parametrize(("raw", "expected"), CASES.items(), ids=[ascii(raw) for raw in CASES])
def test_clean_cases(raw: str, expected: str) -> None:
    assert clean(raw) == expected


def assert_harmless(text: str) -> None:
    bad = {unicodedata.category(ch) for ch in text} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not bad, ascii(text)


@pytest.mark.parametrize("raw", hostile.STRINGS, ids=lambda s: ascii(s[:12]))
def test_p02_hostile_strings_come_out_harmless(raw: str) -> None:
    assert_harmless(clean(raw))


@pytest.mark.parametrize("raw", hostile.BYTES, ids=lambda s: ascii(s[:12]))
def test_p02_hostile_bytes_come_out_harmless(raw: bytes) -> None:
    assert_harmless(decode(raw))


@given(ANY_TEXT)
def test_clean_is_harmless_idempotent_and_bounded(raw: str) -> None:
    once = clean(raw)
    assert_harmless(once)
    assert clean(once) == once
    assert len(once) <= len(raw)


@given(ANY_TEXT, st.integers(1, 50))
def test_clean_keeps_the_limit(raw: str, limit: int) -> None:
    cut = clean(raw, limit)
    assert len(cut) <= limit
    assert clean(cut, limit) == cut


@given(st.binary(max_size=400))
def test_decode_takes_any_bytes(raw: bytes) -> None:
    text = decode(raw)
    assert_harmless(text)
    text.encode("utf-8")


@given(ANY_TEXT)
def test_decode_equals_clean_for_valid_text(raw: str) -> None:
    valid = raw.encode("utf-8", "replace").decode()
    assert decode(valid.encode()) == clean(valid)


@given(ANY_TEXT)
def test_two_marks_on_a_base_at_most(raw: str) -> None:
    marks = 0
    for ch in clean(raw + "\u0301" * 5):
        marks = marks + 1 if unicodedata.category(ch)[0] == "M" else 0
        assert marks <= 2


def test_p03_a_long_argument_is_cut_and_says_so() -> None:
    for long in (b"x" * (128 * 1024), "訓".encode() * 50_000, "\U0001f469".encode() * 50_000):
        cut = decode(long)
        assert len(cut) == 4096
        assert cut.endswith("…")
    assert clean("x" * 4096) == "x" * 4096


@given(ANY_TEXT)
def test_t12_ascii_output_is_ascii_of_the_same_length(raw: str) -> None:
    text = clean(raw)
    assert to_ascii(text).isascii()
    assert to_ascii(text).isprintable()
    assert len(to_ascii(text)) == len(text)


def test_t12_pictures_become_question_marks() -> None:
    assert to_ascii(clean("a\x1b\x7fb")) == "a??b"


def test_signs_that_we_write_ourselves_are_spelled_in_ascii_and_are_no_question_marks() -> None:
    assert to_ascii("70 % · 8×H100 90°C 4 µs… a → b é") == "70 % . 8xH100 90 C 4 us~ a > b ?"


@pytest.mark.parametrize(("secret", "argv"), hostile.SECRETS.items())
def test_no_secret_survives(secret: str, argv: tuple[str, ...]) -> None:
    assert secret not in " ".join(redact_argv(argv))
    assert redact_argv(redact_argv(argv)) == redact_argv(argv)
    # joined by spaces a value with spaces in it has no end, so only single words can be promised
    if " " not in secret:
        assert secret not in redact(" ".join(argv))
        assert secret not in redact(f"before {' '.join(argv)} after")


@pytest.mark.parametrize(
    "argv",
    [
        ("mysql", "-uroot", "-phunter2", "db"),
        ("/usr/bin/mysqldump", "-u", "root", "-phunter2", "--all-databases"),
        ("sudo", "-E", "mariadb-admin", "-phunter2", "status"),
        ("docker", "exec", "db", "mysql", "-phunter2"),
        ("bash", "-c", "sleep 1; mysql -phunter2 db"),
        ("sshpass", "-phunter2", "ssh", "node07"),
        ("sshpass", "-p", "hunter2", "ssh", "-p2222", "node07"),
        ("7z", "a", "-phunter2", "runs.7z", "runs"),
        ("redis-cli", "-h", "cache", "-a", "hunter2", "ping"),
        ("ldapsearch", "-x", "-D", "cn=admin", "-w", "hunter2", "-b", "dc=x"),
        ("ldapwhoami", "-whunter2"),
        ("ldappasswd", "-w", "old", "-s", "hunter2", "uid=me"),
        ("curl", "-u", "me:hunter2", "https://x.org"),
        ("curl", "-sSu", "me:hunter2", "https://x.org"),
        ("curl", "-ume:hunter2", "https://x.org"),
        ("curl", "--user", "me:hunter2", "https://x.org"),
        ("curl", "-u", "hunter2", "https://x.org"),  # a token in place of a user
        ("curl", "--oauth2-bearer", "hunter2", "https://x.org"),
        ("smbclient", "//nas/data", "-U", "me%hunter2"),
        ("mongosh", "-u", "me", "-p", "hunter2"),
        ("mongodump", "-phunter2"),
        ("cqlsh", "-u", "me", "-p", "hunter2"),
        ("sqlcmd", "-S", "db", "-U", "me", "-P", "hunter2"),
        ("ipmitool", "-H", "bmc", "-U", "root", "-P", "hunter2", "sensor"),
        ("mosquitto_pub", "-u", "me", "-P", "hunter2", "-t", "x"),
        ("unzip", "-P", "hunter2", "data.zip"),
        ("snmpwalk", "-v3", "-A", "hunter2", "pdu"),
        ("docker", "login", "-u", "me", "-p", "hunter2", "registry.example.org"),
        ("helm", "registry", "login", "-p", "hunter2", "registry.example.org"),
        ("openssl", "rsa", "-passin", "pass:hunter2"),
        ("openssl", "enc", "-k", "hunter2"),
        ("env", "PGPASSWORD=hunter2", "psql", "-U", "me"),
        ("psql", "host=db password=hunter2"),
        # of programs that nobody knows
        ("trainctl", "-p", "hunter2"),
        ("/opt/tool/bin/upload", "-u", "me", "-phunter2", "model.pt"),
        ("upload", "-P", "correct-horse"),
        ("python", "push.py", "-p", "S3cr/et+hunter2"),
        ("srun", "-p", "gpu", "python", "push.py", "-p", "hunter2"),
        ("push", "--user", "me:hunter2", "x"),
        ("ssh", "node07", ";", "upload", "-p", "hunter2"),
    ],
)
def test_a_password_glued_to_p_is_masked_for_programs_that_take_it_so(argv: tuple[str, ...]) -> None:
    shown = redact_argv(argv)
    for text in (" ".join(shown), redact(" ".join(argv))):
        assert "hunter2" not in text
        assert ("-p2222" in text) == ("-p2222" in argv)
    assert redact_argv(shown) == shown


@pytest.mark.parametrize(
    "argv",
    [
        ("redis-cli-7", "-a", "hunter2"),
        ("redis6-cli", "-a", "hunter2"),
        ("xfreerdp", "-u", "me", "-p", "hunter2", "host"),
        ("curl", "-sb", "session=hunter2", "https://x.org"),
        ("rclone", "obscure", "hunter2"),
        ("poetry", "config", "http-basic.corp", "me", "hunter2"),
        ("/usr/bin/mysql8.0", "-phunter2"),
        ("redis-cli", "-h", "cache", "AUTH", "hunter2"),
        ("redis-cli", "config", "set", "requirepass", "hunter2"),
        ("xfreerdp", "/u:me", "/p:hunter2", "/v:host"),
        ("xfreerdp3", "/v:host", "/gp:hunter2"),
        ("wlfreerdp", "/gateway:g:gw,u:me,p:hunter2"),
        ("mount.cifs", "-o", "user=u,pass=hunter2", "//nas/data", "/data"),
        ("mount", "-t", "cifs", "//nas/data", "/data", "-o", "user=u,password=hunter2"),
        ("mount", "-t", "cifs", "//nas/data", "/data", "-ousername=u%hunter2,vers=3.0"),
        ("aws", "configure", "set", "aws_secret_access_key", "hunter2"),
        ("aws", "configure", "--profile", "p", "set", "profile.p.aws_session_token", "hunter2"),
        ("npm", "config", "set", "//registry.npmjs.org/:_authToken", "hunter2"),
        ("poetry", "config", "pypi-token.pypi", "hunter2"),
        ("dvc", "remote", "modify", "--local", "nas", "password", "hunter2"),
        ("rclone", "config", "create", "nas", "webdav", "user", "me", "pass", "hunter2"),
        ("nmcli", "dev", "wifi", "connect", "lab", "password", "hunter2"),
        ("git", "clone", "https://hunter2@git.example/me/x.git"),
        ("git", "clone", "https://HunterHunter@git.example/me/x.git"),
        ("pip", "install", "git+https://hunter2@git.example/x.git"),
        ("sqlplus", "u/hunter2@db"),
        ("sqlplus", "-s", "u/hunter2@//host:1521/svc", "@run.sql"),
        ("sqlldr", "userid=u/hunter2", "control=x.ctl"),
        ("htpasswd", "-b", "/etc/htpasswd", "me", "hunter2"),
        ("htpasswd", "-nbB", "me", "hunter2"),
        ("htpasswd", "-cb", "-C", "10", "users", "me", "hunter2"),
        ("mc", "alias", "set", "nas", "https://nas.example", "KEY", "hunter2"),
        ("mc", "admin", "user", "add", "nas", "me", "hunter2"),
        ("curl", "-b", "session=hunter2", "https://x.org"),
        ("curl", "-bsession=hunter2", "https://x.org"),
        ("curl", "--cookie", "session=hunter2", "https://x.org"),
        ("curl", "-H", "Cookie: a=1; session=hunter2", "https://x.org"),
        ("smbclient", "//nas/data", "hunter2", "-U", "me"),
        ("smbclient", "-U", "u%hunter2", "//nas/data"),
        ("rdesktop", "-u", "me", "-p", "hunter2", "host"),
        ("ldapsearch", "-w", "hunter2"),
        ("mongosh", "-p", "hunter2"),
        ("psql", "postgresql://u:hunter2@h/db"),
        ("docker", "login", "-p", "hunter2"),
        ("az", "login", "-u", "me", "-p", "hunter2"),
        ("az", "login", "--service-principal", "--password", "hunter2"),
        ("vault", "login", "hunter2"),
        ("vault", "login", "-method=userpass", "username=me", "password=hunter2"),
        ("vault", "kv", "put", "secret/db", "value=hunter2"),
        ("vault", "operator", "unseal", "hunter2"),
        ("wandb", "login", "hunter2"),
        ("wandb", "login", "--host", "https://wandb.example", "--relogin", "hunter2"),
        ("huggingface-cli", "login", "--token", "hunter2"),
        ("hf", "auth", "login", "--token", "hunter2"),
        ("ngrok", "config", "add-authtoken", "hunter2"),
        ("gh", "secret", "set", "TOKEN", "--body", "hunter2"),
        ("kubectl", "create", "secret", "generic", "db", "--from-literal=db=hunter2"),
        ("openssl", "passwd", "-6", "hunter2"),
        ("ssh-keygen", "-t", "ed25519", "-N", "hunter2", "-f", "key"),
        ("rar", "a", "-hphunter2", "runs.rar", "runs"),
        ("isql", "-v", "lab", "me", "hunter2"),
        ("sh", "-c", "wandb login hunter2 && python train.py"),
        ("sudo", "mount.cifs", "//nas/data", "/data", "-o", "vers=3.0,pass=hunter2"),
    ],
    ids=" ".join,
)
def test_a_secret_that_a_program_takes_in_its_own_way_is_masked(argv: tuple[str, ...]) -> None:
    shown = redact_argv(argv)
    for text in (" ".join(shown), redact(" ".join(argv))):
        assert "unter" not in text
    assert redact_argv(shown) == shown
    assert shown[0] == argv[0]


VALUES = st.text(st.characters(categories=["L", "N"], include_characters="-_+.!%"), min_size=12, max_size=80)
CARRIERS = (
    "--password={}",
    "--hf-token={}",
    "--API_KEY {}",
    "env WANDB_API_KEY={} python",
    "https://me:{}@example.org/x",
    "Authorization: Bearer {}",
)


@given(VALUES, st.sampled_from(CARRIERS))
def test_no_generated_secret_survives(secret: str, carrier: str) -> None:
    assert secret not in redact(carrier.format(secret))


@given(VALUES)
def test_the_mask_does_not_tell_the_length(secret: str) -> None:
    assert redact_argv(("x", f"--token={secret}", "--password", secret)) == ("x", f"--token={MASK}", "--password", MASK)


HARMLESS = (
    ("python", "train.py", "--batch-size", "64", "--lr=3e-4"),
    ("torchrun", "--nproc_per_node=8", "--rdzv-endpoint=10.0.0.1:29500", "train.py"),
    ("python", "-m", "vllm", "--tokenizer", "bert-base", "--max-tokens", "512", "--author", "me"),
    ("docker", "run", "nvcr.io/nvidia/pytorch:25.01-py3"),
    ("ssh", "me@node07", "tail", "-f", "/var/log/disk-usage-of-everything-there-is"),
    ("python", "train.py", "--key-dim", "64", "--num-keys", "8", "--monkey", "x", "--sort-key", "len", "--lr", "3"),
    ("python", "train.py", "--tokenizer", "gpt2", "--max-tokens", "4096", "--pad-token-id", "0", "--pad-token", "<p>"),
    ("python", "train.py", "--bypass", "--compass", "north", "--passes", "3", "--multi-pass=2", "--text_key", "text"),
    ("python", "train.py", "data.image_key=jpg", "eos_token=</s>", "--use-auth", "false", "+trainer.num_pass=2"),
    ("python", "train.py", "--dim-per-key", "64", "--head_key=64", "--cost-per-token", "0.1", "--token", "none"),
    ("python", "-c", "sorted(rows, key=len); past_key = x; loss.backward()  # forward pass: 30 ms"),
    ("apptainer", "exec", "--nv", "--pwd", "/workspace", "pytorch.sif", "python", "train.py"),
    ("git", "clone", "https://github.com/someone-with-a-long-name/a-project@v1"),
    ("wget", "https://example.org/d.tar?signal=1&design=2"),
    ("docker", "run", "--name", "mysql", "-p3306:3306", "mysql:8"),
    ("uvicorn", "app:app", "-p8080"),
    ("sshpass", "-e", "ssh", "-p2222", "me@node07"),
    ("mysqldump", "db", "|", "nc", "-p9000", "node07"),
    ("mysql", "-u", "root", "-p", "db"),
    ("srun", "-p", "gpu", "--pty", "bash"),
    ("sbatch", "-pgpu4", "job.sh"),
    ("mkdir", "-p", "runs2"),
    ("docker", "run", "-p", "8080:80", "-u", "1000:1000", "image"),
    ("docker", "compose", "-p", "project7", "up"),
    ("python", "train.py", "-p", "0.5", "-P", "configs/base"),
    ("python", "train.py", "-p", "params_7b.yaml", "-p", "/data/run7", "-p", "../x2", "-P8"),
    ("serve", "-p", "8080", "-u", "me"),
    ("serve", "-p", "127.0.0.1:8080"),
    ("gcc", "-pthread", "-pipe", "x.c"),
    ("find", ".", "-path", "x2", "-print0"),
    ("tool", "-parallel", "-profile", "-p", "-v"),
    ("pytest", "-p", "no:cacheprovider"),
    ("cargo", "run", "-p", "crate2"),
    ("papermill", "in.ipynb", "-p", "lr", "0.1"),
    ("redis-cli", "-h", "cache", "-p", "6379", "-n", "2"),
    ("curl", "-o", "x2", "-sS", "https://x.org"),
    ("claude", "-p", "why is training slow"),
    ("python", "train.py", "-p", "8080"),
    ("python", "-b", "train.py", "lr=3"),
    ("train.py", "-b", "bs=3", "login", "key", "x"),
    ("git", "clone", "https://alice@git.example/me/x.git"),
    ("git", "config", "--global", "credential.helper", "store"),
    ("git", "config", "user.email", "me@example.org"),
    ("git", "push", "origin", "token-fix"),
    ("aws", "configure", "set", "region", "us-east-1"),
    ("aws", "s3", "sync", "s3://bucket/key", "data"),
    ("conda", "config", "--set", "auto_activate_base", "false"),
    ("mount", "-t", "nfs", "-o", "rw,hard,user=me", "nas:/data", "/data"),
    ("sqlplus", "/", "as", "sysdba", "@/home/me/run.sql"),
    ("sqlldr", "control=dir/x.ctl"),
    ("htpasswd", "-c", "users", "me"),
    ("htpasswd", "-v", "users", "me"),
    ("mc", "alias", "list", "nas"),
    ("mc", "cp", "data/a", "nas/bucket"),
    ("mc", "alias", "set", "nas", "https://nas.example"),
    ("curl", "-b", "cookies.txt", "https://x.org"),
    ("curl", "-H", "Accept: a=b; c=d", "https://x.org"),
    ("xfreerdp", "/v:host", "/port:3389", "/u:me"),
    ("msbuild", "/p:Configuration=Release"),
    ("vault", "login", "-method", "oidc", "-path=corp"),
    ("vault", "kv", "get", "secret/db"),
    ("wandb", "login", "--host", "https://wandb.example"),
    ("wandb", "agent", "me/project/abc"),
    ("wandb", "sync", "runs/one"),
    ("smbclient", "//nas/data", "-c", "ls"),
    ("kubectl", "get", "pods", "-p"),
    ("gh", "pr", "create", "--body", "text"),
    ("openssl", "req", "-new", "-out", "x.pem"),
    ("ssh-keygen", "-t", "ed25519", "-f", "x7"),
    ("redis-cli", "--askpass", "ping"),
    ("redis-cli", "config", "set", "maxmemory", "1gb"),
    ("npm", "run", "build", "--", "-p", "x3"),
)


@pytest.mark.parametrize("argv", HARMLESS)
def test_what_is_no_secret_stays(argv: tuple[str, ...]) -> None:
    assert redact_argv(argv) == argv
    assert redact(" ".join(argv)) == " ".join(argv)


@given(ANY_TEXT)
def test_redact_takes_any_text_and_stays_harmless(raw: str) -> None:
    assert_harmless(redact(clean(raw)))


def test_command_lines_that_come_and_go_are_not_kept() -> None:
    """Of compilers, say: each one is long and another one, and nobody asks for it again."""
    tracemalloc.start()
    try:
        for n in range(3000):
            given = ("cc", *(f"-I/build/{n}/include/{place}" for place in range(100)), "--token", "abc")
            assert redact_argv(given)[-1] == MASK
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 16 << 20  # all of them take 60 MB
    again = redact_argv(given)
    assert redact_argv(given) is again
