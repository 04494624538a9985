"""FedAvg and the methods built on it: a file for each, and the rounds they share."""
