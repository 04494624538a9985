"""What each level of protection hides, and what it costs: our own table, not a paper's."""
