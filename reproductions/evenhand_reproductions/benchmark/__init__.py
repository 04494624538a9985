"""A benchmark of methods across clients: one grid, records that merge, and a leaderboard."""
