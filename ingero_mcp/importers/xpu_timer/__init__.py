"""Scrapes of DLRover's xpu_timer: Prometheus text with the gauges of the ranks on one node."""
