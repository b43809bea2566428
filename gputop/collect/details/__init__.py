"""The details of one open process, read from /proc part by part, each part in a separate lane."""
