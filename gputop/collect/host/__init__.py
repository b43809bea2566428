"""The host lane: one small reader for each part of the machine, one Host out of all of them."""
