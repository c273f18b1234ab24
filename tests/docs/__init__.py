"""The documentation, held against the code that it is about."""
