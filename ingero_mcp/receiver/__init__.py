"""OTLP over the network: authenticate, bound, hand the raw bytes to the decoder, acknowledge after commit."""
