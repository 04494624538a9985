"""What messages gave away, measured by attacking them with what each participant had: its own columns and its mail."""
