"""What every test file may ask for: golden files, a fake NVIDIA driver, a program under it."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gputop.export import codec
from gputop.model import Frame
from tests.diagnose_runs import Recorded
from tests.fakenvml import Fake, NoCompiler
from tests.fakenvml.remote import Remote
from tests.faults import Matrix
from tests.run_order import Order

# shared assertions explain a failure as those in a test file do
pytest.register_assert_rewrite("tests.terminal_endings", "tests.pty_programs")

GOLDEN = Path(__file__).parent / "golden"

settings.register_profile("gputop", deadline=None)  # on a busy machine any test takes long once in a while
settings.load_profile("gputop")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until all is collected: nothing of it ever goes
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what nohup starts ignores it, and so would all that tests start
    config.pluginmanager.register(Matrix(), "fault-matrix")
    config.pluginmanager.register(Order(), "order")


def pytest_collection_finish() -> None:
    gc.freeze()  # or each search for garbage looks at five thousand tests
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden files anew")
    parser.addoption("--faults", type=Path, help="a file of the fault matrix, for a suite in several runs")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares, or writes the file anew with `--golden`."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {name}: write it with --golden"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def universal_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the screen read the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """A fake NVIDIA driver with eight GPUs; the test is skipped, with the reason, where it cannot be built."""
    try:
        return Fake(tmp_path / "driver")
    except NoCompiler as why:
        pytest.skip(f"not covered: {why}")


@pytest.fixture
def ask(fake: Fake) -> Iterator[Remote]:
    """A program with the real nvidia-ml-py under that driver."""
    with Remote(fake) as ask:
        yield ask


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """Writes down so many seconds of a machine; the path."""

    def record(frame: Callable[[float], Frame], seconds: int = 120) -> str:
        lines = [codec.header("node07"), *(codec.frame_line(frame(float(t))) for t in range(seconds))]
        path = tmp_path / "run.jsonl"
        path.write_text("".join(map(codec.line, lines)))
        return str(path)

    return record
