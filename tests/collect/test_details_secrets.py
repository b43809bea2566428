"""The environment in the details: only whose it is, masked as it is read, shown one by one and only while asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.collect.details.overview import variables
from gputop.model import Detail
from gputop.safe.text import MASK, redact_variable
from gputop.source import OTHERS_ENVIRONMENT, DetailWish
from tests import hostile
from tests.details_proc import OpenProc, why

SECRET_NAMES = (
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD",
    "MYSQL_PWD", "DB_PASS", "OPENAI_APIKEY", "GIT_CREDENTIALS", "api_key", "SENTRY_DSN", "SLACK_WEBHOOK_URL",
    "REDIS_AUTH", "GITHUB_PAT", "SSH_KEY", "SESSION_ID", "AZURE_STORAGE_CONNECTION_STRING", "hfToken", "KAGGLE_KEY",
    "COMET_COOKIE", "JWT", "GOOGLE_CREDS", "SSH_PASSPHRASE", "PRIVATE_THING",
    "SSHPASS", "LDAP_BINDPW", "MY_PW", "ACCESSKEY", "OPENAIKEY", "KEY", "PASS", "SSH_KEY_2", "TOKEN_FILE", "SESSIONID",
)  # fmt: skip
PLAIN = {
    "PATH": "/usr/bin:/bin", "PWD": "/home/alice", "OLDPWD": "/", "RANK": "0", "WORLD_SIZE": "8",
    "TOKENIZERS_PARALLELISM": "false", "MASTER_ADDR": "10.0.0.1", "CUDA_VISIBLE_DEVICES": "0,1", "AUTHOR": "alice",
    "KEYBOARD": "us", "MONKEY": "1", "XAUTHORITY": "/home/alice/.Xauthority", "PASSES": "3", "NCCL_DEBUG": "INFO",
    "OMP_NUM_THREADS": "4", "SLURM_JOB_ID": "88123", "LS_COLORS": "rs=0:di=01;34", "HF_HOME": "/data/hf",
    "MAX_TOKENS": "4096", "SORT_KEY": "len", "XDG_SESSION_ID": "3", "COMPASS": "north", "BYPASS": "all",
    "PAD_TOKEN": "<p>", "I_MPI_PIN": "1", "KEYMAP": "us", "APPTAINER_PWD": "/work", "KEY_DIM": "64", "AUTH": "false",
}  # fmt: skip
ONLY = DetailWish(parts=("environment",))


@pytest.fixture
def proc(tmp_path: Path) -> OpenProc:
    return OpenProc(tmp_path)


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_variable_whose_name_says_secret_is_masked_whole(name: str) -> None:
    assert redact_variable(name, "plain words, not a shape") == MASK
    assert redact_variable(name, "") == ""


@pytest.mark.parametrize("name", ["GCP_JSON_KEY", "AZURE_SEARCH_QUERY_KEY", "DATA_KEY", "CONFIG_KEY", "IMAGE_TOKEN"])
def test_the_key_of_a_service_is_masked_whatever_it_is_of(name: str) -> None:
    assert redact_variable(name, "ZXlKaGJHY2lPaUpJ") == MASK


def test_the_address_of_a_hook_is_masked_in_any_variable() -> None:
    said = redact_variable("NOTIFY_URL", "https://hooks.slack.com/services/T000/B000/abc")
    assert said == f"https://hooks.slack.com/services/{MASK}"


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_variable_is_shown(name: str) -> None:
    assert redact_variable(name, PLAIN[name]) == PLAIN[name]


def environs() -> st.SearchStrategy[tuple[str, bytes]]:
    """A secret of the corpus and an environment with it: under a telling name, or carried in a value as it comes."""
    names, secrets = st.sampled_from(SECRET_NAMES), st.sampled_from(sorted(hostile.SECRETS))
    padding = st.sampled_from(("", "x=1 ", "é" * 40, "a " * 3000))

    def told(secret: str, name: str, before: str, carried: bool) -> tuple[str, bytes]:
        if not carried:
            return secret, f"RANK=0\0{name}={before}{secret}\0".encode()
        carrier = " ".join(hostile.SECRETS[secret])
        return secret, f"RANK=0\0LAUNCHED_BY={before}{carrier}\0{carrier}\0".encode()

    return st.builds(told, secrets, names, padding, st.booleans())


@given(environs())
def test_no_secret_of_the_corpus_is_in_the_variables(case: tuple[str, bytes]) -> None:
    secret, raw = case
    found = variables(raw, frozenset())
    assert secret not in repr(found)
    assert any(one.secret for one in found)


@pytest.mark.parametrize("secret", hostile.SECRETS)
def test_no_secret_of_the_corpus_is_in_a_detail(proc: OpenProc, secret: str) -> None:
    carrier = " ".join(hostile.SECRETS[secret])
    identity = proc.whole(42, f"HF_TOKEN={secret}\0LAUNCHED_BY={carrier}\0RANK=0\0".encode())
    proc.write("42/cmdline", "\0".join(hostile.SECRETS[secret]))
    detail = proc.detail(identity)
    assert len(detail.environment or ()) == 3
    assert secret not in repr(detail)


def test_a_token_that_the_limit_cuts_in_half_is_masked() -> None:
    token = "hf_abcdefghijABCDEFGHIJabcdefghijABCD"
    for before in range(4040, 4100):
        (variable,) = variables(b"NOTE=" + b"-" * (before - 1) + b" " + token.encode(), frozenset())
        assert "hf_" not in variable.value
        assert len(variable.value) <= 4096


def test_a_private_key_is_masked() -> None:
    key = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\n-----END OPENSSH PRIVATE KEY-----\n"
    (variable,) = variables(b"DEPLOY=" + key, frozenset())
    assert (variable.value, variable.secret) == (MASK, True)


@given(st.binary(max_size=300))
def test_any_bytes_become_clean_variables(raw: bytes) -> None:
    for variable in variables(raw, frozenset()):
        assert variable.name.isprintable()
        assert variable.value.isprintable()


def test_a_value_is_shown_for_as_long_as_it_is_asked_for(proc: OpenProc) -> None:
    identity = proc.whole(42, b"HF_TOKEN=hunter2hunter2\0WANDB_API_KEY=swordfish\0RANK=3\0")
    masked = [(one.name, one.value, one.secret, one.revealed) for one in proc.detail(identity, ONLY).environment or ()]
    assert masked == [
        ("HF_TOKEN", MASK, True, False), ("RANK", "3", False, False), ("WANDB_API_KEY", MASK, True, False),
    ]  # fmt: skip
    wish = DetailWish(parts=("environment",), revealed=frozenset({"HF_TOKEN"}))
    shown = [(one.name, one.value, one.secret, one.revealed) for one in proc.detail(identity, wish).environment or ()]
    assert shown == [("HF_TOKEN", "hunter2hunter2", True, True), *masked[1:]]
    wait = DetailWish(parts=("environment",), revealed=frozenset({"WANDB_API_KEY"}))
    assert "hunter2" not in repr(proc.inspector.inspect(identity, wait))
    assert "swordfish" in repr(proc.detail(identity, wait))  # asked while another read may have been under way
    again = proc.inspector.inspect(identity, ONLY)  # before anything has been read anew
    assert "swordfish" not in repr(again)
    assert proc.detail(identity, ONLY).environment is not None
    assert not any(one.revealed for one in proc.detail(identity, ONLY).environment or ())


def test_the_environment_of_others_is_denied_whatever_the_kernel_lets_us_read(tmp_path: Path) -> None:
    proc = OpenProc(tmp_path, uid=1001)
    identity = proc.whole(42)
    detail = proc.detail(identity, DetailWish(parts=("environment",), others_environment=True))
    assert (detail.environment, why(detail)) == (None, {"environment": ("denied", "sudo gputop")})


def test_root_sees_the_environment_of_others_only_where_a_key_said_so(tmp_path: Path) -> None:
    proc = OpenProc(tmp_path, uid=0)
    identity = proc.whole(42, b"HF_TOKEN=hunter2\0")
    detail = proc.detail(identity, ONLY)
    assert (detail.environment, detail.missing) == (None, (OTHERS_ENVIRONMENT,))
    asked = DetailWish(parts=("environment",), others_environment=True)
    (variable,) = proc.detail(identity, asked).environment or ()
    assert (variable.value, variable.revealed) == (MASK, False)

    at_once = proc.inspector.inspect(identity, ONLY)
    assert isinstance(at_once, Detail)
    assert at_once.environment is None
    assert proc.detail(identity, ONLY).missing == (OTHERS_ENVIRONMENT,)


def test_a_process_that_took_another_uid_is_not_ours(proc: OpenProc) -> None:
    identity = proc.whole(42)
    status = (proc.proc / "42/status").read_text().replace("Uid:\t1000\t1000\t1000", "Uid:\t1000\t0\t0")
    proc.write("42/status", status)
    assert proc.detail(identity, ONLY).environment is None
