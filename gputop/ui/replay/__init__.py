"""Recordings on the screen: played, or made."""
