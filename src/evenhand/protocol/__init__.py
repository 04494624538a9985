"""What any two participants must agree on to talk at all: jobs, messages, roles, terms, certificates, transcripts."""
