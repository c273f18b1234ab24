"""The same tests against every adapter of a port, and against its simulated twin."""
