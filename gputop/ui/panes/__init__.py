"""What stands around the table: header, host, preview, key bar, and where each has its place."""
