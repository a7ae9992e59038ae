"""Questions over relations, answered with dataclasses: pure, no I/O, no clock, no printing."""
