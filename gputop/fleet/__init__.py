"""Many hosts from an existing Prometheus: queries, the lines of the overview, and an hour of history."""
