"""`gputop export prometheus` as it is run: a real program, the fake driver, scrapes over loopback."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gputop.cli.export import MOST_PROCESSES, MOST_SERIES
from tests.fakenvml import Fake
from tests.process_watch import descriptors, root_only
from tests.scrapes import PATIENCE_S, Series, Served, exporting, request, serving, until, values

GPUTOP = [sys.executable, "-m", "gputop", "export", "prometheus"]


def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*GPUTOP, *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=env
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--listen", "9400"), 64, "--listen: '9400' is not an address: use HOST:PORT"),
        (("--listen", "192.0.2.1:9400"), 1, "192.0.2.1:9400 is not an address of this machine; choose another"),
        (("--textfile", "/no/such/folder"), 1, "No such file or directory: nothing is saved there; name an existing"),
        (("--textfile", "/tmp", "--readonly"), 64, "--readonly writes no file"),
        (("--tls-cert", "x.pem"), 64, "TLS needs --tls-cert and --tls-key together"),
        (("--tls-client-ca", "x.pem"), 64, "TLS needs --tls-cert and --tls-key together"),
        (("--tls-cert", "/no.pem", "--tls-key", "/no.key"), 1, "TLS cannot use /no.pem"),
        (("--token-file", "/no/token"), 1, "/no/token has no token: write one line"),
        (("--processes", "-1"), 64, "'-1' is not a number"),
        (("--max-series", "many"), 64, "'many' is not a number"),
        (("--source", "demo:helthy"), 64, "did you mean healthy?"),
    ],
)
def test_what_cannot_be_served_is_one_line(arguments: tuple[str, ...], code: int, says: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert says in done.stderr


def test_without_the_library_one_line_says_how_to_get_it() -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from gputop.cli import main\nsys.exit(main(['export', 'prometheus']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        'gputop: prometheus_client is missing: install it with `pip install "gputop-tui[prometheus]"`, '
        "in a checkout with `.venv/bin/pip install prometheus-client`\n"
    )


@pytest.mark.parametrize("target", ["rules", "grafana"])
def test_rules_and_dashboard_need_no_library(target: str) -> None:
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        f"from gputop.cli import main\nsys.exit(main(['export', {target!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout) > 1000


def of_gpu(served: Served, name: str, index: int) -> float | None:
    found = values(served.series(), name, gpu=str(index))
    return found[0] if found else None


def test_f09_a_scrape_while_the_driver_hangs_has_the_newest_values_with_their_age(tmp_path: Path, fake: Fake) -> None:
    fake.update({"gpus": 2, "gpu.0.util": 58, "gpu.1.util": 71})
    with serving("--interval", "0.25", env=fake.env()) as served:
        until(lambda: of_gpu(served, "gputop_gpu_busy_ratio", 0) == 0.58)
        fake.hang("*", gpu=0)
        until(lambda: of_gpu(served, "gputop_gpu_up", 0) == 0.0)
        series = served.series()
        assert values(series, "gputop_gpu_condition", gpu="0", condition="hung") == [1.0]
        assert values(series, "gputop_gpu_busy_ratio", gpu="0") == [0.58]
        assert values(series, "gputop_gpu_up", gpu="1") == [1.0]
        (age_s,) = values(series, "gputop_gpu_age_seconds", gpu="0")
        assert age_s >= 1.0
        until(lambda: (of_gpu(served, "gputop_gpu_age_seconds", 0) or 0) > age_s + 1)
        assert (of_gpu(served, "gputop_gpu_age_seconds", 1) or 0) < age_s
        fake.clear("hang.*", "gpu.0.hang.*")


def test_f09_a_gpu_that_is_lost_is_down(fake: Fake) -> None:
    fake.update({"gpus": 2})
    with serving("--interval", "0.25", env=fake.env()) as served:
        until(lambda: of_gpu(served, "gputop_gpu_up", 1) == 1.0)
        fake.fail("*", 15, gpu=1)
        until(lambda: of_gpu(served, "gputop_gpu_up", 1) == 0.0)
        assert values(served.series(), "gputop_gpu_condition", gpu="1", condition="lost") == [1.0]
        assert of_gpu(served, "gputop_gpu_up", 0) == 1.0


def test_without_a_driver_there_is_the_host_and_a_notice() -> None:
    with serving("--no-nvml", "--interval", "0.25") as served:
        series = until(lambda: [one for one in served.series() if one.name == "gputop_host_cpus"] and served.series())
        assert values(series, "gputop_gpus") == [0.0]
        assert [one.labels["key"] for one in series if one.name == "gputop_note"] != []


def test_it_ends_with_its_signal_and_says_where_it_serves() -> None:
    with serving("--source", "demo:healthy") as served:
        assert served.said == [f"gputop: serving http://127.0.0.1:{served.port}/metrics\n"]
        until(lambda: values(served.series(), "gputop_gpus"))
        served.program.send_signal(signal.SIGTERM)
        assert served.program.wait(PATIENCE_S) == 128 + signal.SIGTERM


def test_f09_scrapers_that_hang_up_end_nothing() -> None:
    with serving("--source", "demo:showcase", "--interval", "0.25") as served:
        until(lambda: values(served.series(), "gputop_gpus"))
        for number in range(40):
            with socket.create_connection(("127.0.0.1", served.port)) as rude:
                if number % 2:  # reset the connection; the others close it, and the second write is what meets that
                    rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                rude.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert until(lambda: served.get().status == 200)
        assert served.program.poll() is None


def test_a_demo_has_jobs_findings_and_lost_time() -> None:
    def lost(served: Served) -> list[Series]:
        return [one for one in served.series() if one.name == "gputop_lost_gpu_seconds_total" and one.value > 0]

    with serving("--source", "demo:showcase", "--interval", "0.25") as served:
        found = until(lambda: lost(served))
        assert {one.labels["job_name"] for one in found} >= {"llama-7b"}
        assert values(served.series(), "gputop_finding", job_name="llama-7b")
        assert values(served.series(), "gputop_job_state", job_name="llama-7b", state="found") == [1.0]


def test_a_text_file_needs_no_port_and_goes_at_the_end(tmp_path: Path) -> None:
    place = tmp_path / "gputop.prom"
    with exporting("--source", "demo:showcase", "--interval", "0.25", "--textfile", str(tmp_path)) as program:
        until(lambda: place.exists() and b"gputop_build_info" in place.read_bytes())
        assert not [one for one in descriptors(program.pid).values() if one.startswith("socket:")]
        until(lambda: b"gputop_gpus 8.0\n" in place.read_bytes())
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE_S)
    assert said == f"gputop: writing {place}\n"
    assert program.returncode == 128 + signal.SIGINT
    assert not place.exists()


def test_with_a_token_file_a_scraper_must_know_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    with serving("--source", "demo:healthy", "--token-file", str(path)) as served:
        assert served.get().status == 401
        assert request(served.port, Authorization="Bearer s3cret").status == 200
    path.write_text("  \n")
    assert "has no token" in run("--token-file", str(path)).stderr
    path.chmod(0o666)
    assert "world-writable" in run("--token-file", str(path)).stderr


def test_a_key_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("not covered: openssl is not installed, so no key for TLS could be made")
    cert, key = tmp_path / "server.pem", tmp_path / "server.key"
    made = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    named = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*made, *named], check=True, capture_output=True, timeout=60)
    for mode, warnings in ((0o600, 0), (0o640, 1)):
        key.chmod(mode)
        with serving("--source", "demo:healthy", "--tls-cert", str(cert), "--tls-key", str(key)) as served:
            said = [line for line in served.said if "other users can read" in line]
        assert said == [f"gputop: warning: other users can read the TLS key in {key}: run chmod 600 on it\n"] * warnings


@root_only
def test_f09_an_address_that_others_reach_is_warned_of(tmp_path: Path) -> None:
    """In a network namespace, so that nobody reaches it."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-n", "true"], capture_output=True, check=False).returncode:
        pytest.skip("not covered: no network namespace can be made, so nothing was bound to 0.0.0.0")
    arguments = ("--listen", "0.0.0.0:9400", "--source", "demo:healthy")
    with exporting(*arguments, before=(unshare, "-n")) as program:
        assert program.stderr is not None
        said = [program.stderr.readline(), program.stderr.readline()]
    assert said == [
        "gputop: warning: 0.0.0.0:9400 can be reached from other machines, without TLS (--tls-cert, --tls-key) and a "
        "token (--token-file): names of jobs and GPUs can be read\n",
        "gputop: serving http://0.0.0.0:9400/metrics\n",
    ]


