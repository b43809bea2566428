"""What the driver, /proc and /sys say, read in lanes that may block without anyone waiting."""
