"""The lab: training code with every setting in place, and experiments on the user's own model and data."""
