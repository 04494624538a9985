"""Job files: read and check them, load their tables, run them, and score new rows with finished runs."""
