"""Dumps of PyTorch's Flight Recorder: the last collectives of every rank, as pickles or JSON."""
