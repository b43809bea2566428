"""The process lane: which processes run, their metrics, and the slow reads, which have a separate lane."""
