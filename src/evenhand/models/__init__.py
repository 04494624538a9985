"""What a party computes from its own columns: scores, and the gradient of what the scores are used for."""
