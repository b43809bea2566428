"""Jobs, told from processes alone: launcher, ranks, loaders. Pure."""
