"""python -m tests.throwaway_column: what gputop makes of a column that is declared, and named nowhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import gputop

DECLARED = """\
    Column(
        "main", "MAIN%", 7, "CPU time of its main thread", "/proc",
        _total("main_thread_percent"), units.percent, 89, also=("mainthread",),
    ),
"""
LAST = '    Column(\n        "command"'


def declare() -> None:
    """Put it before the last one, as if it stood in the file; nobody has imported that yet."""
    place = Path(gputop.__file__).with_name("columns.py")
    written = place.read_text()
    assert written.count(LAST) == 1
    columns = ModuleType("gputop.columns")
    sys.modules[columns.__name__] = columns
    exec(compile(written.replace(LAST, DECLARED + LAST), place, "exec"), columns.__dict__)


def main() -> None:
    """Where it is to be seen."""
    from gputop import docs
    from gputop.config import BY_KEY
    from gputop.export.text import render
    from gputop.ui.dialogs.help import pages
    from gputop.ui.table import rows, tree
    from gputop.ui.table.filter import parse
    from gputop.ui.theme import Look
    from tests.scripted_jobs import frame, process, training

    seen = frame(loose=(process(1, main_thread_percent=7.0), process(2, main_thread_percent=93.0)))
    where = rows.places(160)
    lines = tree.build(seen, tree.TableView(sort="main", every_process=True))
    print("screen:", where[-2].column.title, *(rows.texts(row, where)[-2] for row in lines))
    print("settings:", *(name for name in ("sort", "columns") if "main" in BY_KEY[name].choices))
    asked = [parse(text) for text in ("main>90", "main%<10", "mainthread>0")]
    print("filter:", *(len(each.found(seen)) for each in asked if each))
    page = docs.read("columns")
    print("manual:", *(word for word in ("MAIN% (`main`)", "`mainthread`") if word in page))
    print("help:", *(line.strip(60).text for line in pages(Look(), 100, keys=(), asked="main%")["columns"]))
    job, members = training("llama", 10, ranks=1, loaders=0)
    text = render(frame((job, members)), 160)
    print("text:", *(word for word in text.split() if word == "MAIN%"))


if __name__ == "__main__":
    declare()
    main()
