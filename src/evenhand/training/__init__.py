"""From a job and data to a run: roles are built, a runtime plays them, and the run is recorded."""
