"""The lab: training code with every performance setting in place, whole (`gputop scaffold`) or in pieces."""
