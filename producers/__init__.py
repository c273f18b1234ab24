"""Programs that create transactions: the master that orders them, and loaders that submit them."""
