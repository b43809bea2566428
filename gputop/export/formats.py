"""Updates as text for people and programs: one writer for each `--format`."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.export import csv, json, text
from gputop.export.format import Format

FORMATS: Mapping[str, Format] = {"text": text.table, "json": json.objects, "jsonl": json.lines, "csv": csv.rows}
