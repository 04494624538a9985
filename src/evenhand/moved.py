"""Where modules and classes of 0.1.0 are now, so that estimators saved with it load and its imports still work.

A saved estimator names each of its classes by module. After 0.1.0 modules moved into packages and some classes got
plainer names; what was saved before knows nothing of it. An old module is made when somebody imports it and no real one
is found, and it imports its new home when it is asked for a name, not before. To be removed with 1.0.

Whoever moves something changes the right-hand side here; `tests/compat` says which line is stale.
"""

from __future__ import annotations

import sys
from functools import partial
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

MODULES: Final = {
    "slices": "constraints.slices",
    "measures": "constraints.measures",
    "losses": "constraints.losses",
    "lagrangian": "constraints.lagrangian",
    "messages": "protocol.messages",
    "roles": "protocol.roles",
    "names": "protocol.names",
    "certificate": "protocol.certificate",
    "job": "protocol.job",
    "privacy.transcript": "protocol.transcript",
    "vertical.working": "vertical.subspace.rates",
    "vertical.reduced": "programs.combining.reduced",
    "vertical.elastic": "programs.combining.elastic",
    "vertical.vfb2.ensemble": "vertical.vfb2.compiled",
    "vertical.vfb2.labour": "vertical.vfb2.block_work",
    "vertical.vfb2.lateness": "vertical.vfb2.staleness",
    "vertical.vfb2.looks": "vertical.vfb2.full_pass",
    "vertical.vfb2.roles": "vertical.vfb2",
    "vertical.vfb2.visits": "vertical.vfb2.sampler",
    "horizontal.averaging_options": "horizontal.averaging.options",
    "horizontal.building": "horizontal.averaging.build",
    "horizontal.cohort": "horizontal.averaging.batched",
    "horizontal.fedavg": "horizontal.averaging.fedavg",
    "horizontal.fairalm": "horizontal.averaging.fairalm",
    "horizontal.fairfed": "horizontal.averaging.fairfed",
    "horizontal.fairfedavgalm": "horizontal.averaging.fairfedavgalm",
    "horizontal.fpfl": "horizontal.averaging.fpfl",
    "horizontal.local_objective": "horizontal.averaging.local_objective",
    "horizontal.measuring": "horizontal.averaging.measuring",
    "horizontal.messages": "horizontal.averaging.messages",
    "horizontal.programs_delivery": "training.programs",
    "horizontal.rows": "horizontal.slice_means",
    "horizontal.sides": "horizontal.averaging.formulation",
    "horizontal.server": "horizontal.averaging.server",
    "horizontal.client": "horizontal.averaging.client",
    "horizontal.prox_al_client": "horizontal.prox_al.client",
    "horizontal.prox_al_crew": "horizontal.prox_al.batched",
    "horizontal.prox_al_messages": "horizontal.prox_al.messages",
    "horizontal.prox_al_options": "horizontal.prox_al.options",
    "horizontal.prox_al_server": "horizontal.prox_al.server",
    "horizontal.sqp_client": "horizontal.sqp.client",
    "horizontal.sqp_messages": "horizontal.sqp.messages",
    "horizontal.sqp_options": "horizontal.sqp.options",
    "horizontal.sqp_search": "horizontal.sqp.search",
    "horizontal.sqp_server": "horizontal.sqp.server",
    "training.across_clients": "training.horizontal",
    "training.client_programs": "horizontal.linear_programs",
    "central.pooled": "central.erm",
    "privacy.masking": "privacy.masks",
    "privacy.trees": "privacy.sum_trees",
    "report.record": "runtime.folder",
    "report.gradcam": "reproductions.fairfedavgalm.gradcam",
    "report.heatmaps": "reproductions.fairfedavgalm.heatmaps",
    "selection": "estimators.selection",
    "jobs.checks": "jobs.schema",
    "jobs.vertical_file": "jobs.vertical.file",
    "jobs.federation": "jobs.vertical.tables",
    "jobs.runs": "jobs.vertical.runs",
    "jobs.horizontal_file": "jobs.horizontal.file",
    "jobs.client_tables": "jobs.horizontal.tables",
    "jobs.client_runs": "jobs.horizontal.runs",
    "data.addresses": "data.tables.addresses",
    "data.align": "data.tables.align",
    "data.checks": "data.tables.checks",
    "data.columns": "data.tables.columns",
    "data.duck": "data.tables.duck",
    "data.encoding": "data.tables.encoding",
    "data.learning": "data.tables.learning",
    "data.onehot": "data.tables.onehot",
    "data.party_tables": "data.tables.party_tables",
    "data.sql": "data.tables.sql",
    "data.stream": "data.tables.stream",
    "data.libsvm": "data.tables.libsvm",
    "data.catalog": "data.public.catalog",
    "data.decode": "data.public.decode",
    "data.fetch": "data.public.fetch",
    "data.publisher": "data.public.publisher",
    "data.wheels": "data.public.wheels",
    "data.sources": "data.public.sources",
    "data.dataset": "data.public.dataset",
    "data.newsgroups": "data.public.newsgroups",
    "data.np_sets": "data.public.np_sets",
    "data.packed": "data.public.packed",
    "data.recipes": "data.public.loaders",
    "data.sparse_recipes": "data.public.sparse_loaders",
    "data.biased": "data.images.biased",
    "data.celeba": "data.images.celeba",
    "data.digits": "data.images.digits",
    "data.idx": "data.images.idx",
    "data.imsitu": "data.images.imsitu",
    "reproductions.fairvfl_table1": "reproductions.fairvfl.table1",
    "reproductions.fairvfl_table2": "reproductions.fairvfl.table2",
    "reproductions.fairvfl_fig1": "reproductions.fairvfl.fig1",
    "reproductions.fairvfl_fig2": "reproductions.fairvfl.fig2",
    "reproductions.fairvfl_v1_table1": "reproductions.fairvfl.v1_table1",
    "reproductions.fairvfl_v1_fig1": "reproductions.fairvfl.v1_fig1",
    "reproductions.fairvfl_v1_fig2": "reproductions.fairvfl.v1_fig2",
    "reproductions.vfb2_fig2": "reproductions.vfb2.fig2",
    "reproductions.vfb2_fig3": "reproductions.vfb2.fig3",
    "reproductions.vfb2_fig4": "reproductions.vfb2.fig4",
    "reproductions.vfb2_figures": "reproductions.vfb2.figures",
    "reproductions.vfb2_problems": "reproductions.vfb2.problems",
    "reproductions.vfb2_stragglers": "reproductions.vfb2.stragglers",
    "reproductions.vfb2_table2": "reproductions.vfb2.table2",
    "reproductions.fairfedavgalm_baselines": "reproductions.fairfedavgalm.baselines",
    "reproductions.fairfedavgalm_clients": "reproductions.fairfedavgalm.clients",
    "reproductions.fairfedavgalm_fig1": "reproductions.fairfedavgalm.fig1",
    "reproductions.fairfedavgalm_heterogeneity": "reproductions.fairfedavgalm.heterogeneity",
    "reproductions.fairfedavgalm_ldp": "reproductions.fairfedavgalm.ldp",
    "reproductions.fairfedavgalm_methods": "reproductions.fairfedavgalm.methods",
    "reproductions.fairfedavgalm_numbers": "reproductions.fairfedavgalm.numbers",
    "reproductions.fairfedavgalm_pages": "reproductions.fairfedavgalm.pages",
    "reproductions.fairfedavgalm_participation": "reproductions.fairfedavgalm.participation",
    "reproductions.fairfedavgalm_settings": "reproductions.fairfedavgalm.settings",
    "reproductions.fairfedavgalm_tasks": "reproductions.fairfedavgalm.tasks",
    "reproductions.constrained_curves": "reproductions.constrained.curves",
    "reproductions.constrained_fig1": "reproductions.constrained.fig1",
    "reproductions.constrained_fig2": "reproductions.constrained.fig2",
    "reproductions.constrained_methods": "reproductions.constrained.methods",
    "reproductions.constrained_numbers": "reproductions.constrained.numbers",
    "reproductions.constrained_pages": "reproductions.constrained.pages",
    "reproductions.constrained_problems": "reproductions.constrained.problems",
    "reproductions.constrained_table1": "reproductions.constrained.table1",
    "reproductions.constrained_table2": "reproductions.constrained.table2",
    "reproductions.constrained_table4": "reproductions.constrained.table4",
    "programs.sides": "constraints.bounds",
    "programs.simple": "programs.regularisers",
}
"""Old module, and the module that has what was in it; both inside `evenhand`."""

