"""Programs that take the agreed log out: the worker that applies it to a store, and pipelines that read it."""
