"""One self-contained page about one or several runs: `write_page`.

Record, sections, page. Charts are SVG that the page's style colours, so that they follow light, dark and print; what
a chart shows stands in a table too.
"""

from evenhand.report.page.assemble import make_page, write_page

__all__ = ["make_page", "write_page"]
