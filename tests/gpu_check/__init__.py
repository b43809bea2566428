"""What a real NVIDIA driver answers and what it costs, against what gputop's code assumes. `make gpu-check`."""
