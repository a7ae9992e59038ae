"""The `ingero` command: one module per command. Only this package prints and exits."""
