"""What ranks report about their collectives: flight records, the debug server, NCCL's RAS."""
