"""The process lane: who runs, how it fares, and the slow reads that have a lane of their own."""
