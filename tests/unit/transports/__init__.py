"""Parts of the wire that need no broker."""
