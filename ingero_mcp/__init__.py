"""Ask a GPU cluster why a step was slow: the rank, the host, the cause, with evidence."""

__version__ = "0.1.0"
