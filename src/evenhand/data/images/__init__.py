"""Images: folders of the papers' sets, digits, and digits made biased on purpose."""

from evenhand.moved import keep_old_names

keep_old_names(__name__)
