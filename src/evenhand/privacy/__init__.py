"""What leaves a party, on record and under protection."""
