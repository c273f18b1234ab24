"""Programs that put transactions in: the master that orders them, and loaders that submit them."""
