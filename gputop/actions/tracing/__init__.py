"""Traces of torch.profiler from processes that run."""
