"""Three clients of a job across rows, each with its own table and file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tomli_w
from support.federation import write_identities

CLIENTS = ("north", "south", "west")
FAIR = {"kind": "equal-opportunity", "epsilon": 0.05}


def write_clinics(folder: Path, job: dict[str, Any], **more: Any) -> dict[str, Path]:
    """Three clients' tables and files, a job for a federation, and the same as a job of one process."""
    rng = np.random.default_rng(3)
    paths, sections = {}, []
    for name in CLIENTS:
        numbers = rng.normal(size=(80, 3))
        sex = np.where(rng.random(80) < 0.4, "f", "m")
        sick = numbers @ np.array([1.0, -1.0, 0.5]) + (sex == "f") + rng.logistic(size=80) > 0
        frame = pd.DataFrame(numbers, columns=["a", "b", "c"]).assign(
            ward=rng.choice(["x", "y"], 80), sex=sex, sick=np.where(sick, "yes", "no"), id=range(80)
        )
        (folder / name).mkdir(parents=True)
        frame.to_csv(folder / name / "table.csv", index=False)
        paths[name] = folder / name / "party.toml"
        own = {"name": name, "role": "client", "table": "table.csv"}
        paths[name].write_text(tomli_w.dumps({"identity": "identity", "party": own}))
        sections.append({"name": name, "table": f"{name}/table.csv"})
    data = {"label": {"column": "sick", "positive": "yes", "negative": "no"}, "sensitive": ["sex"], "id": "id"}
    content = {"job": {"split": "horizontal", "test_fraction": 0.2} | job, "data": data | more.pop("data", {}), **more}
    paths["job"], paths["together"] = folder / "job.toml", folder / "together.toml"
    paths["job"].write_text(tomli_w.dumps(content | {"client": [{"name": name} for name in CLIENTS]}))
    paths["together"].write_text(tomli_w.dumps(content | {"client": sections}))
    return paths | write_identities(folder, CLIENTS)
