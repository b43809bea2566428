"""The driver as the check asks it: nvidia-ml-py by name, every answer timed, kept as plain data, never an exception."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gputop.collect.nvml.connection import release
from gputop.collect.nvml.thermal import slowed_ids
from gputop.safe.text import clean

OK, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND = 0, 3, 6, 13
MEMORY_V2 = 0x02000028
_VALUE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by value type


class NoDriver(Exception):
    """There is no driver to ask; the text is one line: what, why, what to do."""


class Answer(NamedTuple):
    """What a call returned: its code, its value (None unless the code is 0), how long it took."""

    code: int
    value: Any
    spent_s: float


class Field(NamedTuple):
    """One field value."""

    number: int
    scope: int
    code: int
    kind: int
    value: float | None
    stamp_us: int


class Gpu(NamedTuple):
    """The GPU that is measured."""

    index: int
    handle: Any
    uuid: str
    name: str


def plain(value: Any) -> Any:
    """A ctypes value as plain data."""
    if isinstance(value, (ctypes.Structure, ctypes.Union)):
        return {name: plain(getattr(value, name)) for name, *_ in value._fields_}
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, ctypes._SimpleCData):
        return plain(value.value)
    if value is None or isinstance(value, (str, int, float)):
        return value
    return {name: plain(one) for name, one in vars(value).items()} if hasattr(value, "__dict__") else repr(value)


class Driver:
    """One nvmlInit. `keep` is told every answer that a recording should hold."""

    def __init__(self) -> None:
        self.at: str | None = None  # the call under way
        self.label = ""  # what goes on while the driver is asked
        self.keep: Callable[[dict[str, Any]], None] = lambda _line: None
        self._binding = _binding()
        try:
            self._binding.nvmlInit()
        except self._binding.NVMLError as error:
            why = f"{error} ({self.error(error.value)})"
            raise NoDriver(f"the NVIDIA driver does not answer: {why}; run this where nvidia-smi works") from None
        version = self.ask("nvmlSystemGetDriverVersion", kept=False).value
        self.slowed = slowed_ids(release(version.decode() if isinstance(version, bytes) else version))

    @property
    def binding(self) -> Any:
        """The module pynvml."""
        return self._binding

    def error(self, code: int) -> str:
        """The name of an error code."""
        start = "NVML_ERROR_"
        names = (name for name in dir(self._binding) if name.startswith(start))
        found = next((name for name in names if getattr(self._binding, name) == code), None)
        return found.removeprefix(start) if found else "OK" if code == OK else f"error {code}"

    def gpus(self) -> list[Gpu]:
        """Every GPU that lets itself be read, by index."""
        found = []
        for index in range(self.ask("nvmlDeviceGetCount").value or 0):
            handle = self.ask("nvmlDeviceGetHandleByIndex", index, kept=False).value
            if handle is not None:
                texts = (self.ask(f"nvmlDeviceGet{what}", handle, gpu=index).value for what in ("UUID", "Name"))
                uuid, name = (clean(text or "unknown") for text in texts)
                found.append(Gpu(index, handle, uuid, name))
        return found

    def ask(self, name: str, *args: Any, gpu: int | None = None, kept: bool = True) -> Answer:
        """Call a function of nvidia-ml-py by name; a code instead of an exception."""
        function = getattr(self._binding, name, None)
        if function is None:
            return Answer(FUNCTION_NOT_FOUND, None, 0.0)
        self.at = name
        code, value, start_s = OK, None, time.perf_counter()
        try:
            value = function(*args)
        except self._binding.NVMLError as error:
            code = int(error.value)
        except UnicodeDecodeError as error:
            value = error.object.decode("utf-8", "replace")
        spent_s = time.perf_counter() - start_s
        self.at = None
        if kept:
            numbers = [plain(arg) for arg in args if isinstance(arg, (int, float, str, list, tuple))]
            spent_us = round(spent_s * 1e6, 1)
            self._tell(gpu, call=name, args=numbers, code=code, value=plain(value), spent_us=spent_us)
        return Answer(code, value, spent_s)

    def on(self, gpu: Gpu, name: str, *args: Any, kept: bool = True) -> Answer:
        """The same, about one GPU."""
        return self.ask(name, gpu.handle, *args, gpu=gpu.index, kept=kept)

    def fields(self, gpu: Gpu, *asked: tuple[int, int]) -> list[Field]:
        """Field values by (id, scope), in one call; empty if the call itself fails."""
        answer = self.ask("nvmlDeviceGetFieldValues", gpu.handle, list(asked), gpu=gpu.index, kept=False)
        found = []
        for one in answer.value or ():
            name = _VALUE[one.valueType] if 0 <= one.valueType < len(_VALUE) else None
            value = getattr(one.value, name) if one.nvmlReturn == OK and name else None
            found.append(Field(one.fieldId, one.scopeId, one.nvmlReturn, one.valueType, value, one.timestamp))
        self.note("nvmlDeviceGetFieldValues", gpu, answer, found)
        return found

    def note(self, name: str, gpu: Gpu, answer: Answer, value: Any) -> None:
        """Keep a call whose value only its caller can put into plain data."""
        self._tell(
            gpu.index, call=name, args=[], code=answer.code, value=value, spent_us=round(answer.spent_s * 1e6, 1)
        )

    def close(self) -> None:
        """Let go of the driver."""
        self.ask("nvmlShutdown", kept=False)

    def _tell(self, gpu: int | None, **said: Any) -> None:
        self.keep({"wall_s": time.time(), "mono_s": time.monotonic(), "label": self.label, "gpu": gpu, **said})


def _binding() -> Any:
    try:
        import pynvml
    except ImportError:
        raise NoDriver(
            "nvidia-ml-py is not installed: `make gpu-check` installs it, or pip install nvidia-ml-py"
        ) from None
    if not hasattr(pynvml, "nvmlDeviceGetFieldValues"):
        raise NoDriver("the module pynvml here is not NVIDIA's: pip uninstall pynvml; pip install nvidia-ml-py")
    return pynvml
