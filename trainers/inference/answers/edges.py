"""The table of predictions of a model of the labels of edges: a row for each labelled edge, or for each pair of a file.

    source, target, relation    the ids of the ends in the raw data, and the name of the relation in a graph with relations
    label, split                what is known of the edge, and its part: "train", "valid" or "test"; not of the pairs of a file
    and those of nodes          class and probability, or prediction (trainers/inference/answers/kinds.py)

Memory: the rows of all nodes, 4 N H.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.kernels.links.splits import PARTS
from graphmill.trainers.inference.answers.kinds import Answers
from graphmill.trainers.inference.answers.links import PAIRS_AT_ONCE, LinkAnswers
from graphmill.trainers.tasks.edges import label_outputs

if TYPE_CHECKING:
    import polars
    from torch import Tensor


@dataclass(kw_only=True)
class EdgeAnswers(LinkAnswers):
    """Makes the table of a graph's edges from the rows of its nodes.

    Attributes:
        answers: makes the columns of labels from outputs.
    """

    answers: Answers

    def frames(self, head: Any, rows: Tensor) -> Iterator[polars.DataFrame]:
        """Yields the table in parts; `rows` is float[N, H], what the model computes of each node."""
        import polars

        links = self.links
        table, source, target = self._pairs[:3] if self._pairs is not None else (None, links.source, links.target)
        names = polars.Series(list(PARTS))
        self.progress.start("answers", len(source), "edges")
        for low in range(0, len(source), PAIRS_AT_ONCE):
            part = slice(low, low + PAIRS_AT_ONCE)
            columns, found = self.answers.of_logits(label_outputs(head, rows, source[part], target[part]))
            if self.answers.probabilities:
                found = polars.Series(found.numpy(), dtype=polars.Array(polars.Float32, found.shape[1]))
                columns["probabilities"] = found
            frame = table[part] if table is not None else self._known(part)
            if table is None:
                assert links.labels is not None
                known = self.answers.known(np.asarray(links.labels[part])) | {
                    "split": names.gather(np.asarray(links.split[part])).alias("split")
                }
                frame = frame.with_columns(**known)
            frame = frame.with_columns(**{name: polars.Series(values) for name, values in columns.items()})
            self.count += len(frame)
            yield frame
            self.progress.advance(len(frame))
        self.progress.done()

    def _known(self, part: slice) -> polars.DataFrame:
        """Returns the ends and relations of some edges."""
        import polars

        links, ids = self.links, self._ids
        ends = {"source": links.source, "target": links.target}
        frame = polars.DataFrame({side: ids.gather(np.asarray(each[part])) for side, each in ends.items()})
        if links.relation is None:
            return frame
        relations = polars.Series("relation", list(self.graph.relations)).gather(np.asarray(links.relation[part]))
        return frame.with_columns(relation=relations)
