"""What gputop costs, side by side with its peers in one run. `make bench`."""