@pytest.mark.waits
def test_f11_the_number_of_series_stays_while_processes_come_and_go(fake: Fake) -> None:
    """Real processes that live a moment, as many as this machine starts: they hold no GPU and have no series."""
    fake.update({"gpus": 1})
    fake.add_process(gpu=0, pid=os.getpid(), vram_bytes=1 << 30, sm=57)
    births = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n os.fork() or os._exit(0)\n os.waitpid(-1, 0)"
    with serving("--interval", "0.25", env=fake.env()) as served:
        until(lambda: values(served.series(), "gputop_process_info", pid=str(os.getpid())))
        churn = subprocess.Popen([sys.executable, "-c", births, str(os.getpid())])
        try:
            until(lambda: (of_host(served) or 0) > 0)
            counts, pids, until_s = set(), set[str](), time.monotonic() + 5.0
            while time.monotonic() < until_s:
                series = served.series()
                counts.add(len(series))
                pids |= {one.labels["pid"] for one in series if "pid" in one.labels}
                time.sleep(0.2)
        finally:
            churn.kill()
            churn.wait()
        assert str(os.getpid()) in pids
        assert len(pids) <= MOST_PROCESSES  # others train beside this test; none of them is a child of that program
        assert max(counts) < MOST_SERIES


def of_host(served: Served) -> float | None:
    found = values(served.series(), "gputop_host_processes")
    return found[0] if found else None
