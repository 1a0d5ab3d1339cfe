"""What a trained student becomes when it is made smaller, in width or in its vocabulary, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.artifacts import ModelArtifact, Score
from edgepack.wording import counted


@dataclass(frozen=True)
class NarrowedArtifact(ModelArtifact):
    """A student that was cut to a part of its width and trained once more. What is said of a training is of that one.

    Heads and neurons are those of each layer.
    """

    heads: int
    heads_before: int
    neurons: int
    neurons_before: int
    dev_score_before: Score

    @property
    def cost(self) -> str:
        """What went and what that did on the dev rows, in words."""
        heads = f"{self.heads_before} -> {counted(self.heads, 'head')}"
        neurons = f"{self.neurons_before:,} -> {self.neurons:,} neurons a layer"
        return f"{heads}, {neurons}; {_on_dev(self.dev_score_before, self.dev_score)}"


@dataclass(frozen=True)
class PrunedArtifact(ModelArtifact):
    """A student with fewer tokens in its vocabulary. What is said of its training is the student's.

    `unknown` and `unknown_before` are the shares (0 to 1) of the dev rows' tokens that are [UNK].
    """

    tokens: int  # rows of the word embedding
    tokens_before: int
    dev_score_before: Score
    unknown: float
    unknown_before: float

    @property
    def cost(self) -> str:
        """What went and what that did on the dev rows, in words."""
        tokens = f"{self.tokens_before:,} -> {self.tokens:,} tokens"
        lost = f"[UNK] {100 * self.unknown_before:.2f} -> {100 * self.unknown:.2f} % of dev tokens"
        return f"{tokens}; {_on_dev(self.dev_score_before, self.dev_score)}; {lost}"


def _on_dev(before: Score, after: Score) -> str:
    return f"dev {100 * before.value:.1f} -> {100 * after.value:.1f} %"
