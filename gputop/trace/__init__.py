"""Traces that torch.profiler and Kineto write: reading them, where their time goes, what that means, what changed."""
