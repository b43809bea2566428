"""The table of jobs and processes: columns, the tree, what is found and filtered in it."""
