"""Jobs, ranks and loaders as lines: nesting, sums, folding, order, and what is not shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gputop import labels
from gputop.model import GpuShare, Job, Process, Role
from gputop.process_totals import waited
from gputop.ui.table import tree
from gputop.ui.table.kinship import below
from gputop.ui.table.row import Key, TableRow
from gputop.ui.table.rows import weight
from gputop.ui.table.tree import TableView
from tests.hostile import STRINGS
from tests.scripted_jobs import GIB, MIB, frame, notebook, process, training, uuid

LLAMA = training("llama", 41000, ranks=4, loaders=8)
SD3 = training("sd3", 52000, ranks=3, loaders=2, first_gpu=4, user="bob")


def shape(rows: list[TableRow]) -> list[str]:
    """Rails and labels, as a tree to be read."""
    rails = str.maketrans({"s": "| ", "b": "|-", "l": "`-", " ": "  "})
    return [f"{row.rails.translate(rails)}{'-+'[row.open] if row.open is not None else ''}{row.label}" for row in rows]


def find(rows: list[TableRow], label: str) -> TableRow:
    return next(row for row in rows if row.label == label)


def key(pid: int) -> Key:
    return ("process", pid, pid * 10)


def test_a_job_is_its_ranks_and_the_launcher_is_its_own_line() -> None:
    rows = tree.build(frame(LLAMA, SD3, gpus=8), TableView())
    assert shape(rows) == [
        "+llama",
        "|--41100",
        "|--41200",
        "|--41300",
        "`--41400",
        "+sd3",
        "|--52100",
        "|--52200",
        "`--52300",
    ]


def test_loaders_beyond_three_fold_into_one_line_until_it_is_unfolded() -> None:
    shown = frame(training("one", 100, ranks=1, loaders=8))
    folds = {key(200): True}
    assert shape(tree.build(shown, TableView(folds=folds))) == [
        "+one", "`-+200", "  |-201", "  |-202", "  `--+6 more"
    ]  # fmt: skip
    more = find(tree.build(shown, TableView(folds=folds)), "+6 more")
    assert (more.text, more.figures.total("cpu_percent")) == ("worker pt_data_worker 2-7", 300)
    rows = tree.build(shown, TableView(folds={**folds, more.key: True}))
    assert shape(rows)[2:] == ["  |-201", "  |-202", "  |-203", "  |-204", "  |-205", "  |-206", "  |-207", "  `-208"]
    assert [row.text for row in rows[2:4]] == ["worker pt_data_worker 0", "worker pt_data_worker 1"]


def test_three_loaders_are_three_lines() -> None:
    rows = tree.build(frame(training("one", 100, ranks=1, loaders=3)), TableView(level=2))
    assert shape(rows) == ["+one", "`-+200", "  |-201", "  |-202", "  `-203"]


@pytest.mark.parametrize(("level", "lines"), [(0, 1), (1, 2), (2, 5), (3, 11)])
def test_levels_unfold_jobs_then_ranks_then_everything(level: int, lines: int) -> None:
    rows = tree.build(frame(training("one", 100, ranks=1, loaders=8)), TableView(level=level))
    assert len(rows) == lines
    assert any(row.text.startswith("launcher torchrun") for row in rows) == (level == 3)


def test_a_job_line_sums_its_processes_and_averages_what_does_not_add_up() -> None:
    job = find(tree.build(frame(LLAMA), TableView()), "llama")
    assert job.text == "torchrun · 4 ranks · 32 workers"
    figures = job.figures
    assert figures.total("cpu_percent") == 4 * 100 + 32 * 50
    assert figures.total("threads") == 1 + 4 * 63 + 32 * 3
    assert figures.vram_bytes == 4 * 66 * GIB
    assert figures.total("read_bytes_per_s") == round(32 * 58 * MIB)
    assert figures.gpus == ("0", "1", "2", "3")
    assert figures.gpu_percent == pytest.approx(51.5)
    assert figures.io_percent == pytest.approx(40), "loaders that wait are not diluted by ranks that do not"


@pytest.mark.parametrize(
    ("ranks", "loaders", "text"),
    [
        (1, 8, "torchrun · 1 of 4 ranks · 8 workers"),
        (2, 0, "torchrun · 2 of 4 ranks"),
        (0, 3, "torchrun · 0 of 4 ranks · 3 workers"),
        (4, 32, "torchrun · 4 ranks · 32 workers"),
    ],
)
def test_a_job_of_which_some_are_looked_for_says_how_many_of_its_ranks(ranks: int, loaders: int, text: str) -> None:
    _, members = LLAMA
    wanted = [one.identity for one in members if one.role is Role.TRAINER][:ranks]
    wanted += [one.identity for one in members if one.role is Role.LOADER][:loaders]
    assert find(tree.build(frame(LLAMA), TableView(), only=frozenset(wanted)), "llama").text == text


def test_a_folded_rank_speaks_for_its_loaders_and_an_open_one_for_itself() -> None:
    shown = frame(LLAMA)
    shut, opened = (find(tree.build(shown, TableView(folds=f)), "41100") for f in ({}, {key(41100): True}))
    assert (shut.figures.total("cpu_percent"), opened.figures.total("cpu_percent")) == (500, 100)
    assert (shut.figures.pid, shut.figures.gpus, shut.figures.gpu_percent) == (41100, ("0",), 50)
    assert shut.text == "rank0 python train.py (+8 workers) --config llama.yaml"
    assert opened.text == "rank0 python train.py --config llama.yaml"


def test_unknown_figures_are_left_out_of_sums_and_alone_stay_unknown() -> None:
    job, members = training("one", 100, ranks=1, loaders=2)
    members[2] = replace(members[2], read_bytes_per_s=None, cpu_percent=None)
    rows = tree.build(frame((job, members)), TableView())
    assert rows[0].figures.total("read_bytes_per_s") == round(58 * MIB)
    hidden = [replace(member, read_bytes_per_s=None) for member in members]
    assert tree.build(frame((job, hidden)), TableView())[0].figures.total("read_bytes_per_s") is None


def test_a_process_whose_gpu_use_is_unknown_is_not_drawn_as_one_that_rests() -> None:
    for percent, token in ((None, "text"), (0.0, "dim"), (3.0, "text")):
        holder = process(7, gpus=(GpuShare(uuid=uuid(0), busy_percent=percent, vram_bytes=GIB),))
        (row,) = tree.build(frame(loose=(holder,)), TableView())
        assert weight(row) == token


def test_waiting_counts_by_the_time_each_wanted_to_run() -> None:
    half, none = process(1, cpu_percent=50.0, run_wait_percent=50.0), process(2, cpu_percent=50.0, run_wait_percent=0.0)
    assert waited([half, none]) == pytest.approx(100 * 50 / 150)
    assert waited([process(3, run_wait_percent=None)]) is None
    assert waited([process(4, cpu_percent=0.0, run_wait_percent=100.0)]) == 0


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, False),
        ({"cpu_percent": 99.0}, False),
        ({"cpu_percent": 101.0}, True),
        ({"read_bytes_per_s": 51e6}, True),
        ({"read_bytes_per_s": 30e6, "write_bytes_per_s": 30e6}, True),
        ({"cpu_percent": None, "read_bytes_per_s": None, "write_bytes_per_s": None}, False),
        ({"gpus": (GpuShare(uuid="GPU-0"),)}, True),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_a_process_without_gpu_kin_is_shown_when_it_is_busy(fields: dict, shown: bool, nested: bool) -> None:
    only = frame(loose=(process(7, **fields),))
    assert bool(tree.build(only, TableView(tree=nested))) == shown
    assert tree.build(only, TableView(tree=nested, every_process=True))


def test_other_children_of_a_job_are_shown_when_they_do_something() -> None:
    job, members = training("one", 100, ranks=1, loaders=0)
    quiet = process(300, 200, job="one", command=("compile-worker",))
    loud = process(301, 200, job="one", command=("rsync",), cpu_percent=150.0)
    rows = tree.build(frame((job, [*members, quiet, loud])), TableView(level=2))
    assert [row.text for row in rows[2:]] == ["rsync"]
    assert rows[0].figures.total("cpu_percent") == 250, "a hidden child still counts in the sum"


def test_a_loader_below_a_shell_of_its_rank_belongs_to_the_rank() -> None:
    job, members = training("one", 100, ranks=1, loaders=0)
    shell = process(300, 200, job="one", command=("sh",))
    loader = process(301, 300, job="one", role=Role.LOADER, name="pt_data_worker")
    rows = tree.build(frame((job, [*members, shell, loader])), TableView(level=2))
    assert find(rows, "301").parent == key(200)


def test_a_job_that_has_no_rank_yet_shows_what_it_has() -> None:
    job, members = training("one", 100, ranks=0, loaders=0)
    rows = tree.build(frame((job, members)), TableView())
    assert [row.text for row in rows] == ["torchrun · 1 process", "launcher torchrun train.py"]


@pytest.mark.parametrize(
    ("sort", "reverse", "labels"),
    [
        ("cpu", False, ["llama", "sd3"]),
        ("cpu", True, ["sd3", "llama"]),
        ("pid", False, ["llama", "sd3"]),
        ("pid", True, ["sd3", "llama"]),
        ("gpu", False, ["llama", "sd3"]),
        ("user", True, ["sd3", "llama"]),
        ("vram", False, ["llama", "sd3"]),
    ],
)
def test_jobs_are_sorted_and_ranks_stay_in_rank_order(sort: str, reverse: bool, labels: list[str]) -> None:
    rows = tree.build(frame(SD3, LLAMA, gpus=8), TableView(sort=sort, reverse=reverse))
    assert [row.label for row in rows if not row.rails] == labels
    assert [row.label for row in rows if row.parent == ("job", "llama")] == ["41100", "41200", "41300", "41400"]


def test_what_is_unknown_sorts_last_both_ways() -> None:
    loose = (process(1, cpu_percent=None), process(2, cpu_percent=5.0), process(3, cpu_percent=7.0))
    for reverse, expected in ((False, ["3", "2", "1"]), (True, ["2", "3", "1"])):
        rows = tree.build(frame(loose=loose), TableView(reverse=reverse, every_process=True))
        assert [row.label for row in rows] == expected


def test_a_given_order_is_kept_and_new_lines_follow() -> None:
    before = frame(loose=(process(1, cpu_percent=300.0), process(2, cpu_percent=200.0)))
    order = dict(tree.walk(tree.build(before, TableView())))
    after = frame(loose=(process(1, cpu_percent=150.0), process(2, cpu_percent=900.0), process(3, cpu_percent=950.0)))
    assert [row.label for row in tree.build(after, TableView(), order, calm=True)] == ["1", "2", "3"]
    assert [row.label for row in tree.build(after, TableView(), order)] == ["3", "2", "1"]


def ordered(view: TableView, *values: dict[int, float]) -> list[list[str]]:
    """The order after each of several frames, from values of the column by pid; strict for the first."""
    order, found = tree.NOWHERE, []
    for each in values:
        loose = tuple(process(pid, **{BY_FIELD[view.sort]: value}) for pid, value in each.items())
        rows = tree.build(frame(loose=loose), view, order)
        order = dict(tree.walk(rows))
        found.append([row.label for row in rows])
    return found


BY_FIELD = {"cpu": "cpu_percent", "step": "step_s"}


def test_what_is_sorted_first_is_sorted_strictly_and_then_stays_while_it_wiggles() -> None:
    view = TableView(every_process=True)
    first = {1: 201.0, 2: 204.0, 3: 199.0}
    wiggled, moved = {1: 207.0, 2: 199.0, 3: 206.0}, {1: 207.0, 2: 190.0, 3: 206.0}
    assert ordered(view, first, wiggled, moved) == [["2", "1", "3"], ["2", "1", "3"], ["1", "3", "2"]]
    assert ordered(view, {1: 0.2, 2: 0.4}, {1: 0.4, 2: 0.1}, {1: 3.0, 2: 0.1}) == [["2", "1"], ["2", "1"], ["1", "2"]]


def test_little_by_little_a_line_moves_too() -> None:
    """What it is held against is the value that placed it, not the last one."""
    values = [{1: 200.0, 2: 210.0 - 4 * step} for step in range(7)]
    assert [order for order, *_ in ordered(TableView(every_process=True), *values)] == ["2"] * 3 + ["1"] * 4


def test_times_below_a_second_are_sorted() -> None:
    view = TableView(sort="step", every_process=True)
    assert ordered(view, {1: 0.045, 2: 0.31}, {1: 0.3, 2: 0.31}) == [["2", "1"], ["2", "1"]]
    assert ordered(view, {1: 0.045, 2: 0.31}, {1: 0.9, 2: 0.31})[1] == ["1", "2"]


def test_exact_places_sort_by_the_values_as_they_are() -> None:
    view = TableView(every_process=True)
    order = dict(
        tree.walk(tree.build(frame(loose=(process(1, cpu_percent=201.0), process(2, cpu_percent=204.0))), view))
    )
    later = frame(loose=(process(1, cpu_percent=204.0), process(2, cpu_percent=202.0)))
    assert [row.label for row in tree.build(later, view, order)] == ["2", "1"]
    assert [row.label for row in tree.build(later, view, tree.exact(order))] == ["1", "2"]


def test_the_flat_list_has_every_process_of_a_job_and_no_folds() -> None:
    rows = tree.build(frame(training("one", 100, ranks=1, loaders=5)), TableView(tree=False))
    assert {row.label for row in rows} == {"100", "200", *(str(200 + n) for n in range(1, 6))}
    assert all(row.rails == "" and row.open is None for row in rows)
    assert find(rows, "203").text == "worker pt_data_worker 2"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"unseen": "foreign"}, "host PID 918273 (other namespace)"),
        ({"unseen": "exited"}, "exited (driver still lists)"),
        ({"unseen": "hidden"}, "hidden (other user)"),
        ({"command": (), "name": "kworker"}, "[kworker]"),
        ({"command": ("",), "name": "x"}, "[x]"),
        ({"command": ("/usr/bin/python3.11", "-m", "ipykernel", "-f", "k")}, "python -m ipykernel -f k"),
        ({"command": ("/opt/x/pythonic",)}, "pythonic"),
        ({"command": ("a", "b" * 5000, "c")}, f"a {'b' * (labels.MOST - 2)}"),
        ({"role": Role.LOADER, "name": "pt_data_worker"}, "worker pt_data_worker"),
        ({"role": Role.LAUNCHER, "command": ("/bin/torchrun",)}, "launcher torchrun"),
    ],
)  # fmt: skip
def test_commands_in_words(fields: dict, text: str) -> None:
    assert labels.command(process(918273, **fields)) == text


def test_a_reused_pid_is_another_line() -> None:
    old, new = process(7, cpu_percent=200.0), replace(process(7, cpu_percent=200.0), started_ticks=99)
    assert tree.build(frame(loose=(old,)), TableView())[0].key != tree.build(frame(loose=(new,)), TableView())[0].key


def test_hostile_strings_become_lines() -> None:
    for text in STRINGS:
        hostile = Process(pid=7, started_ticks=1, user=text, name=text, command=(text, text), cpu_percent=200.0)
        (row,) = tree.build(frame(loose=(hostile,)), TableView())
        assert len(row.text) <= labels.MOST


def test_below_a_process_are_its_children_and_theirs_and_nobody_who_is_older_than_his_parent() -> None:
    top, child, grandchild = process(30), process(40, 30), process(50, 40)
    older = replace(process(20, 30), started_ticks=1)
    others = (process(60, 1), older, process(21, 20), child, top, grandchild)
    assert below(top, others) == [child, grandchild]
    assert below(grandchild, others) == []
    circle = [replace(process(pid, 30 + (pid - 29) % 3), started_ticks=7) for pid in (30, 31, 32)]
    assert {one.pid for one in below(circle[0], circle)} == {31, 32}
    itself = process(5, 5)
    assert below(itself, [itself]) == []
    assert below(replace(top, verified=False), others) == [], "its pid is one of another namespace"
    assert below(process(0, 0), [process(1, 0)]) == [], "the kernel is nobody's parent here"


@pytest.mark.parametrize(("busy", "said"), [(0.0, " · holds 2.1G, idle 5s"), (None, "")])
def test_what_a_gpu_does_is_unknown_and_not_idle_where_it_does_not_tell(busy: float | None, said: str) -> None:
    job, (kernel,) = notebook("jupyter", 100, 0)
    kernel = replace(kernel, gpus=tuple(replace(share, busy_percent=busy) for share in kernel.gpus))
    seen = frame((job, [kernel]))
    seen = replace(seen, gpus=tuple(replace(gpu, busy_percent=busy) for gpu in seen.gpus))
    row = find(tree.build(seen, TableView(), idle=lambda _: 5.0), "jupyter")
    assert row.said[0] == f"notebook · 1 process{said}"


@pytest.mark.parametrize(("age_s", "idle"), [(540.0, "idle 9m"), (420.0, "idle 7m")])
def test_a_job_is_not_idle_for_longer_than_it_is_there(age_s: float, idle: str) -> None:
    job, (kernel,) = notebook("jupyter", 100, 0)
    row = find(tree.build(frame((job, [replace(kernel, age_s=age_s)])), TableView(), idle=lambda _: 540.0), "jupyter")
    assert row.said[0].endswith(idle)


def test_a_job_of_one_rank_with_sampled_children_says_so_and_adds_them_up_once() -> None:
    rank = process(100, role=Role.TRAINER, job="100.1", cpu_percent=50.0)
    below = [
        process(200 + n, 100, role=Role.OTHER, job="100.1", cpu_percent=1.0, sampled=n > 9, command=())
        for n in range(80)
    ]
    everybody = [rank, *below]
    ids = tuple(each.identity for each in everybody)
    job = Job(key="100.1", name="train", user="alice", launcher="python", ranks=ids[:1], members=ids)
    top, *_ = tree.build(frame((job, everybody)), TableView())
    assert top.texts[0].endswith("80 children, sampled")
    assert top.same is top.children[0]
    assert replace(top, same=None, _sums=None).sums == top.sums
    assert top.sums.total("cpu_percent") == 130.0
