"""The report: one self-contained HTML page about one or several runs.

A run becomes a record, a record becomes sections, and sections become the page. Charts are SVG coloured by the page's
style sheet, so that they follow light, dark and print. Every chart has its numbers in a table too.
"""

from evenhand.report.page.assemble import make_page, write_page

__all__ = ["make_page", "write_page"]
