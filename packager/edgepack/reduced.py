"""What a trained student becomes when it is made smaller, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.artifacts import ModelArtifact, Score


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
        before, after = (100 * score.value for score in (self.dev_score_before, self.dev_score))
        lost = f"[UNK] {100 * self.unknown_before:.2f} -> {100 * self.unknown:.2f} % of dev tokens"
        return f"{self.tokens_before:,} -> {self.tokens:,} tokens; dev {before:.1f} -> {after:.1f} %; {lost}"
