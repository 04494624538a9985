"""Run between organisations on NVIDIA FLARE, which provides certificates, processes and transport."""
