"""How often the diagnosis is right: labelled runs, disturbed in several ways, judged by gputop and by simpler rules."""
