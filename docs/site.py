"""Add pages from outside docs/ to the site, as a hook of mkdocs.

They are the README (the site's start page), CONTRIBUTING, SECURITY, the changelog and the results of the reproductions.
They stay where they are in the tree; only their links are rewritten.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PLACES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "SECURITY.md": "SECURITY.md",
    **{
        str(path.relative_to(ROOT)): "results/" + str(path.relative_to(ROOT / "reproductions")).removeprefix("results/")
        for path in [ROOT / "reproductions" / "README.md", *(ROOT / "reproductions" / "results").iterdir()]
        if path.suffix in (".md", ".png")
    },
}
"""Maps a file of the tree to its place on the site. Files in docs/ keep their place."""
LINK = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")


def place(path: str) -> str | None:
    """Return the place of a file on the site, or None if the site does not have it."""
    return path.removeprefix("docs/") if path.startswith("docs/") else PLACES.get(path)


def relinked(text: str, source: str, target: str) -> str:
    """Return the page with each relative link pointing to the same file on the site as in the tree."""

    def moved(found: re.Match[str]) -> str:
        link = found[1]
        to = place(posixpath.normpath(posixpath.join(posixpath.dirname(source), link)))
        return link if "://" in link or to is None else posixpath.relpath(to, posixpath.dirname(target) or ".")

    return LINK.sub(moved, text)


def on_files(files: Files, config: Any) -> Files:
    for source, target in PLACES.items():
        path = ROOT / source
        content = (
            relinked(path.read_text(encoding="utf-8"), source, target) if path.suffix == ".md" else path.read_bytes()
        )
        files.append(File.generated(config, target, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    source = page.file.src_uri
    return markdown if source in PLACES.values() else relinked(markdown, f"docs/{source}", source)
