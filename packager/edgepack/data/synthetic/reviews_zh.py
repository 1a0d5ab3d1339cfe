"""`builtin:reviews-zh`: seeded, synthetic Chinese reviews of hotels, restaurants and shops.

Labelling rule, in the order in which it is applied:
 1. A clause has the polarity of its predicate, inverted by each negation that governs it: `不脏` praises,
    `谈不上干净` faults, `不能说不干净` praises. `不得不说`, `不但` and `不过` negate nothing. A comparison has the
    polarity of its predicate, `没有…`, `不比…` and `不如…` invert it.
 2. In a contrast (`虽然…但是…`, `…不过…`) the clause after the contrasting word decides; in a concession
    (`即使…也…`) the main clause does. The deciding clause always comes last.
 3. Expectations and hearsay (`本来以为…`, `朋友说…`) do not count; the writer's own experience does.
 4. If opinions are mixed and the writer states an overall verdict, the verdict decides.

The label depends on word order and scope: a linear model on characters stays behind an encoder.
Templates are divided among train, dev and test independently of the seed, so that a memorised template does not help.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random
from typing import Final

from edgepack.artifacts import Row, Split
from edgepack.data.synthetic.lexicon import (
    BAD_VERDICTS,
    CLAUSE_FORMS,
    FAMILY_WEIGHTS,
    GOOD_VERDICTS,
    MISSPELLINGS,
    REFERENCES,
    SLIP_CHARACTERS,
    TEMPLATES,
    VENUES,
    Aspect,
    Family,
    Quality,
    Venue,
)

POSITIVE: Final = "正面"
NEGATIVE: Final = "负面"
DEFAULT_SIZES: Final[Mapping[Split, int]] = {"train": 8000, "dev": 500, "test": 1000}
KEEP_RATE: Final = 0.9  # share of clauses with the polarity of their predicate
TYPO_RATE: Final = 0.04
_TRAIN_PART, _DEV_PART = 0.75, 0.08  # share of the templates of each family; the rest is test
_SPLIT: Final = 51  # shuffles the templates; chosen so that train has every character of dev and test
_SLOT: Final = re.compile(r"\{([^}]*)\}")
# Far more draws than the largest split needs; ends the search for a size that the templates cannot fill.
_DRAWS_PER_ROW: Final = 200


def generate(seed: int, split_sizes: Mapping[Split, int] = DEFAULT_SIZES) -> dict[str, list[Row]]:
    """Rows of the requested splits, the same for the same arguments on any machine and Python.

    Raises:
        ValueError: a split does not exist, or the templates have too few different texts for its size.
    """
    drawn = generate_with_templates(seed, split_sizes)
    return {split: [row for row, _ in rows] for split, rows in drawn.items()}


def generate_with_templates(
    seed: int, split_sizes: Mapping[Split, int] = DEFAULT_SIZES
) -> dict[str, list[tuple[Row, str]]]:
    """As `generate`, each row with the id of its template."""
    parts = template_ids()
    unknown = sorted(set(split_sizes) - set(parts))
    if unknown:
        raise ValueError(f"no split {', '.join(unknown)}; reviews-zh has {', '.join(parts)}")
    negative = sorted(split for split, size in split_sizes.items() if size < 0)
    if negative:
        raise ValueError(f"negative size for {', '.join(negative)}")
    seen: set[str] = set()
    result: dict[str, list[tuple[Row, str]]] = {}
    for split in parts:  # not in the caller's order, which must not change the rows
        if split in split_sizes:
            rng = Random(f"reviews-zh/{seed}/{split}")
            draws = _draw(rng, parts[split], seen, split_sizes[split] * _DRAWS_PER_ROW)
            result[split] = list(islice(draws, split_sizes[split]))
            if len(result[split]) < split_sizes[split]:
                raise ValueError(f"reviews-zh has only {len(result[split])} distinct texts for {split}")
    return result


def template_ids() -> dict[Split, tuple[str, ...]]:
    """The template ids (`family/pattern`) of each split; no id is in two splits."""
    parts: dict[Split, list[str]] = {"train": [], "dev": [], "test": []}
    for family, patterns in TEMPLATES.items():
        ids = sorted(
            (f"{family}/{p}" for p in patterns), key=lambda i: hashlib.sha256(f"{_SPLIT}/{i}".encode()).digest()
        )
        train_end = round(len(ids) * _TRAIN_PART)
        dev_end = train_end + max(1, round(len(ids) * _DEV_PART))
        parts["train"] += ids[:train_end]
        parts["dev"] += ids[train_end:dev_end]
        parts["test"] += ids[dev_end:]
    return {split: tuple(ids) for split, ids in parts.items()}


def _draw(rng: Random, ids: tuple[str, ...], seen: set[str], most: int) -> Iterator[tuple[Row, str]]:
    """New rows with random labels; every text is added to `seen`."""
    by_family: dict[str, list[str]] = {}
    for template_id in ids:
        by_family.setdefault(template_id.partition("/")[0], []).append(template_id)
    families: list[Family] = [family for family in FAMILY_WEIGHTS if family in by_family]
    weights = [FAMILY_WEIGHTS[family] for family in families]
    for _ in range(most):
        template_id = rng.choice(by_family[rng.choices(families, weights)[0]])
        positive = rng.random() < 0.5
        text = _with_typo(rng, _Writer(rng, positive).fill(template_id.partition("/")[2]))
        if text not in seen:
            seen.add(text)
            yield Row(text, POSITIVE if positive else NEGATIVE), template_id


class _Writer:
    """Fills one template for one label; remembers the venue and the mentioned aspects."""

    def __init__(self, rng: Random, positive: bool) -> None:
        self._rng = rng
        self._positive = positive
        self._venue: Venue = rng.choice(VENUES)
        self._aspects: list[Aspect] = rng.sample(self._venue.aspects, k=3)
        self._quality: Quality = rng.choice(self._aspects[0].qualities)

    def fill(self, pattern: str) -> str:
        text = _SLOT.sub(lambda slot: self._slot(slot.group(1)), pattern)
        return text + self._rng.choice(("。", "。", "！", ""))

    def _slot(self, slot: str) -> str:
        if slot == "p":
            return self._rng.choice(self._venue.names)
        if slot == "v":
            return self._rng.choice(GOOD_VERDICTS if self._positive else BAD_VERDICTS)
        name = ""
        if not slot.endswith("*"):
            aspect = self._aspects.pop()
            name = aspect.name
            self._quality = self._rng.choice(aspect.qualities)
        return self._clause(name, praises=self._positive != (slot[0].lower() == "o"), alone=slot[0].isupper())

    def _clause(self, name: str, *, praises: bool, alone: bool) -> str:
        # The polarity is drawn first: otherwise it would depend on the number of forms of each.
        keeps = self._rng.random() < KEEP_RATE
        kind = "good" if praises == keeps else "bad"
        forms = [
            form
            for form in CLAUSE_FORMS
            if form.keeps == keeps and form.words in ("any", kind) and (alone or not form.stands_alone)
        ]
        predicate = self._quality.good if kind == "good" else self._quality.bad
        form = self._rng.choices(forms, [form.weight for form in forms])[0]
        return form.pattern.format(a=name, x=predicate, ref=self._rng.choice(REFERENCES))


def _with_typo(rng: Random, text: str) -> str:
    """The text with one typing error at `TYPO_RATE`: a misspelt word, a doubled or a missing character."""
    if rng.random() >= TYPO_RATE:
        return text
    kind = rng.randrange(3)
    if kind == 0:
        known = [pair for pair in MISSPELLINGS if pair[0] in text]
        return text.replace(*rng.choice(known), 1) if known else text
    places = [i for i, character in enumerate(text) if character in SLIP_CHARACTERS]
    if not places:
        return text
    at = rng.choice(places)
    return text[:at] + text[at] + text[at:] if kind == 1 else text[:at] + text[at + 1 :]
