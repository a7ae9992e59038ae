"""The HTTP API that other servers, scripts and the command line ask."""
