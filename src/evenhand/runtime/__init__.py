"""Run roles: in process, in threads, at separate sites, on NVIDIA FLARE and on Flower."""
