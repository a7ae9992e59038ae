"""Causal chains of nodes as tools tell them: what was recorded is read, the rules look at it, what was stored joins."""
