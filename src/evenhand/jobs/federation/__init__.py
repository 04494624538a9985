"""Jobs between organisations: what all know, what each keeps, and each one's part from enrolling to measuring."""
