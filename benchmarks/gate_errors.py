"""How often the accuracy gates are wrong: models of a known truth, each judged on rows of its own.

    python benchmarks/gate_errors.py [--models 10000] [--floor-models 10000] [--f1-models 400] [--span-models 400]
                                     [--resamples 400] [--confidence 0.95]

The truth is put where it is hardest to tell: at the limit, where a fail is wrong, and a hair beyond it, where a pass
is wrong. Each may be wrong in half of what the confidence leaves. `power` is the share that is decided two points (F1:
six) to the right side of the limit, or as far as that side reaches; of floors, where one class is ten points below its
own. `goes_on` is the share of the models two points below `min` that the policies for doubt let out: `deliver` all but
those that fail, `refuse` those that pass. `wilson_alone` is what Wilson's interval by itself would fail wrongly, by
arithmetic. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import synthetic_models as synthetic

from edgepack_runtime.stats import intervals, scoring

A_HAIR = 1e-9
LIMITS = (0.7, 0.88, 0.95, 0.99, 0.998)
ROWS = (100, 500, 1200)
POLICY_MIN, POLICY_ROWS, BELOW = 0.88, (30, 60, 100, 300, 1000, 3000), 0.02
# Share of rows that only the float model has right, at the limit, and how many are won back besides.
SUGGESTED_DROPS = ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 4.0))
THREE = synthetic.Confusing((0.6, 0.3, 0.1), ((0.95, 0.04, 0.01), (0.06, 0.9, 0.04), (0.1, 0.1, 0.8)))
# A class that hardly any row has, and that is mostly missed; and one that is known as well as the others.
RARE = synthetic.Confusing((0.7, 0.295, 0.005), ((0.97, 0.03, 0.0), (0.03, 0.97, 0.0), (0.4, 0.4, 0.2)))
RARE_KNOWN = synthetic.Confusing((0.7, 0.295, 0.005), ((0.96, 0.03, 0.01), (0.03, 0.96, 0.01), (0.1, 0.1, 0.8)))
RARE_LABEL = synthetic.Confusing((0.97, 0.03), ((0.996, 0.004), (0.5, 0.5)))
MISSED_LABEL = synthetic.Confusing((0.9, 0.1), ((0.978, 0.022), (0.8, 0.2)))
MISSED_CLASS = synthetic.Confusing((0.9, 0.1), ((0.97, 0.03), (0.7, 0.3)))
HARDLY_THERE = synthetic.Confusing((0.99, 0.01), ((0.999, 0.001), (0.5, 0.5)))
TWO = synthetic.Confusing((0.3, 0.7), ((0.95, 0.05), (0.6, 0.4)))
LOSING = synthetic.Losing(MISSED_CLASS, synthetic.Confusing((0.9, 0.1), ((0.99, 0.01), (0.95, 0.05))), (0.05, 0.4))
F1S = (
    ("macro_f1", "2 classes, one of 10 % that is mostly missed", MISSED_CLASS, (100, 400)),
    ("macro_f1", "2 classes, one of 70 % that is mostly missed", TWO, (20, 100)),
    ("macro_f1", "3 classes", THREE, (100, 300)),
    ("macro_f1", "3 classes, one of 0.5 % that is missed", RARE, (300,)),
    ("macro_f1", "3 classes, one of 0.5 % that is known", RARE_KNOWN, (300,)),
    ("macro_f1", "20 equal classes", synthetic.even(20, 0.85), (100, 200, 400)),
    ("macro_f1", "50 equal classes", synthetic.even(50, 0.85), (100,)),
    ("macro_f1", "20 equal classes, badly known", synthetic.even(20, 0.6), (100, 400)),
    ("f1", "a label of 3 %, half of it found", RARE_LABEL, (200, 500)),
    ("f1", "a label of 10 %, a fifth of it found", MISSED_LABEL, (100,)),
    ("f1", "a label of 1 %, half of it found", HARDLY_THERE, (100,)),
)
F1_DROPS = (("macro_f1", 400), ("f1", 400))  # of `LOSING`
FEW, LUMPY = (1, 1, 2, 3, 5), (1,) * 11 + (12,)  # spans of a text
SPANS = (
    ("1 to 5 spans, a third of them together", synthetic.Spanning(FEW, 0.9, 0.3, lost_spans=0.01), 200),
    ("1 to 5 spans, texts lost as a whole", synthetic.Spanning(FEW, 0.9, 1.0, lost_texts=0.01), 400),
    ("one text in 12 has 12 spans", synthetic.Spanning(LUMPY, 0.9, 0.5, lost_texts=0.02), 400),
)
FLOORS = ((2, 50), (20, 50), (20, 200), (50, 50))  # classes, and rows of each
FLOOR = 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--floor-models", type=int, default=10_000)
    parser.add_argument("--f1-models", type=int, default=400)
    parser.add_argument("--span-models", type=int, default=400)
    parser.add_argument("--resamples", type=int, default=400, help="of each F1, where gates draw 2,000")
    parser.add_argument("--confidence", type=float, default=0.95)
    options = parser.parse_args()
    scoring.RESAMPLES = options.resamples
    begin = time.perf_counter()
    found = [minimum(options.models, n, limit, options.confidence) for n in ROWS for limit in LIMITS]
    found += [drop(options.models, n, *rates, options.confidence) for n in ROWS for rates in SUGGESTED_DROPS]
    found += [per_class(options.floor_models, *sizes, options.confidence) for sizes in FLOORS]
    if options.f1_models:
        found += [minimum_f1(options.f1_models, *of, n, options.confidence) for *of, rows in F1S for n in rows]
        found += [drop_of_f1(options.f1_models, metric, n) for metric, n in F1_DROPS]
    if options.span_models:
        found += [case for named in SPANS for case in spans(options.span_models, *named)]
    policies = [goes_on(options.models, n, options.confidence) for n in POLICY_ROWS]
    allowed = (1 - options.confidence) / 2
    worst = {key: max(one[key] for one in found) for key in ("wrong_fail", "wrong_pass")}
    drawn = {"models": options.models, "floor_models": options.floor_models, "f1_models": options.f1_models}
    drawn["span_models"] = options.span_models
    told = {**drawn, "allowed": round(allowed, 6), **worst}
    seconds = round(time.perf_counter() - begin, 1)
    print(
        json.dumps(
            {
                **told,
                "allowed_with_noise": _noisy(allowed, options.models),
                "cases": found,
                "goes_on": policies,
                "seconds": seconds,
            }
        )
    )


def minimum(models: int, n: int, limit: float, confidence: float) -> dict[str, Any]:
    """`accuracy.min` at one limit."""
    at, below, above = (
        synthetic.rates(synthetic.minimums(models, n, limit, confidence, lambda source, true=true: true, seed))
        for seed, true in enumerate((limit, limit - A_HAIR, min(limit + 0.02, 1.0)))
    )
    return _row(f"min {limit:g}", n, at, below, above, wilson_alone=wilson_fails(n, limit, confidence))


def goes_on(models: int, n: int, confidence: float) -> dict[str, Any]:
    """Of models `BELOW` the minimum, the share that each policy for doubt lets out."""
    true = POLICY_MIN - BELOW
    judged = Counter(
        verdict for _, verdict in synthetic.minimums(models, n, POLICY_MIN, confidence, lambda source: true, n)
    )
    shares = {
        "deliver": round(1 - judged[intervals.FAIL] / models, 4),
        "refuse": round(judged[intervals.PASS] / models, 4),
    }
    print(f"min {POLICY_MIN:g}, models at {true:g}, {n} rows: go on {shares}", flush=True)
    return {"min": POLICY_MIN, "true": true, "rows": n, **shares}


def drop(models: int, n: int, points: float, won: float, confidence: float) -> dict[str, Any]:
    """`accuracy.max_drop_points` at one limit; `won` is a percentage of the rows."""
    at, above, below = (
        synthetic.rates(
            synthetic.drops(models, n, points, confidence, lambda source, lost=lost: (lost, won / 100), seed)
        )
        for seed, lost in enumerate(
            ((points + won) / 100 - A_HAIR, (points + won) / 100 + A_HAIR, max(points + won - 2, 0) / 100)
        )
    )
    return _row(f"drop {points:g}, {won:g} % won", n, at, above, below)


def per_class(models: int, classes: int, n: int, confidence: float) -> dict[str, Any]:
    """`accuracy.per_class.recall`: all classes at the floor, and one a hair below it where all others are perfect."""
    lone = [1.0] * (classes - 1)
    at, below, above = (
        synthetic.rates(synthetic.floors(models, n, FLOOR, confidence, recalls, seed))
        for seed, recalls in enumerate(([FLOOR] * classes, [FLOOR - A_HAIR, *lone], [FLOOR - 0.1, *lone]))
    )
    return _row(f"recall of {classes} classes {FLOOR:g}", n, at, below, above)


def minimum_f1(
    models: int, metric: str, what: str, model: synthetic.Confusing, n: int, confidence: float
) -> dict[str, Any]:
    """`accuracy.min` of the macro F1 of some classes, or the F1 of one."""
    true = model.figure(metric)
    judged = model.judged(metric, models, n, (true, true + A_HAIR, true - 0.06), confidence, seed=n)
    return _row(f"{metric} min {true:.3f} of {what}", n, *map(synthetic.rates, judged))


def drop_of_f1(models: int, metric: str, n: int) -> dict[str, Any]:
    """`max_drop_points` of the macro F1 of two classes, or the F1 of one, that is mostly missed, and more so after."""
    true = LOSING.drop(metric)
    judged = LOSING.judged(metric, models, n, _around(true, 0.06), seed=n)
    return _row(f"{metric} drop {true:.4f}, a label of 10 %, mostly missed", n, *map(synthetic.rates, judged))


def spans(models: int, what: str, model: synthetic.Spanning, n: int) -> list[dict[str, Any]]:
    """`min` and `max_drop_points` of the entity F1 and a floor of the recall, of texts whose spans fail together."""
    cases = {
        f"entity_f1 min {model.f1:.3f}": model.minimums(models, n, _around(model.f1, -0.06), n),
        f"entity_f1 drop {model.drop:.4f}": model.drops(models, n, _around(model.drop, 0.03), n),
        f"recall floor {model.right:g}": model.floors(models, n, _around(model.right, -0.06), n),
    }
    return [_row(f"{name}: {what}", n, *map(synthetic.rates, judged)) for name, judged in cases.items()]


def _around(true: float, off: float) -> tuple[float, float, float]:
    """Limits that the truth just keeps to, just misses, and keeps to by as much as `off`."""
    hair = math.copysign(A_HAIR, off)
    return true + hair, true - hair, true + off


def wilson_fails(n: int, limit: float, confidence: float) -> float:
    """How often Wilson's interval alone fails a model whose true accuracy is the limit."""
    failed = 0.0
    for right in range(n + 1):
        if intervals.wilson(right, n, confidence).high < limit:
            log = math.lgamma(n + 1) - math.lgamma(right + 1) - math.lgamma(n - right + 1)
            failed += math.exp(log + right * math.log(limit) + (n - right) * math.log1p(-limit))
    return failed


def _row(
    name: str,
    n: int,
    kept: synthetic.Rates,
    missed: synthetic.Rates,
    better: synthetic.Rates,
    **more: float,
) -> dict[str, Any]:
    case = {"wrong_fail": kept.wrong_fail, "wrong_pass": missed.wrong_pass, "power": better.decided, **more}
    line = {key: round(value, 4) for key, value in case.items()}
    print(f"{name}, {n} rows: " + ", ".join(f"{key} {value:.2%}" for key, value in line.items()), flush=True)
    return {"gate": name, "rows": n, **line}


def _noisy(allowed: float, models: int) -> float:
    """What is seen of `allowed` among so many models in all but one of 30,000 cases."""
    return round(allowed + 4 * math.sqrt(allowed * (1 - allowed) / models), 4)


if __name__ == "__main__":
    main()