NAMES: Final = {
    "data.images.ImageDataset": "data.images.arrays.ImageDataset",
    "data.images.as_floats": "data.images.arrays.as_floats",
    "data.images.centre_crop": "data.images.arrays.centre_crop",
    "data.images.random_crop": "data.images.arrays.random_crop",
    "data.tables.TableSource": "data.tables.readers.TableSource",
    "data.tables.read_table": "data.tables.readers.read_table",
    "horizontal.averaging.AveragingClient": "horizontal.averaging.rounds.AveragingClient",
    "horizontal.averaging.AveragingLearner": "horizontal.averaging.rounds.AveragingLearner",
    "horizontal.averaging.AveragingServer": "horizontal.averaging.rounds.AveragingServer",
    "horizontal.averaging.Order": "horizontal.averaging.rounds.TrainRequest",
    "horizontal.averaging.Trained": "horizontal.averaging.rounds.Trained",
    "horizontal.client.Client": "horizontal.averaging.client.ClosingClient",
    "horizontal.cohort.Cohort": "horizontal.averaging.batched.BatchedClients",
    "horizontal.cohort.Member": "horizontal.averaging.batched.BatchedLearner",
    "horizontal.prox_al.prox_al": "training.programs.prox_al",
    "horizontal.prox_al_crew.Crew": "horizontal.prox_al.batched.BatchedSolve",
    "horizontal.prox_al_crew.Member": "horizontal.prox_al.local_step.SteppingClient",
    "horizontal.prox_al_crew.Quick": "horizontal.prox_al.local_step.LocalStep",
    "horizontal.rows.AgreedRows": "horizontal.slice_means.SliceMeans",
    "horizontal.server.Server": "horizontal.averaging.server.ClosingServer",
    "horizontal.sides.AbsoluteSides": "horizontal.averaging.fpfl.RowMultipliers",
    "horizontal.sides.BoundSides": "horizontal.averaging.formulation.SideMultipliers",
    "horizontal.sides.Sides": "horizontal.averaging.formulation.Multipliers",
    "horizontal.sqp.sqp": "training.programs.sqp",
    "horizontal.sqp_search.Judge": "horizontal.sqp.search.SQPModel",
    "horizontal.sqp_search.Local": "horizontal.sqp.search.Evaluation",
    "jobs.checks.Located": "jobs.schema.TableSection",
    "jobs.client_tables.ClientTables": "jobs.horizontal.tables.HorizontalTables",
    "jobs.client_tables.load_clients": "jobs.horizontal.tables.load_horizontal_tables",
    "jobs.federation.Federation": "jobs.vertical.tables.VerticalTables",
    "jobs.federation.load_federation": "jobs.vertical.tables.load_vertical_tables",
    "jobs.horizontal_file.read_any_job": "jobs.file.read_job",
    "jobs.runs.FinishedRun": "jobs.vertical.runs.FinishedVerticalRun",
    "jobs.runs.run_job": "jobs.vertical.runs.run_vertical_job",
    "jobs.runs.score_rows": "jobs.vertical.runs.score_parties",
    "jobs.vertical_file.JobFile": "jobs.vertical.file.VerticalJobFile",
    "jobs.vertical_file.JobSection": "jobs.vertical.file.VerticalJobSection",
    "jobs.vertical_file.parse_job": "jobs.vertical.file.parse_vertical",
    "jobs.vertical_file.read_job": "jobs.file.read_job",
    "privacy.masking.FRACTION_BITS": "privacy.fixed_point.FRACTION_BITS",
    "privacy.masking.SCALE": "privacy.fixed_point.SCALE",
    "privacy.masking.decode": "privacy.fixed_point.decode",
    "privacy.masking.decode_scalar": "privacy.compiled.decode_scalar",
    "privacy.masking.encode": "privacy.fixed_point.encode",
    "privacy.masking.encode_scalar": "privacy.compiled.encode_scalar",
    "privacy.masking.largest": "privacy.fixed_point.largest",
    "privacy.masking.next_mask": "privacy.compiled.next_mask",
    "programs.NOTHING": "programs.regularisers.ZERO",
    "programs.NO_SIDES": "constraints.bounds.NO_BOUNDS",
    "programs.Nothing": "programs.regularisers.Zero",
    "programs.Point": "programs.program.ProgramPoint",
    "programs.Sides": "constraints.bounds.Bounds",
    "programs.Simple": "programs.regularisers.Regulariser",
    "programs.Status": "programs.optimality.SolveStatus",
    "programs.sides.NO_SIDES": "constraints.bounds.NO_BOUNDS",
    "programs.sides.Sides": "constraints.bounds.Bounds",
    "programs.simple.NOTHING": "programs.regularisers.ZERO",
    "programs.simple.Nothing": "programs.regularisers.Zero",
    "programs.simple.Simple": "programs.regularisers.Regulariser",
    "reproductions.Entry": "reproductions.registry.Reproduction",
    "reproductions.constrained_problems.Problem": "reproductions.constrained.problems.ConstrainedProblem",
    "reproductions.constrained_problems.Rows": "reproductions.constrained.problems.SetRows",
    "reproductions.fairfedavgalm_methods.Method": "reproductions.fairfedavgalm.methods.PaperMethod",
    "reproductions.fairfedavgalm_methods.Schedule": "reproductions.fairfedavgalm.methods.TrainingSchedule",
    "reproductions.fairfedavgalm_methods.Setting": "reproductions.fairfedavgalm.methods.PaperSetting",
    "reproductions.fairfedavgalm_tasks.Rows": "reproductions.fairfedavgalm.tasks.TaskRows",
    "reproductions.fairfedavgalm_tasks.Task": "reproductions.fairfedavgalm.tasks.TrainingTask",
    "reproductions.vfb2_problems.Problem": "reproductions.vfb2.problems.VFB2Problem",
    "slices.BoundRows": "constraints.binding.BoundConstraints",
    "slices.Row": "constraints.slices.ConstraintRow",
    "training.client_programs.Where": "constraints.scope.ConstraintScope",
    "training.horizontal.train_horizontal": "training.horizontal.train_clients",
    "training.programs.SharedLinear": "models.shared_linear.SharedLinear",
    "training.vertical.Run": "training.vertical.VerticalRun",
    "vertical.subspace.SubspaceOptions": "vertical.subspace.options.SubspaceOptions",
    "vertical.subspace.SubspaceParty": "vertical.subspace.party.SubspaceParty",
    "vertical.subspace.SubspaceServer": "vertical.subspace.server.SubspaceServer",
    "vertical.vfb2.ensemble.InterleavedParties": "vertical.vfb2.compiled.CompiledVFB2",
    "vertical.vfb2.labour.Labour": "vertical.vfb2.block_work.BlockWork",
    "vertical.vfb2.lateness.Lateness": "vertical.vfb2.staleness.Staleness",
    "vertical.vfb2.visits.Visits": "vertical.vfb2.sampler.RowSampler",
    "vertical.working.Working": "vertical.subspace.rates.RateSchedule",
}
"""What is called otherwise now, or was in a module whose name a package has taken over: old and new dotted name."""


