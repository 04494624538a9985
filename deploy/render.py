"""Write deploy/kubernetes/*.yaml from the chart in deploy/helm, for those who do not use Helm.

Helm itself is not needed: the chart uses `{{ .Values.x }}`, `{{ .Release.Name }}`, `if eq`, `else`, `end` and
`toYaml | nindent`, and anything else is an error here. `python deploy/render.py --check` tells whether the files are
those of the chart.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parent
RELEASES: dict[str, dict[str, Any]] = {
    "server": {"role": "server", "kit": "server-kit", "party": "server-party", "volume": "server-data"},
    "party": {},
}
_TAG = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")


def rendered(text: str, values: dict[str, Any], release: str) -> str:
    """Return a template with its values."""
    lines, shown = [], [True]
    for line in text.splitlines():
        alone = re.fullmatch(r"\s*\{\{-\s*(if .*?|else|end)\s*\}\}", line)
        if alone is None:
            if all(shown):
                lines.append(_TAG.sub(lambda tag: _value(tag[1], values, release), line))
        elif alone[1] == "end":
            shown.pop()
        elif alone[1] == "else":
            shown[-1] = not shown[-1]
        else:
            found = re.fullmatch(r'if eq \.Values\.(\w+) "(\w+)"', alone[1])
            if found is None:
                raise ValueError(f"not known here: {alone[1]}")
            shown.append(values[found[1]] == found[2])
    if len(shown) != 1:
        raise ValueError("an `if` has no `end`")
    return "\n".join(lines) + "\n"


def _value(tag: str, values: dict[str, Any], release: str) -> str:
    if tag == ".Release.Name":
        return release
    if found := re.fullmatch(r"\.Values\.(\w+)", tag):
        return str(values[found[1]])
    if found := re.fullmatch(r"toYaml \.Values\.(\w+) \| nindent (\d+)", tag):
        text = yaml.safe_dump(values[found[1]], sort_keys=False).rstrip()
        return "\n" + "\n".join(" " * int(found[2]) + line for line in text.splitlines())
    raise ValueError(f"not known here: {tag}")


def manifest(release: str, changes: dict[str, Any] | None = None) -> str:
    """Return everything that one release puts into a cluster."""
    values = yaml.safe_load((DEPLOY / "helm" / "values.yaml").read_text()) | RELEASES[release] | (changes or {})
    parts = [rendered(path.read_text(), values, release) for path in sorted((DEPLOY / "helm/templates").glob("*.yaml"))]
    # Trailing spaces come from values that begin on a new line.
    return re.sub(r"[ ]+\n", "\n", "---\n".join(f"{part.strip()}\n" for part in parts))


def main() -> int:
    wrong = 0
    for release in RELEASES:
        path = DEPLOY / "kubernetes" / f"{release}.yaml"
        text = f"# Made from deploy/helm by `python deploy/render.py`.\n{manifest(release)}"
        if "--check" not in sys.argv:
            path.write_text(text)
        elif path.read_text() != text:
            wrong += 1
            print(f"{path.name} is not that of the chart; run python deploy/render.py")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
