"""Loading large files from Spark's executors."""
