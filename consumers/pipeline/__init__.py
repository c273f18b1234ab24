"""Jobs that read the log as data, on Spark."""
