"""Was it ever run? Each step that gputop advises: a real process before and after it, or why that cannot be tried."""
