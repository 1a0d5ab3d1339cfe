"""Stage `vocabulary_trimming`: remove the tokens that no training text has from vocabulary and word embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.artifacts import DataArtifact, ModelArtifact, Row, TrimmedArtifact
from edgepack.data.unlabelled import further_texts
from edgepack.recipe.encoder_shapes import PADDLE_WEIGHTS
from edgepack.recipe.model import Columns
from edgepack.recipe.training import Trimming
from edgepack.stages import keys
from edgepack.stages.data import DataStage
from edgepack.stages.stage import TRAINING, Context, Input, PlannedRows, Stage
from edgepack.training import environment
from edgepack_runtime.bundle.model_config import VOCAB_NAME
from edgepack_runtime.inference.tokenizer import ErnieTokenizer, read_vocab

if TYPE_CHECKING:
    from edgepack.training.models.classifiers import Classifier


@dataclass(frozen=True)
class VocabularyTrimmingStage(Stage[TrimmedArtifact]):
    """Writes the student without the tokens that neither its training texts nor `section` need, and scores it.

    Dev and test rows do not decide which tokens stay, so their loss estimates the loss on the device.

    Attributes:
        columns: column names of the recipe's data, to read further texts.
    """

    section: Trimming
    columns: Columns
    rows: DataStage
    student: Stage[ModelArtifact]

    name = "vocabulary_trimming"
    version = 5
    kind = TrimmedArtifact
    libraries = TRAINING
    recipe_keys = {"trimming": "student.vocabulary.trim", "columns": "data.columns"}  # noqa: RUF012 - never changed

    @property
    def needs(self) -> tuple[Stage[Any], ...]:
        return (self.rows, self.student)

    def decides(self, ctx: Context) -> Any:
        trimming = keys.dump(self.section)
        if self.section.texts is None:
            return {"trimming": trimming}
        return {"trimming": trimming | {"texts": Path(self.section.texts).suffix}, "columns": self.columns.texts}

    def inputs(self, ctx: Context) -> list[Input]:
        rows, texts = ctx[self.rows], self.section.texts
        found = [*keys.labelled(rows), *keys.unlabelled(rows), *keys.model(ctx[self.student])]
        return found if texts is None else [*found, keys.file_input("further texts", Path(texts))]

    def about(self, rows: PlannedRows) -> str:
        trimming = self.section
        often = "" if trimming.min_count == 1 else f" at least {trimming.min_count} times"
        texts = "the training texts" + ("" if trimming.texts is None else f" and {Path(trimming.texts).name}")
        characters = ", and every Chinese character" if trimming.characters == "all" else ""
        return f"keeps the tokens that occur{often} in {texts}{characters}"

    def run(self, ctx: Context, out: Path) -> TrimmedArtifact:
        section, progress = self.section, ctx.progress
        data, student = ctx.artifact(self.rows), ctx.artifact(self.student)
        environment.start(progress)
        from edgepack.training.finetune import reopen, score
        from edgepack.training.models import classifiers

        texts = [text for row in _counted_rows(section, self.columns, data) for text in row.texts]
        whole = reopen(student, data)
        before = int(whole.network.config.vocab_size)
        kept = _kept(section, whole.tokenizer, student.folder, before, texts)
        trimmed = classifiers.with_tokens(whole, student.folder, kept, out)
        trimmed.save(out)
        progress.line(f"vocabulary_trimming: {len(kept):,} of {before:,} tokens stay, chosen on {len(texts):,} texts")
        trimmed.rescale(data.scale.inverse)  # it is scored in the unit in which networks learn
        scores = score(trimmed, data, progress)
        dev = data.read("dev")
        artifact = TrimmedArtifact(
            **{field.name: getattr(student, field.name) for field in fields(ModelArtifact)}
            | {
                "folder": out,
                "parameters": trimmed.parameters,
                "weight_bytes": (out / PADDLE_WEIGHTS).stat().st_size,
                "dev_score": scores.dev_score,
                "test_score": scores.test_score,
                "test_scores": scores.test_scores,
            },
            tokens=len(kept),
            tokens_before=before,
            dev_score_before=student.dev_score,
            unknown=_unknown_share(trimmed, dev),
            unknown_before=_unknown_share(whole, dev),
        )
        progress.line(f"vocabulary_trimming: {artifact.cost}")
        return artifact


def _counted_rows(section: Trimming, columns: Columns, data: DataArtifact) -> list[Row]:
    """The rows whose tokens stay: training rows, unlabelled texts, and the recipe's further texts."""
    rows = data.read("train") + (data.read("unlabelled") if "unlabelled" in data.rows else [])
    if section.texts is None:
        return rows
    return rows + further_texts(Path(section.texts), columns, data.read("dev") + data.read("test"))


def _kept(section: Trimming, tokenizer: ErnieTokenizer, folder: Path, rows: int, texts: Sequence[str]) -> list[int]:
    """The ids of the tokens that stay, [PAD] included. `rows` is the number of rows of the word embedding."""
    from edgepack.training.models import vocabulary
    from edgepack.training.models.tokenizer_files import config_of

    config = config_of(folder)
    entries = read_vocab(folder / VOCAB_NAME)[:rows]  # further entries have no weights
    ids = {entry: number for number, entry in enumerate(entries)}
    special = [ids[token] for token in vocabulary.special_tokens(config) if token in ids]
    counts = vocabulary.count(tokenizer, texts)
    return vocabulary.choose(entries, counts, special, section)


def _unknown_share(classifier: Classifier, rows: Sequence[Row]) -> float:
    """The share of [UNK] among the tokens of `rows`, from 0 to 1."""
    ids = [number for row in classifier.encode(rows) for number in row.ids]
    return ids.count(classifier.tokenizer.unk_id) / len(ids)
