"""Jobs between organisations: shared and private files, and the program of each participant."""
