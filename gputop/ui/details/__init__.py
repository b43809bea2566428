"""The details of one process: what it does now, where it is blocked, and all that the kernel reports of it."""
