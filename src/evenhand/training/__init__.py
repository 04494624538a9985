"""From a job and data to a run: roles are built, a runtime runs them, and the run is recorded."""
