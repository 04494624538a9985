"""From a job and data to a finished run: build the roles, run them, and record the run."""
