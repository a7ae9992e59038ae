"""Logs of the NCCL Inspector plugin: JSON lines, one per operation that a process completed."""
