"""The best combination of known columns of scores under constraint rows: directions of parties, or leaves of trees."""
