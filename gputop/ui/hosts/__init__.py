"""The overview of several hosts: a line each, and what is known of the selected one."""
