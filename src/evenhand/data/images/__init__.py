"""Images: folders of the papers' sets, digits, and digits made biased on purpose."""
