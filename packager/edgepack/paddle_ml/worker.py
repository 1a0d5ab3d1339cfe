"""A process that trains together with others: `python -m edgepack.paddle_ml.worker FOLDER`.

`paddle.distributed.launch` starts one for each GPU, or one on a machine without; `launch.py` has left the job in the
folder, and finds there what the processes of its machine have to say.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from edgepack import __version__
from edgepack.artifacts import DataArtifact, ModelArtifact
from edgepack.digest import sha256_file, sha256_folder
from edgepack.errors import StageFailedError
from edgepack.paddle_ml import environment, lifeline, ranks, relay
from edgepack.paddle_ml.fit import Lesson, Narrowing, teach
from edgepack.paddle_ml.ranks import Ranks
from edgepack.progress import SILENT
from edgepack.recipe.shapes import WEIGHTS_FILE
from edgepack.recipe.training import FromScratch, FromTeacher, is_local_folder

MODULE: Final = "edgepack.paddle_ml.worker"
JOB, RESULT, LIFELINE = "job.json", "result.json", "lifeline"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What all processes of a machine train. `out` and `checkpoint` are of the first of them."""

    lesson: Lesson
    data: DataArtifact
    out: Path
    checkpoint: Path

    def write(self, folder: Path) -> None:
        """Leave it for `read`."""
        (folder / JOB).write_bytes(_ADAPTER.dump_json(self, by_alias=True))

    @staticmethod
    def read(folder: Path) -> Job:
        """What `write` has left."""
        return _ADAPTER.validate_json((folder / JOB).read_bytes())


_ADAPTER: Final = TypeAdapter(Job)
_RESULT: Final = TypeAdapter(ModelArtifact)


def read_result(folder: Path) -> ModelArtifact:
    """What the first process of this machine has made."""
    return _RESULT.validate_json((folder / RESULT).read_bytes())


def main() -> None:
    """Train, and leave a result or an error."""
    folder = Path(sys.argv[1])
    lifeline.hang_on(folder / LIFELINE)
    environment.start()
    job = Job.read(folder)
    together = None
    try:
        together = ranks.join(ranks.own_place(job.lesson.training.device), _aside(job, folder))
        _train(job, together, folder)
    except Exception as error:
        # Whatever it is, the build has to hear of it, and the others must not wait.
        log.exception("training ended with an error")
        relay.write_error(folder, ranks.local_rank(), error)
        if together is not None:
            with suppress(StageFailedError):  # they are gone already
                together.end()
        _leave(1)
    _leave(0)


def _aside(job: Job, folder: Path) -> Callable[[str], None]:
    """Of several processes of one machine all may say what happens to them alone: memory runs out on each by itself."""
    teller, number = relay.Teller(folder), ranks.local_rank() + 1
    name = f"{job.lesson.name}, process {number}"
    return lambda text: teller.line(f"{name}: {text}")


def _leave(status: int) -> None:
    """End without what libraries do at the end of a process: some of them wait there for ranks that are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _train(job: Job, together: Ranks, folder: Path) -> None:
    _check_agreement(job, together)
    out = job.out
    if not together.is_first_here:  # each writes its tokenizer's files
        out = folder / f"rank-{together.rank}"
        out.mkdir()
    progress = relay.Teller(folder) if together.is_first_here else SILENT
    made = teach(job.lesson, job.data, out, progress, job.checkpoint, together)
    if together.is_first_here:
        (folder / RESULT).write_bytes(_RESULT.dump_json(made))
    together.leave()


def _check_agreement(job: Job, together: Ranks) -> None:
    """Builds on several machines train the same, or nothing."""
    told = [json.loads(one) for one in together.all_bytes(json.dumps(_facts(job)).encode())]
    different = [name for name in told[0] if any(other[name] != told[0][name] for other in told)]
    if different:
        raise StageFailedError(
            f"{job.lesson.name}: the machines of `nodes` do not train the same",
            why=f"they differ in: {', '.join(different)}",
            fix="give all of them one recipe, one version of edgepack and Paddle, the same files and the same stages "
            "that are done (`--from teacher` makes them anew on all)",
        )


def _facts(job: Job) -> dict[str, object]:
    """What decides the weights, by the names that an error uses."""
    lesson = job.lesson
    settings = lesson.training.model_dump(mode="json", exclude={"device", "nodes"})
    return {
        "the stage": lesson.name,
        "its settings": settings | {"ranks": lesson.training.ranks, "distill": str(lesson.distill)},
        "the model it starts from": _start(lesson.model),
        "the data": [sha256_file(job.data.folder / f"{split}.jsonl") for split in sorted(job.data.rows)],
        "the teacher": lesson.teacher and sha256_file(lesson.teacher.folder / WEIGHTS_FILE),
        "versions": environment.versions() | {"edgepack": __version__},
    }


def _start(model: str | FromScratch | FromTeacher | Narrowing) -> str:
    """What a lesson's model comes from, wherever it lies on a machine."""
    if isinstance(model, Narrowing):
        return f"{model.width} of {sha256_file(model.whole.folder / WEIGHTS_FILE)}"
    return sha256_folder(Path(str(model))) if is_local_folder(model) else str(model)


if __name__ == "__main__":
    main()
