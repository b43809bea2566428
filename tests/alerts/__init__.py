"""Alerts: what fires, what is sent, and what receivers do to the monitor."""
