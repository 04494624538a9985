"""What participants share: jobs, messages, roles, terms, certificates, transcripts."""
