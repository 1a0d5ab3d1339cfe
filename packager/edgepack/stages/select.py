"""Stage `select`: choose the candidate that ships, by dev score, latency and size of its exported model.

The cheapest candidate that misses no gate and is near the best ships. Gates are judged on dev rows and on this machine;
test rows do not decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from edgepack import evaluation
from edgepack.artifacts import Compared, DataArtifact, ExportArtifact, ModelArtifact, SelectArtifact, mebibytes
from edgepack.evaluation import Latency
from edgepack.export.selection import TEXTS_FILE
from edgepack.gating.on_rows import Judge
from edgepack.messages import joined, message
from edgepack.progress import Progress
from edgepack.recipe.gates import Gates
from edgepack.recipe.model import MARGIN, TOLERANCE_POINTS, Prefer, Search
from edgepack.stages import keys
from edgepack.stages.chain import Chain
from edgepack.stages.data import DataStage
from edgepack.stages.stage import Context, Input, Stage
from edgepack_runtime.gate.latency import asked_of
from edgepack_runtime.inference.predictor import Predictor
from edgepack_runtime.schema.figures import quantity
from edgepack_runtime.schema.gates import limit_named

_THREADS: Final = 1  # of latency measurements


@dataclass(frozen=True)
class Entry:
    """The results of a candidate: its trained, width-pruned or trimmed student, and its exported models."""

    model: ModelArtifact
    exported: ExportArtifact
    train_seconds: float  # of all its trainings

    @property
    def folder(self) -> Path:
        """The folder of its shipped model."""
        return self.exported.folder / self.exported.shipped_model.folder


@dataclass(frozen=True, eq=False)
class SelectStage(Stage[SelectArtifact]):
    """Compares the candidates whose stages have results, at least one, and chooses one.

    Attributes:
        gates: the recipe's gates; those on device and bundle are left to the stage `gate`.
        chains: of the candidates by name, in the order of the recipe.
    """

    section: Search
    gates: Gates
    rows: DataStage
    chains: Mapping[str, Chain]

    name = "select"
    version = 6
    kind = SelectArtifact
    libraries = ("onnxruntime", "numpy")
    measures = True
    recipe_keys = {"": "search", "tolerance": "search.tolerance_points", "gates": "gates"}  # noqa: RUF012

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows,)

    @property
    def any_of(self) -> tuple[Stage[Any], ...]:
        return tuple(chain.last for chain in self.chains.values())

    def _built(self, ctx: Context) -> dict[str, Chain]:
        return {name: chain for name, chain in self.chains.items() if ctx.has(chain.last)}

    def _left_out(self, ctx: Context) -> tuple[str, ...]:
        """The candidates that failed."""
        built = self._built(ctx)
        return tuple(name for name in self.chains if name not in built)

    def decides(self, ctx: Context) -> Any:
        return {
            "prefer": self.section.prefer,
            "tolerance": self.section.tolerance_points,
            "gates": keys.gates_section(self.gates),
            "names": list(self._built(ctx)),
            "left_out": self._left_out(ctx),
        }

    def inputs(self, ctx: Context) -> list[Input]:
        built = self._built(ctx).values()
        return [
            *keys.labelled(ctx[self.rows], ("dev",)),
            *(keys.whole(ctx[chain.export]) for chain in built),
            *(each for chain in built for each in keys.model(ctx[chain.model])),
            *keys.baseline(self.gates),
            *keys.runtime(),
        ]

    def run(self, ctx: Context, out: Path) -> SelectArtifact:
        data, gates, progress, left_out = ctx.artifact(self.rows), self.gates, ctx.progress, self._left_out(ctx)
        entries = {
            name: Entry(ctx.artifact(chain.model), ctx.artifact(chain.export), chain.train_seconds(ctx))
            for name, chain in self._built(ctx).items()
        }
        texts = next(iter(entries.values())).exported.folder / TEXTS_FILE
        folders = [entry.folder for entry in entries.values()]
        latencies = evaluation.latency(folders, texts, progress, stage=self.name)
        rows = data.read("dev")
        judge = None if gates.accuracy is None else Judge.of(gates, data, rows, None, progress)
        candidates = tuple(
            _compared(name, entry, latency, gates, judge, data, progress)
            for (name, entry), latency in zip(entries.items(), latencies, strict=True)
        )
        tolerance = tolerance_points(self.section, gates)
        chosen, why = choose(candidates, tolerance, self.section.prefer, evaluation.hundred_points(data, rows))
        passed_over = not_judged(gates, candidates)
        if passed_over:
            why = joined(why, message("select.not_judged", gates=passed_over))
        if left_out:
            why = joined(why, message("select.failed", n=len(left_out), names=left_out))
        progress.line(f"{chosen.name}: {why}")
        return SelectArtifact(out, candidates, chosen.name, why, tolerance, self.section.prefer, left_out, passed_over)


def tolerance_points(section: Search, gates: Gates) -> float | None:
    """The allowed distance from the best dev score; None without a limit."""
    if section.tolerance_points is None and (gates.accuracy is None or gates.accuracy.min is None):
        return TOLERANCE_POINTS
    return section.tolerance_points


def choose(
    candidates: Sequence[Compared], tolerance_points: float | None, prefer: Prefer, hundred_points: float = 1.0
) -> tuple[Compared, str]:
    """The chosen candidate, and the reason. `hundred_points`: see `tasks.task` of the runtime.

    Candidates that miss no gate and are at most `tolerance_points` below the best of them compete. `prefer` decides by
    latency or size, then the other of the two, then the dev score, then the order. If every candidate misses a gate,
    the best dev score ships.
    """
    fit = [one for one in candidates if not one.missed]
    if not fit:
        return _best(candidates), _nothing_fits(candidates)
    best = _best(fit)
    most = 100 if tolerance_points is None else tolerance_points
    point = hundred_points / 100
    near = [one for one in fit if not evaluation.exceeds(best.dev_score.gain_over(one.dev_score) / point, most)]
    chosen, rank = _cheapest(near, prefer)
    on_dev = message("select.on_dev", metric=_metric(best), score=_percent(chosen))
    figures = joined(on_dev, _cost(chosen), by="list.comma")
    lost = len(candidates) - len(fit)
    others = message("select.others", n=lost) if lost else ""
    if len(candidates) == 1:
        return chosen, joined(message("select.only"), figures)
    if len(fit) == 1:
        return chosen, joined(message("select.only_one", n=len(candidates)), figures)
    if tolerance_points is None:
        whose = message("select.whose", best=_the_best(best), name=best.name)
        beside = "" if chosen is best else whose
        return chosen, joined(message("select.of_fit", rank=rank, n=len(near)), beside, figures, others)
    if len(near) == 1:
        alone = message("select.no_other", points=tolerance_points)
        return chosen, joined(_the_best(best), alone, _cost(chosen), others)
    name = message("select.its_own") if chosen is best else message("select.of_name", name=best.name)
    within = message(
        "select.within", rank=rank, n=len(near), points=tolerance_points, best=_the_best(best), whose=name
    )  # fmt: skip
    return chosen, joined(within, _cost(chosen), others)


def _cheapest(near: Sequence[Compared], prefer: Prefer) -> tuple[Compared, str]:
    """The cheapest candidate, and its rank in words."""

    def alike(some: Sequence[Compared], figure: Callable[[Compared], float]) -> list[Compared]:
        return [one for one in some if figure(one) <= (1 + MARGIN) * min(map(figure, some))]

    figures: dict[str, Callable[[Compared], float]] = {
        "fastest": lambda one: one.p50_ms,
        "smallest": lambda one: one.onnx_bytes,
    }
    word, other = figures if prefer == "latency" else reversed(figures)
    first = alike(near, figures[word])
    second = alike(first, figures[other])
    if len(first) == 1:
        return first[0], message(f"select.{word}")
    if len(second) == 1:
        of = message("select.of_first", rank=message(f"select.{other}"), n=len(first), word=_plain(word))
        return second[0], of
    return _best(second), message("select.best_of", n=len(second), word=_plain(word), other=_plain(other))


def _best(candidates: Sequence[Compared]) -> Compared:
    return max(candidates, key=lambda one: one.dev_score.gain_over(candidates[0].dev_score))


def _plain(word: str) -> str:
    return message(f"select.plain_{word}")


def _metric(one: Compared) -> str:
    return message(f"metric.{one.dev_score.metric}")


def _the_best(best: Compared) -> str:
    return message("select.the_best", metric=_metric(best), score=_percent(best))


def _percent(one: Compared) -> str:
    return quantity(one.dev_score.value, one.dev_score.unit)


def _cost(one: Compared) -> str:
    return f"p50 {quantity(one.p50_ms, 'ms')}, {quantity(mebibytes(one.onnx_bytes), 'MiB')}"


def _nothing_fits(candidates: Sequence[Compared]) -> str:
    if len(candidates) == 1:
        return message("select.only_misses", gates=candidates[0].missed)
    each = [message("select.misses", name=one.name, gates=one.missed) for one in candidates]
    return message("select.all_miss", best=_the_best(_best(candidates)), n=len(candidates), each=each)


def _compared(
    name: str,
    entry: Entry,
    latency: Latency,
    gates: Gates,
    judge: Judge | None,
    data: DataArtifact,
    progress: Progress,
) -> Compared:
    """The figures of one candidate, and the gates that it misses. `judge`: of the accuracy gates, if there are any."""
    rows, shipped = data.read("dev"), entry.exported.shipped_model
    answers = evaluation.answers(Predictor(entry.folder), rows, f"{name} on dev", progress)
    found = Compared(
        name,
        evaluation.score(data.text_task, evaluation.metric_of(data), rows, answers, data.labels),
        entry.model.parameters,
        entry.model.weight_bytes,
        entry.train_seconds,
        shipped.precision,
        shipped.onnx_bytes,
        latency.p50_ms,
        latency.p95_ms,
    )
    if judge is None:
        return replace(found, missed=missed(found, gates))
    reference = answers
    if judge.limits.max_drop_points is not None and shipped != entry.exported.float_model:
        of_float = entry.exported.folder / entry.exported.float_model.folder
        reference = evaluation.answers(Predictor(of_float), rows, f"{name} in float on dev", progress)
    judged = replace(judge, float_answers=reference)(answers)
    return replace(found, missed=(*judged.missed, *missed(found, gates)))


def missed(one: Compared, gates: Gates) -> tuple[str, ...]:
    """The gates on latency and size that a candidate misses, each with figure and limit."""
    most: list[tuple[str, float | None, float]] = []
    if gates.latency is not None and gates.latency.threads == _THREADS:
        most += [(asked.gate, _timed(one).get(asked.gate), asked.limit_ms) for asked in asked_of(gates.latency)]
    if gates.size is not None and gates.size.model_mib is not None:
        most.append((limit_named("size.model_mib").gate, mebibytes(one.onnx_bytes), gates.size.model_mib))
    return tuple(
        f"{gate} ({figure:.4g} > {limit:g})" for gate, figure, limit in most if figure is not None and figure > limit
    )


def _timed(one: Compared) -> dict[str, float | None]:
    """The latencies of a candidate, by gate; None of too few texts."""
    return {
        limit_named("latency.p50_ms").gate: one.p50_ms,
        limit_named("latency.p95_ms").gate: one.p95_ms,
    }


def not_judged(gates: Gates, candidates: Sequence[Compared]) -> tuple[str, ...]:
    """The latency gates that cannot be judged here, each with the reason."""
    if gates.latency is None:
        return ()
    asked = [one.gate for one in asked_of(gates.latency)]
    if asked and gates.latency.threads != _THREADS:
        return (message("select.threads", gates=asked, threads=gates.latency.threads),)
    timed = [_timed(candidate) for candidate in candidates]
    found = [
        message("select.few_texts", gate=gate)
        for gate in asked
        if any(gate in one and one[gate] is None for one in timed)
    ]
    if others := [gate for gate in asked if gate not in timed[0]]:
        found.append(message("select.p50_p95", gates=others))
    return tuple(found)
