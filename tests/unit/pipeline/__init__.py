"""Tests of the pipeline that need no Spark."""
