"""The probe daemon of a GPU node. Imports only semconv, events, clock and otlp.encode of `ingero_mcp`."""
