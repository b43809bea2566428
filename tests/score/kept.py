"""Recordings of real processes: played once, kept, and judged as often as the rules change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.score import followed
from tests.score.disturbed import PLAIN
from tests.score.gains import TWIN
from tests.score.marks import Result
from tests.workloads.stage import Cast, Play, staged


class NotKept(RuntimeError):
    """It was not recorded, and nothing is to be played."""


class Kept:
    """The folder of the recordings; what is not in it is played, if it may be."""

    def __init__(self, folder: Path, *, plays: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._plays = folder, plays

    def recording(self, plays: Sequence[Play], seconds: float) -> tuple[Path, list[Cast]]:
        """Of these plays at the same time, and who was on the stage."""
        variants = dict.fromkeys(TWIN if play.healthy else PLAIN.name for play in plays)
        name = _file(", ".join((*dict.fromkeys(play.case.name for play in plays), *variants)))
        file, casts = self._folder / f"{name}.jsonl.gz", self._folder / f"{name}.json"
        if not casts.exists():
            self._may_play(file)
            file.unlink(missing_ok=True)
            casts.write_text(json.dumps(staged(*plays, seconds=seconds, file=file)))
        return file, [Cast(*cast) for cast in json.loads(casts.read_text())]

    def followed(self) -> Result:
        """How it went when gputop's advice was followed: only that is kept."""
        file = self._folder / f"{_file(followed.NAME)}.json"
        if not file.exists():
            self._may_play(file)
            file.write_text(json.dumps([(PLAIN.name, "gputop", asdict(followed.played()))]))
        ((_, _, result),) = json.loads(file.read_text())
        return Result(**{**result, "misled": tuple(result["misled"])})

    def _may_play(self, lacking: Path) -> None:
        if not self._plays:
            raise NotKept(f"there is no {lacking}")


def _file(name: str) -> str:
    return name.replace("/", "-")
