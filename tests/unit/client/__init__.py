"""Tests of the client library; those over HTTP run against a real server with a small model behind it."""
