"""Traces of torch.profiler and Kineto: parsing, time breakdown, signatures, comparison."""
