"""NVIDIA FLARE between organisations: it provides certificates, processes and transport; links and roles are ours."""
