"""Scenarios with one dial at the value of a threshold."""
