"""Programs that read the agreed log: the worker that applies it to a store, backups, and the pipeline."""
