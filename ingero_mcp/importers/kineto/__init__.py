"""Traces of the PyTorch profiler (Kineto): JSON, plain or gzipped, one file per rank."""
