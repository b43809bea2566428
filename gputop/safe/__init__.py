"""What every layer may need and must not get wrong: outside text, private files, identity, the terminal."""
