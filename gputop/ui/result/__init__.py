"""The screen that shows what a profiler found: stacks, a profile, a trace, or what is kept of one."""