def find_spec(module: str) -> ModuleSpec | None:
    """How to make a module of 0.1.0 that is no longer there; None for any other name."""
    return ModuleSpec(module, _OldModule()) if module.removeprefix("evenhand.") in MODULES else None


def keep_old_names(module: str) -> None:
    """Let a module answer for what 0.1.0 had under its name: called by the module itself, with its `__name__`."""
    sys.modules[module].__dict__["__getattr__"] = partial(_find, module)


class _OldModule(Loader):
    """Makes a module without content, which looks up each name where it is now."""

    def exec_module(self, module: ModuleType) -> None:
        home = MODULES[module.__name__.removeprefix("evenhand.")]
        module.__doc__ = f"Moved to evenhand.{home}."
        module.__dict__["__getattr__"] = partial(_find, module.__name__, home=home)


def _find(module: str, name: str, home: str | None = None) -> Any:
    """What a module of 0.1.0 had under a name; `home` has what `NAMES` does not list."""
    new = NAMES.get(f"{module.removeprefix('evenhand.')}.{name}")
    # Python itself asks modules for __path__ and the like: no reason to import anything.
    if new is None and (home is None or name.startswith("__")):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    place, _, attribute = (new or f"{home}.{name}").rpartition(".")
    return getattr(import_module(f"evenhand.{place}"), attribute)
