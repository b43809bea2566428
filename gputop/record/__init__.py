"""Recordings: written by a sink, read by a source; one format for file, pipe and `--format jsonl`."""
