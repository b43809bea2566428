"""What every program has that measures in the user's own Python: its request, its answers, and the user's function.

Standard library and torch only, Python 3.8 and later. gputop starts such a program by path, as `python child_X.py FD
REQUEST`, and it needs no gputop. REQUEST is a JSON object that names the function; the answers are JSON lines on the
descriptor FD, so that standard output stays the user's:

    {"kind": "begin"}       it runs, and imports torch
    {"kind": "ready", ...}  the function has made what is measured: facts about it
    {"kind": "progress"}    `done` of what is counted; every line starts the time limit again
    {"kind": "error", ...}  what was raised, where, and its `cause`: "memory" where there was too little
    {"kind": "done", ...}   the results; the last line

A line with `patience_s` says that the next one may take so long, where that is longer than the limit: a compilation.

The program puts its own folder on sys.path, imports this module last and calls `run(answer)`. This module takes the
folder away again, before the user's code is imported: names in it, such as train, must not be found in place of theirs.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import sys
import time
import traceback

SEED = 0
SAY_S = 0.2  # seconds between two progress lines
FOLDER = os.path.dirname(os.path.abspath(__file__))
FRAME = re.compile(r'^\s+File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# messages of torch and the C library on memory shortage, in any class of exception
SHORT = re.compile(
    r"out of memory|can('t|not) allocate memory|not enough memory|std::bad_alloc|_alloc_failed", re.IGNORECASE
)

sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]


class Wrong(Exception):
    """An error the user can fix, in one line."""


class Pipe:
    """The pipe to gputop; without a reader the process ends."""

    def __init__(self, fd):
        os.set_inheritable(fd, False)
        self.fd = fd
        self.said_s = 0.0

    def say(self, kind, **values):
        """Write one line."""
        data = (json.dumps(dict(values, kind=kind)) + "\n").encode()
        while data:
            data = data[os.write(self.fd, data) :]
        self.said_s = time.perf_counter()

    def progress(self, done):
        """Report the number of batches or steps done, at intervals."""
        if time.perf_counter() - self.said_s >= SAY_S:
            self.say("progress", done=done)


def run(answer):
    """Process the single request with `answer(pipe, torch, request)`; the exit code adds nothing to the pipe."""
    pipe, request = Pipe(int(sys.argv[1])), json.loads(sys.argv[2])
    die_with_parent()
    try:
        pipe.say("begin")
        answer(pipe, seeded(), request)
    except Wrong as wrong:
        pipe.say("error", text=str(wrong), where="", trace="")
    except SystemExit as ending:
        text = "%s called sys.exit(%r)" % (request["function"], ending.code)
        pipe.say("error", text=text, where="", trace=traceback.format_exc())
    except Exception as error:
        pipe.say("error", **failure(error, traceback.format_exc()))


def die_with_parent():
    """End with gputop, even if that is killed."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    except Exception:
        pass


def seeded():
    """torch with the common seed of all runs."""
    try:
        import torch
        import torch.utils.data
    except ImportError as error:
        if error.name != "torch":
            raise
        raise Wrong(
            "torch is missing in %s: name the interpreter of the training with --python" % sys.executable
        ) from None
    random.seed(SEED)
    torch.manual_seed(SEED)
    return torch


def failure(error, trace):
    """The exception, and the last place in its traceback in the user's own code."""
    library = os.path.dirname(os.__file__)
    frames = [frame for frame in FRAME.findall(trace) if not ours(frame[0]) and "<" not in frame[0]]
    own = [frame for frame in frames if not frame[0].startswith(library) and "-packages" not in frame[0]]
    foreign = [frame for frame in frames if os.sep + "torch" + os.sep not in frame[0]]
    last = (own or foreign or frames)[-1:]
    where = "%s:%s in %s" % last[0] if last else ""
    said = str(error).strip().splitlines()
    text = "%s: %s" % (type(error).__name__, said[0]) if said else type(error).__name__
    if any(line.startswith("Original Traceback") for line in said):  # of a worker; torch repeats the whole text
        raised = [line for line in said if re.match(r"[A-Za-z_][\w.]*(: |$)", line)]
        text = (raised or said)[-1]
    short = isinstance(error, MemoryError) or SHORT.search(str(error)) is not None
    return {"text": text, "where": where, "trace": trace, "cause": "memory" if short else ""}


def ours(path):
    """Whether a file is one of these programs."""
    folder, name = os.path.split(os.path.abspath(path))
    return folder == FOLDER and name.startswith("child_")


def make(request):
    """The result of the user's function."""
    function = find(request)
    args = request["args"]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function()
    for given in [args, []] if args else [args]:
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return function(*given)
    name = request["function"]
    raise Wrong("%s%s does not take the %d arguments after --" % (name, signature, len(args)))


def find(request):
    """The user's function; its file or module is imported as Python itself would start it."""
    file, module, name = request["file"], request["module"], request["function"]
    sys.argv = [file or module] + request["args"]
    if file:
        sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
        found = imported_file(os.path.abspath(file))
    else:
        sys.path.insert(0, os.getcwd())
        try:
            __import__(module)
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(error.name + ".")):
                raise Wrong("there is no module %s in %s" % (error.name, sys.executable)) from None
            raise
        found = sys.modules[module]
    function = found
    for part in name.split("."):
        function = getattr(function, part, None)
    if callable(function):
        return function
    known = [key for key, value in vars(found).items() if inspect.isfunction(value) and key[0] != "_"]
    own = [key for key in known if getattr(vars(found)[key], "__module__", "") == found.__name__]
    has = ": it has %s" % ", ".join(own[:8]) if own else ""
    raise Wrong("%s has no function %s%s" % (file or module, name, has))


def imported_file(path):
    """Import a file under its own module name, which workers that do not fork look up."""
    from importlib.util import module_from_spec, spec_from_file_location

    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules:
        name = "user_" + name
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Wrong("%s cannot be imported: it is not a Python file" % path)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
