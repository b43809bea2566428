"""Prometheus: series of the newest frame, over HTTP or in a file; rules and a dashboard made of the same names."""
