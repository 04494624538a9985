"""Public data sets by name: where they are, how they are fetched and checked, how they are loaded."""
