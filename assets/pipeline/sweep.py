"""Steps of a pipeline that lists several splits of its graph: one per name, with the artifacts of all splits side by side.

Each split is a recipe of its own, the file with that split in place of the list (`Pipeline.by_split`), and so are the versions: an artifact
of a list is that of the single split, and adding a split to the list builds only its own artifacts. A list changes the steps. A step that
is equal for all splits, such as the features, stays one step with one artifact. Any other has the artifacts of all splits, as a train table
has a model for each seed: one asset in the UI, whose version stands for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from assets.pipeline.steps import Step, recipe_hash


def split_steps(steps: Sequence[Step], place: int) -> list[Step]:
    """Returns the steps of one split.

    Args:
        steps: joined steps of a pipeline.
        place: place of the split in the list.
    """
    return [step.splits[place] if step.splits else step for step in steps]


def join_steps(
    each: Sequence[Sequence[Step]], splits: Sequence[str], read: Sequence[Step], command: Callable[[str], str]
) -> list[Step]:
    """Returns one step per name from the steps of each split.

    Args:
        each: the steps of each split, with equal names in equal order.
        splits: names of the splits; with a single one the steps stay as they are.
        read: joined steps that these steps read.
        command: name of a step -> command that builds it for all splits.
    """
    if len(each) == 1:
        return list(each[0])
    made = {step.name: step for step in read}
    joined = []
    for alike in zip(*each, strict=True):
        first = replace(alike[0], command=command(alike[0].name))
        if len({recipe_hash(step) for step in alike}) > 1:
            first = replace(
                first,
                configs=tuple(config for step in alike for config in step.configs),
                inputs={role: made[source.name] for role, source in first.inputs.items()},
                reads={role: made[source.name] for role, source in first.reads.items()},
                splits=tuple(replace(step, split=split) for step, split in zip(alike, splits, strict=True)),
            )
        made[first.name] = first
        joined.append(first)
    return joined
