"""Collectives of a job by name: what each rank entered last, which one is missing, and where in the code.

From PyTorch's flight recorder and NCCL's RAS, of a running job (`survey`) or from files.
"""
