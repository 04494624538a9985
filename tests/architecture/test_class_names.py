"""A name means one thing: whoever looks for a class finds one."""

from __future__ import annotations

import ast
from collections import Counter

from test_rooms import SOURCE, modules


def test_no_two_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for path in modules(SOURCE).values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
