"""The program of a backup: it consumes the journal of its primary, and takes over when the primary is lost."""
