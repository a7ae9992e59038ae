"""OTLP bytes to batches of events and back: pure, no sockets, no clock."""
