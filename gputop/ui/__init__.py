"""The full-screen monitor: the only layer that knows Textual."""
