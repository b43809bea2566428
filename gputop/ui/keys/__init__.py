"""Keys: what each does, what it is called, and how somebody has changed that."""
