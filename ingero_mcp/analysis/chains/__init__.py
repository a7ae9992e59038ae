"""Causal chains: what was slow or stuck on a node, together with what was seen in the same time. Pure."""
