"""Tests of the coordinator and the participants of transactions."""
