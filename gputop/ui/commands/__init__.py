"""What a person can do, by feature: `table` lists all of it."""
