"""Databases written by the Ingero agent (SQLite, schemas 0.8 to 0.10)."""
