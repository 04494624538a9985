"""NVIDIA FLARE between organisations: it brings certificates, processes and bytes; links and roles are ours."""
