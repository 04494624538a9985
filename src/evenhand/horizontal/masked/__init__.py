"""Masked sums for any horizontal solver: the server learns only the sum of the clients' answers."""
