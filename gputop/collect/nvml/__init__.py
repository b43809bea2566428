"""What the NVIDIA driver says: one gate for its calls, one probe a call, one reader that asks them in turn."""
