"""What opens over the screen and goes again: questions, lists, help, setup, the palette."""
