"""Security-sensitive helpers for every layer: external text, private files, process identity, the terminal."""
