"""Seeded telemetry with its ground truth: what is planted is known, so answers can be checked."""
