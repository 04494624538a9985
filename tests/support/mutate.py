"""Mutate the baselines: change one line at a time, and see that a test fails.

    PYTHONPATH=src python tests/support/mutate.py              # all
    PYTHONPATH=src python tests/support/mutate.py fedfb afl    # some methods

A mutation that no test notices is printed as SURVIVED, and the script then ends with code 1. It works on copies of the
package in a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

import evenhand.estimators.horizontal
import evenhand.horizontal.averaging.batched  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "reproductions" / "evenhand_reproductions", ROOT / "src" / "evenhand"
TESTS = ROOT / "tests" / "reproductions"
OWN_TESTS = {
    "adversarial-fairvfl": "test_adversarial_fairvfl.py",
    "logofair": "test_logofair.py",
    "cuts": "test_cuts_of_groups.py",
}
"""Where the tests of a method are not those of the others."""
Mutation = tuple[str, str, str]

MUTATIONS: dict[str, list[Mutation]] = {
    "fedadagrad": [
        ("adaptive", "return self.variance + square", "return self.variance"),
        ("adaptive", "return self.variance + square", "return square"),
        ("adaptive", "np.full(self.weights.size, self.options.adaptivity**2)", "np.zeros(self.weights.size)"),
        ("adaptive", "(np.sqrt(self.variance) + given.adaptivity)", "np.sqrt(self.variance)"),
        ("adaptive", "self.next_variance(delta**2)", "self.next_variance(self.momentum**2)"),
    ],
    "fedadam": [
        ("adaptive", "given.momentum * self.momentum + (1.0 - given.momentum) * delta", "delta"),
        ("adaptive", "(1.0 - given.momentum) * delta", "delta"),
        ("adaptive", "self.options.decay * self.variance +", "self.variance +"),
        ("adaptive", "(1.0 - self.options.decay) * square\n\n", "square\n\n"),
        ("adaptive", "given.server_step * self.momentum", "self.momentum"),
    ],
    "fedyogi": [
        ("adaptive", "np.sign(self.variance - square)", "1.0"),
        ("adaptive", "np.sign(self.variance - square)", "np.sign(square - self.variance)"),
        ("adaptive", "self.variance - (1.0 - self.options.decay) * square *", "self.variance - square *"),
        ("adaptive", "* square * np.sign", "* np.sqrt(square) * np.sign"),
        ("adaptive", "self.variance - (1.0", "self.options.decay * self.variance - (1.0"),
    ],
    "fednova": [
        ("fednova", "effective = sum(shares[name] * count", "effective = sum(count"),
        ("fednova", "/ steps[name] for", "for"),
        ("fednova", "np.asarray(effective *", "np.asarray("),
        ("fednova", "[shares[name] * body", "[body"),
        ("server_steps", "return made.steps * made.epochs", "return made.steps"),
    ],
    "fedprox": [
        ("fedprox", "proximity=self.proximity", "proximity=0.0"),
        ("fedprox", "proximity=self.proximity", "proximity=2.0 * self.proximity"),
        ("fedprox", "proximity=self.proximity", "proximity=-self.proximity"),
        ("fedprox", "proximity=self.proximity", "proximity=self.proximity / round_number"),
        ("fedprox", "proximity: NotNegative = 0.1", "proximity_: NotNegative = 0.1"),
    ],
    "scaffold": [
        ("scaffold", 'self.correction = message["control"] - self.control', 'self.correction = message["control"]'),
        ("scaffold", 'message["control"] - self.control', 'self.control - message["control"]'),
        ("scaffold", "self.control = (-self.correction -", "self.control = (self.correction -"),
        ("scaffold", "return self.options.server_step * self", "return self"),
        ("scaffold", "self.control = self.control + len", "self.control = len"),
    ],
    "q-fedavg": [
        ("qffl", "total += loss**power * slope", "total += slope"),
        ("qffl", "loss ** (power - 1.0)", "loss ** power"),
        ("qffl", "+ bound * loss**power", ""),
        ("qffl", "return -total / height", "return total / height"),
        ("qffl", "1.0 / self.options.settings(self.round).step", "1.0"),
    ],
    "afl": [
        ("afl", "self.mean_change(updates, among)", "self.mean_change(updates, shares)"),
        ("afl", "mixture[name] + self.options.mixture_step * loss", "self.options.mixture_step * loss"),
        ("afl", "mixture[name] + self", "mixture[name] - self"),
        ("afl", "self.options.mixture_step * loss", "loss"),
        ("afl", "(np.cumsum(ordered) - 1.0)", "np.cumsum(ordered)"),
    ],
    "fedminmax": [
        ("fedminmax", "shares + self.options.group_step * risks", "shares - self.options.group_step * risks"),
        ("fedminmax", "self.options.group_step * risks", "risks"),
        ("fedminmax", "return total * simplex", "return simplex"),
        ("slice_weights", "np.sum([body[self.risk]", "np.max([body[self.risk]"),
        ("slice_weights", "of_rows > 0) - 1.0", "of_rows > 0)"),
    ],
    "fairbatch": [
        ("fairbatch", "found[low] -= moved", "found[low] += moved"),
        ("fairbatch", "self.options.shift * total,", "self.options.shift,"),
        ("fairbatch", "float(shares[low])", "1.0"),
        ("fairbatch", "max(self.alike", "min(self.alike"),
        ("fairbatch", "max(worst, key=lambda place: risks", "max(worst, key=lambda place: shares"),
    ],
    "fedfb": [
        ("fedfb", "risks[places] - risks[places[0]]", "risks[places]"),
        ("fedfb", "self.options.shift * gaps / length", "self.options.shift * gaps"),
        ("fedfb", "step[0] = -step.sum()", "pass"),
        ("fedfb", "np.linalg.norm(np.concatenate(raised))", "np.abs(np.concatenate(raised)).max()"),
        ("fedfb", "found[places] = total * simplex((shares[places] + step) / total)", "found[places] += step"),
    ],
    "fcfl": [
        ("fcfl", "(values - values.max()) / smoothing", "values - values.max()"),
        ("fcfl", "values - self.bounds.upper", "values"),
        ("fcfl", "loss / (loss - both) if both < 0.0 else 1.0", "1.0"),
        ("fcfl", "met=bool(gaps.max() <= 0.0)", "met=False"),
        ("fcfl", "- of_loss\n", "\n"),
        ("fcfl", "* given.factor <= smoothing", "* given.factor > smoothing"),
        ("fcfl", "np.maximum(found.counts, 1.0)", "found.counts.sum()"),
        ("fcfl", "A_ub=-products,", "A_ub=0.0 * products,"),
        ("fcfl", "-products[:, :clients].mean(axis=1)", "-products[:, 0]"),
        ("fcfl", "rows = np.vstack([of_losses, of_gap])", "rows = of_losses"),
        ("fcfl", "if gaps.max() >= 0.0:", "if gaps.max() < 0.0:"),
        ("fcfl", "(gaps - gaps.max()) / self.smoothing[1]", "gaps - gaps.max()"),
        ("fcfl", "self.round - 1 < self.options.first_stage", "self.round + 1 < self.options.first_stage"),
        ("fcfl", "self.options.first_stage * self.job.max_rounds", "self.job.max_rounds"),
    ],
    "adversarial-fairvfl": [
        ("adversarial_fairvfl", "of_task - self.options.adversary * adversary", "of_task"),
        ("adversarial_fairvfl", "self.attacked.step(-of_mapper", "self.attacked.step(of_mapper"),
        ("adversarial_fairvfl", "np.fill_diagonal(cosine, -np.inf)", "pass"),
        ("adversarial_fairvfl", "        self.scorer.step(gradient, options.step)\n", ""),
        ("adversarial_fairvfl", "                one.mapper.step(slope, self.options.step)", "                pass"),
        ("adversarial_fairvfl", "if turn < self.options.adversary_steps:", "if turn <= self.options.adversary_steps:"),
        ("adversarial_fairvfl", "found[np.arange(len(codes)), codes] -= 1.0", "pass"),
        ("adversarial_fairvfl", "self.head.step(of_head, self.options.step)", "pass"),
        ("adversarial_fairvfl", "return up + down,", "return up,"),
        ("perceptron", "slope = slope * (values[place] > 0.0)", "pass"),
        ("perceptron", "SQUARE_DECAY = 0.999", "SQUARE_DECAY = 0.99"),
    ],
    "logofair": [
        ("logofair", "self.pair * np.exp(-self", "self.pair * np.exp(self"),
        ("logofair", "self.options.global_gap / self.clients", "self.options.global_gap"),
        ("logofair", "scores if label == 1 else 1.0 - scores", "scores"),
        ("logofair", "self._weight * self._share * selected", "self._weight * selected"),
        ("logofair", "exact=True)", "exact=False)"),
        ("logofair", "(codes == group) * 1.0 - (codes == 0) * 1.0", "(codes == group) * 1.0"),
        ("logofair", "found[inside] -= multipliers @ row_gaps", "found[inside] += multipliers @ row_gaps"),
        ("logofair", "5 * options.local_steps", "options.local_steps"),
        ("logofair", "self.options.local_gap + np", "np"),
        ("logofair", "if len(np.unique(labels)) < 2:", "if False:"),
    ],
    "cuts": [
        ("evenhand/constraints/group_cuts", "largest - 1e-12", "largest + 1e-12"),
        ("evenhand/constraints/group_cuts", "np.mean([everybody[label] /", "np.max([everybody[label] /"),
        (
            "evenhand/constraints/group_cuts",
            "more = int(np.searchsorted(rate, rate[place]",
            "more = int(np.searchsorted(rate, 0.0",
        ),
        ("evenhand/constraints/group_cuts", "-1: one.selected - one.hits", "-1: one.selected"),
        ("evenhand/constraints/group_cuts", '"equalized-odds": (1, -1)', '"equalized-odds": (1,)'),
        ("evenhand/constraints/thresholds", "for one in (positives, negatives))", "for one in (negatives, positives))"),
        ("evenhand/horizontal/cutting", "np.searchsorted(edges, self.scores)", "np.searchsorted(edges, -self.scores)"),
        ("evenhand/horizontal/cutting", "within=LARGEST if self.looks > 1 else None", "within=None"),
        ("evenhand/constraints/group_cuts", "inner if inner[0] > inner[1] else", "None or"),
        ("evenhand/constraints/group_cuts", "(levels <= most + 1e-12)", "(levels <= 1.0)"),
        (
            "evenhand/horizontal/cutting",
            "equal_rates(self._rule, self._closed, found[1:], within=LARGEST if self.looks > 1 else None)",
            "places * (len(found) - 1)",
        ),
    ],
    "fairgrad": [
        ("fairgrad", "of_label @ risks[places] - risks[places]", "risks[places] - of_label @ risks[places]"),
        ("fairgrad", "(level - given.slack)", "level"),
        ("fairgrad", "(level + given.slack)", "(level - given.slack)"),
        ("fairgrad", "of_label * net.sum() - net", "-net"),
        ("fairgrad", 'risk = "exact"', 'risk = "sums"'),
        ("fairgrad", "np.maximum(self.disadvantage, 0.0, out=self.disadvantage)", "pass"),
    ],
}


def fails(folder: Path, tests: Path, mutation: Mutation | None) -> bool:
    """Return whether one of the tests fails under a mutation, or without one."""
    if mutation is None:
        return _run(folder, tests) != 0
    module, old, new = mutation
    inside = module if "/" in module else f"evenhand_reproductions/methods/{module}"
    path = folder / f"{inside}.py"
    text = path.read_text(encoding="utf-8")
    if text.count(old) < 1:
        raise SystemExit(f"{module}.py has no {old!r}: the table of mutations is out of date")
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    try:
        # 1: tests failed; 2: they could not even be collected.
        return _run(folder, tests) in (1, 2)
    finally:
        path.write_text(text, encoding="utf-8")


def _run(folder: Path, tests: Path) -> int:
    """Run the tests in a fork, so that torch is loaded once."""
    if (child := os.fork()) == 0:
        sys.path.insert(0, str(folder))
        for name in [one for one in sys.modules if one.partition(".")[0] in ("evenhand", "evenhand_reproductions")]:
            # Loaded anew from the copies.
            del sys.modules[name]
        sys.dont_write_bytecode = True
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
            os.dup2(nothing.fileno(), 2)
            chosen = ["-k", "not Contract", "-m", "not soak"]
            os._exit(int(pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", str(tests), *chosen])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(names: list[str]) -> int:
    survived, passed = 0, set[Path]()
    with tempfile.TemporaryDirectory() as folder:
        for package in PACKAGES:
            shutil.copytree(package, Path(folder) / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names or MUTATIONS:
            tests = TESTS / OWN_TESTS.get(name, "test_methods.py")
            if tests not in passed and fails(Path(folder), tests, None):
                raise SystemExit(f"{tests.name} fails without any mutation")
            passed.add(tests)
            for mutation in MUTATIONS[name]:
                caught = fails(Path(folder), tests, mutation)
                survived += not caught
                said = "caught" if caught else "SURVIVED"
                print(f"{said}  {name}: {mutation[1].strip()}  ->  {mutation[2].strip() or 'nothing'}", flush=True)
    print(f"{survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
