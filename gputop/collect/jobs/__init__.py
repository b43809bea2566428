"""Jobs, recognised from processes alone: launcher, ranks, workers. Pure."""
