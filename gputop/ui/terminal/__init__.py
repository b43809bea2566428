"""What stands between Textual and the terminal: the driver, its fence, and the cells that differ."""
