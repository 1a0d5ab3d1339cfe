"""Gates: every limit that a recipe may set, and `gates` of the manifest, which a device measures.

The declaration of a limit is the only one. Recipes, their JSON Schema and their reference are made from it; the gate
takes its name, unit and direction from it, and `Limits` refuses what this runtime cannot measure. The metadata of a
limit, beside those of `fields`: its `unit`, `minimum` if it is a lower bound, `fraction` of a percentile.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, Dict, Iterator, List, Literal, Mapping, NamedTuple, Optional, Tuple, Type, get_args

from edgepack_runtime.errors import BundleInvalidError
from edgepack_runtime.schema.fields import Document, Problem, field, hints, read
from edgepack_runtime.schema.maxima import MAX_THREADS, MAX_TOKENS
from edgepack_runtime.stats.intervals import CONFIDENCE
from edgepack_runtime.stats.metrics import METRICS, MetricName, metric_of

ABOVE_MAJORITY = "accuracy.above_majority"  # better than the same answer to every row; no recipe sets or waives it
DELIVER: Literal["deliver"] = "deliver"
REFUSE: Literal["refuse"] = "refuse"
NOT_LIMITS = ("golden", "inconclusive")  # keys of `gates` that limit nothing
FIGURES = ("recall", "precision", "f1")  # of a class
P50, P95, P99 = 0.5, 0.95, 0.99
_P99 = "Maximum 99th percentile; needs 662 texts."
_SHARE = {"gt": 0, "lt": 1}
_PER_CLASS = "accuracy.per_class."
_MIN_OF = "accuracy.min_of"
_LENGTHS = re.compile(r"\Alatency\.max_tokens_[0-9]+\.")


class Floors(NamedTuple):
    """Minimum of recall, precision or F1 per class, 0 to 1: a default, and values for named classes."""

    every: Optional[float]
    named: Mapping[str, float]

    def of(self, label: str) -> Optional[float]:
        """The floor of one class; None without one."""
        return self.named.get(label, self.every)


def _share(description: str) -> Any:
    return field(description, None, unit="fraction", minimum=True, **_SHARE)


def _shares(description: str) -> Any:
    return field(description, {}, values=_SHARE)


def _percentile(fraction: float, description: str) -> Any:
    return field(description, None, unit="ms", fraction=fraction, gt=0)


@dataclasses.dataclass(frozen=True)
class ClassLimits(Document):
    """Least recall, precision or F1 (0 to 1) of single classes."""

    ONE_OF = (*FIGURES, "recall_of", "precision_of", "f1_of")

    recall: Optional[float] = _share("Least recall of any class.")
    precision: Optional[float] = _share("Least precision of any class.")
    f1: Optional[float] = _share("Least F1 of any class.")
    recall_of: Mapping[str, float] = _shares("Least recall of classes by name, instead of `recall`.")
    precision_of: Mapping[str, float] = _shares("Least precision by name, instead of `precision`.")
    f1_of: Mapping[str, float] = _shares("Least F1 by name, instead of `f1`.")

    def floors(self) -> Dict[str, Floors]:
        """The floors by figure, for the `FIGURES` that have any."""
        found = {figure: Floors(getattr(self, figure), getattr(self, f"{figure}_of")) for figure in FIGURES}
        return {figure: one for figure, one in found.items() if one.every is not None or one.named}


@dataclasses.dataclass(frozen=True)
class GoldenRows(Document):
    """The golden rows, on which gates are measured: a stratified sample of the test rows."""

    rows: int = field(
        "Maximum number of golden rows. 2000 rows take 10 s at 5 ms per text; accuracy has +-1.4 points around 88 %.",
        2000,
        ge=1,
        le=100_000,
    )
    carry: bool = field(
        "Whether the bundle carries them. If not, it holds no text of the data, and devices cannot gate "
        "accuracy alone: `gate --rows FILE` can, with the file that the build writes beside the bundle.",
        True,
    )


@dataclasses.dataclass(frozen=True)
class AccuracyLimits(Document):
    """Accuracy on the golden rows, on the target."""

    ONE_OF = ("min", "max", "min_of", "max_drop_points", "max_regression_points", "per_class")

    metric: Optional[MetricName] = field(
        "{}. Default: the usual metric of the task.".format(
            "; ".join(f"`{name}`: {METRICS[name].about}" for name in get_args(MetricName))
        ),
        None,
    )
    min: Optional[float] = _share("Least value of the metric that passes, from 0 to 1.")
    max: Optional[float] = field("Greatest value that passes, of a metric of errors, in its unit.", None, unit="", gt=0)
    min_of: Mapping[str, float] = _shares("Least values of further metrics by name, as `entity_f1: 0.8`.")
    max_drop_points: Optional[float] = field(
        "Maximum loss of what ships (with the linear model, if that ships) against float ONNX on the same "
        "rows, in percentage points.",
        None,
        unit="points",
        gt=0,
        le=100,
    )
    per_class: Optional[ClassLimits] = field("Limits for single classes.", None)
    baseline: Optional[str] = field(  # in a manifest the release's name and version
        "Bundle of the deployed release, for any target, with the same task and labels.", None, min_length=1
    )
    max_regression_points: Optional[float] = field(
        "Maximum loss of the shipped model against `baseline` on the same rows, in percentage points.",
        None,
        unit="points",
        gt=0,
        le=100,
    )
    # Above the maximum, the bootstrap of F1 needs too many resamples.
    confidence: float = field(
        "Confidence of the intervals of these gates. Above 0.99, F1 takes up to ten times as long.",
        CONFIDENCE,
        gt=0.5,
        le=0.999,
    )

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if given.get("baseline") is None and given.get("max_regression_points") is not None:
            yield Problem(("max_regression_points",), "needs an earlier release", "set `baseline` to its bundle")
        if given.get("baseline") is not None and given.get("max_regression_points") is None:
            fix = "set `max_regression_points`: how much worse than that release the new one may be"
            yield Problem(("baseline",), "limits nothing by itself", fix)

        if self.metric is not None:
            yield from self.wrong_side(self.metric)
        for name in self.min_of or ():
            if name not in get_args(MetricName) or not metric_of(name).more_is_better:
                better = [one for one in get_args(MetricName) if metric_of(one).more_is_better]
                yield Problem(("min_of",), f"names {name!r}, which is none of {', '.join(better)}")

    def wrong_side(self, metric: str) -> Iterator[Problem]:
        """A limit on the side of `metric` where more is better, or where less is."""
        key, other = ("max", "min") if metric_of(metric).more_is_better else ("min", "max")
        if getattr(self, key) is not None:
            better = "more" if other == "min" else "less"
            yield Problem((key,), f"is not a limit of {metric}", f"set `{other}`: {better} of it is better")

    def asked(self) -> List[str]:
        """The limits that are set, without those of classes."""
        limits = [one.name for one in dataclasses.fields(AccuracyLimits) if "unit" in one.metadata]
        further = [min_of(metric).partition(".")[2] for metric in self.min_of]
        return [*(name for name in limits if getattr(self, name) is not None), *further]

    def floors(self) -> Dict[str, Floors]:
        """The floors of classes, by figure."""
        return {} if self.per_class is None else self.per_class.floors()


@dataclasses.dataclass(frozen=True)
class LengthLimits(Document):
    """Limits for texts of some lengths: at most `max_tokens`, and more than in the budget before."""

    ONE_OF = ("p50_ms", "p95_ms", "p99_ms")

    max_tokens: int = field("Maximum number of tokens of a text, with `[CLS]` and `[SEP]`.", ge=3, le=MAX_TOKENS)
    p50_ms: Optional[float] = _percentile(P50, "Maximum median.")
    p95_ms: Optional[float] = _percentile(P95, "Maximum 95th percentile.")
    p99_ms: Optional[float] = _percentile(P99, _P99)

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _without_effect(self)


@dataclasses.dataclass(frozen=True)
class SustainedLimits(Document):
    """Sustained load: one text after the other for a long time, in which a device may become hot."""

    seconds: float = field("How long.", ge=6, le=3600)  # at least three thirds of two seconds
    max_slowdown_percent: float = field(
        "Maximum increase of the median latency from the first to the last third of the run, in percent.",
        unit="percent",
        gt=0,
    )


@dataclasses.dataclass(frozen=True)
class LatencyLimits(Document):
    """Latency from text to label, batch 1."""

    p50_ms: Optional[float] = _percentile(P50, "Maximum median.")
    p95_ms: Optional[float] = _percentile(P95, "Maximum 95th percentile.")
    p99_ms: Optional[float] = _percentile(P99, _P99)
    threads: int = field(
        "Maximum number of threads of one prediction. `tune` on the device finds the best number.",
        1,
        ge=1,
        le=MAX_THREADS,
    )
    by_length: Tuple[LengthLimits, ...] = field(
        "Limits by number of tokens, each for longer texts than the one before.", ()
    )
    sustained: Optional[SustainedLimits] = field("Limit of the slowdown under sustained load; null for none.", None)

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        yield from _without_effect(self)
        ends = 0
        for place, budget in enumerate(self.by_length):
            if budget.max_tokens is None:  # invalid
                continue
            if budget.max_tokens <= ends:
                fix = "order the budgets from short to long texts, each length once"
                what = f"is {budget.max_tokens}, and the budget before it ends at {ends}"
                yield Problem(("by_length", place, "max_tokens"), what, fix)
            ends = max(ends, budget.max_tokens)


@dataclasses.dataclass(frozen=True)
class MemoryLimits(Document):
    """Memory of a device."""

    peak_rss_mib: float = field("Peak resident set of a process that loads the model and predicts.", unit="MiB", gt=0)


@dataclasses.dataclass(frozen=True)
class SizeLimits(Document):
    """Sizes of the files for a device."""

    ONE_OF = ("model_mib", "bundle_mib")

    model_mib: Optional[float] = field("Maximum size of the model's weights, in all its files.", None, unit="MiB", gt=0)
    bundle_mib: Optional[float] = field("Maximum size of the bundle.", None, unit="MiB", gt=0)


@dataclasses.dataclass(frozen=True)
class ColdStartLimits(Document):
    """Time until the first answer."""

    ms: float = field("Process start to first answer, in a fresh process.", unit="ms", gt=0)


@dataclasses.dataclass(frozen=True)
class Gates(Document):
    """Limits on the target that must hold before a bundle ships and before an install becomes active."""

    accuracy: Optional[AccuracyLimits] = field("Limits on accuracy.", None)
    latency: Optional[LatencyLimits] = field("Limits on latency.", None)
    memory: Optional[MemoryLimits] = field("Limit on memory.", None)
    size: Optional[SizeLimits] = field("Limits on sizes.", None)
    cold_start: Optional[ColdStartLimits] = field("Limit on the time to the first answer.", None)
    golden: GoldenRows = field("Golden rows, on which the gates are measured.", GoldenRows())
    inconclusive: Literal["deliver", "refuse"] = field(
        "What build and install do with a bundle whose gates are inconclusive: `deliver` goes on and "
        "writes down what was not shown; `refuse` does not go on. A bundle that fails is always refused, and so is one "
        "that is not proven better than the most frequent answer.",
        DELIVER,
    )

    @property
    def ungated(self) -> bool:
        """Whether no limit is set."""
        return ungated({one.name: getattr(self, one.name) for one in dataclasses.fields(Gates)})


def ungated(gates: Mapping[str, Any]) -> bool:
    """Whether no section of `gates` sets a limit."""
    return all(limits is None for name, limits in gates.items() if name not in NOT_LIMITS)


@dataclasses.dataclass(frozen=True)
class ManifestAccuracy(AccuracyLimits):
    """`accuracy` of a manifest. Every build sets `above_majority`: the model must beat any answer given to all rows."""

    above_majority: bool = False

    @classmethod
    def without_limit(cls, given: Mapping[str, Any]) -> bool:
        return given.get("above_majority") is not True and super().without_limit(given)

    def checks(self) -> List[str]:
        """The names of the checks that a receipt has of these limits, `ABOVE_MAJORITY` not among them."""
        return [*(f"accuracy.{name}" for name in self.asked()), *map(per_class, self.floors())]


@dataclasses.dataclass(frozen=True)
class ManifestGoldenRows(GoldenRows):
    """`golden` of a manifest. `sha256` is that of the labelled rows if they are kept out of the bundle."""

    sha256: Optional[str] = None

    def problems(self, given: Mapping[str, Any]) -> Iterator[Problem]:
        if self.carry is not (self.sha256 is None):
            yield Problem(("carry",), f"is {self.carry}, and `sha256` {self.sha256!r}")
        elif self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            yield Problem(("sha256",), f"is {self.sha256!r}")


@dataclasses.dataclass(frozen=True)
class Limits(Gates):
    """`gates` of a manifest. Sections that it does not set have their defaults, without limits."""

    accuracy: ManifestAccuracy = ManifestAccuracy()
    latency: LatencyLimits = LatencyLimits()
    size: SizeLimits = SizeLimits()
    golden: ManifestGoldenRows = ManifestGoldenRows()

    @classmethod
    def parse(cls, gates: Mapping[str, Any]) -> Limits:
        """Parse the manifest's `gates`. A gate that this runtime cannot measure would look like a passed one.

        Raises:
            BundleInvalidError: a key is unknown to this runtime, or a value is invalid.
        """
        limits, problems = read(cls, _with_release(gates))
        if problems:
            raise BundleInvalidError(
                "this runtime cannot measure the gates of the manifest",
                why="; ".join(problem.reason("gates") for problem in problems[:3]),
                fix="build the bundle again",
            )
        return limits


def _with_release(gates: Mapping[str, Any]) -> Mapping[str, Any]:
    """`gates` with name and version of the earlier release in place of its facts; other text there is invalid."""
    accuracy = gates.get("accuracy")
    if not isinstance(accuracy, Mapping) or accuracy.get("baseline") is None:
        return gates
    facts = accuracy["baseline"]
    is_named = isinstance(facts, Mapping) and all(isinstance(facts.get(key), str) for key in ("name", "version"))
    return {**gates, "accuracy": {**accuracy, "baseline": "{name} {version}".format(**facts) if is_named else [facts]}}


def _without_effect(section: Any) -> Iterator[Problem]:
    """Limits of percentiles that are above the limit of a higher percentile."""
    asked = percentiles(section)
    for place, (above, _, most) in enumerate(asked[1:]):
        key, _, limit = asked[place]
        if limit > most:
            what = f"is {limit:g}, and `{above}` is {most:g}, so it limits nothing"
            yield Problem((key,), what, f"swap them, or remove `{key}`")


def percentiles(section: Any) -> List[Tuple[str, float, float]]:
    """(key, percentile from 0 to 1, limit in ms) for each limited percentile of `LatencyLimits` or `LengthLimits`."""
    fields = [one for one in dataclasses.fields(section) if "fraction" in one.metadata]
    asked = ((one.name, one.metadata["fraction"], getattr(section, one.name)) for one in fields)
    return [(key, fraction, limit) for key, fraction, limit in asked if limit is not None]


class Limit(NamedTuple):
    """The declaration of a limit: its name in receipts, as `latency.p95_ms`, unit, and meaning."""

    gate: str
    unit: str
    minimum: bool
    description: str


@functools.lru_cache(maxsize=1)
def declared() -> Mapping[str, Limit]:
    """Every limit by its name. Those by length are `latency.by_length.p95_ms` here."""
    most = Limit(ABOVE_MAJORITY, "points", True, "Better than the best answer that is the same for every row.")
    further = Limit(_MIN_OF, "fraction", True, "Least value of a further metric that passes.")
    return {limit.gate: limit for limit in (*_declared(Gates, ""), most, further)}


def _declared(section: Any, above: str) -> Iterator[Limit]:
    for one in dataclasses.fields(section):
        name, unit = f"{above}{one.name}", one.metadata.get("unit")
        if unit is not None:
            yield Limit(name, unit, one.metadata.get("minimum", False), one.metadata["description"])
        for below in _sections(hints(section)[one.name]):
            yield from _declared(below, f"{name}.")


def _sections(hint: Any) -> Iterator[Type[Any]]:
    """The sections of a type: its own, or those of its items."""
    if dataclasses.is_dataclass(hint):
        yield hint  # type: ignore[misc]
    for part in getattr(hint, "__args__", ()):
        yield from _sections(part)


def limit_named(gate: str) -> Limit:
    """The limit of the check `gate`.

    Raises:
        KeyError: no limit of that name is declared.
    """
    return declared()[_declared_name(gate)]._replace(gate=gate)


def is_of_time(gate: str) -> bool:
    """Whether a check is of a time, which other programs of the device disturb. Those of other versions are not."""
    limit = declared().get(_declared_name(gate))
    return limit is not None and limit.unit in ("ms", "percent")  # percent: of a slowdown


def _declared_name(gate: str) -> str:
    return _MIN_OF if is_min_of(gate) else _LENGTHS.sub("latency.by_length.", gate)


def by_length(most_tokens: int, key: str) -> str:
    """The name of the check of a percentile, `key`, of texts of some lengths."""
    return f"latency.max_tokens_{most_tokens}.{key}"


def is_by_length(gate: str) -> bool:
    """Whether a check is of texts of some lengths."""
    return _LENGTHS.match(gate) is not None


def min_of(metric: str) -> str:
    """The name of the check of the least value of a further metric."""
    return f"{_MIN_OF}.{metric}"


def is_min_of(gate: str) -> bool:
    """Whether a check is of the least value of a further metric."""
    return gate.startswith(f"{_MIN_OF}.")


def per_class(figure: str) -> str:
    """The name of the check of a figure of classes."""
    return f"{_PER_CLASS}{figure}"


def is_per_class(gate: str) -> bool:
    """Whether a check is of classes."""
    return gate.startswith(_PER_CLASS)
