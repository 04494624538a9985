"""Places where roles run."""
