"""Jobs between organisations: what all know, what each keeps, and each one's part from enrolling to measuring."""

from evenhand.moved import keep_old_names

keep_old_names(__name__)
