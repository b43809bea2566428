"""What the rules say, on the screen: one line, four, a pane, a column, or all of it."""
