"""The `model` stage: a trained model as an artifact.

It holds weights.safetensors (the best parameters on validation), metrics.jsonl (one row per epoch), ledger.json and logits-free scores in
its summary; its manifest names the versions of all inputs. Seconds are in run.json, outside the content.
"""

from __future__ import annotations

from collections.abc import Mapping

from assets.building.stage import Progress, Silent, Summary
from assets.storage.artifact import Artifact
from assets.storage.writer import Writer
from trainers.devices.malloc import keep_freed_memory
from trainers.devices.torch_threads import torch_threads
from trainers.ranks.group import ALONE, Ranks
from trainers.recipe.config import ModelConfig
from trainers.recipe.recipe import ModelRecipe
from trainers.record.ledger import Line
from trainers.record.memory import PeakMemory
from trainers.training.training import RunExecution, Training

WEIGHTS = Line("d2h", "parameter")


class ModelStage(ModelRecipe):
    """Trains a model by the technique of its recipe."""

    Execution = RunExecution

    def __init__(self, ranks: Ranks = ALONE):
        self.ranks = ranks

    def build(
        self,
        inputs: Mapping[str, Artifact],
        semantic: ModelConfig,
        execution: RunExecution,
        writer: Writer,
        progress: Progress,
    ) -> Summary:
        """Trains, evaluates and writes the model.

        Raises:
            InputError: the graph has no training nodes, a budget is too small, or the checkpoint does not fit.
        """
        keep_freed_memory()
        with torch_threads(semantic.train.threads):
            decide = self.inputs(semantic)
            reads = {role: artifact for role, artifact in inputs.items() if role not in decide}
            inputs = {role: inputs[role] for role in decide}
            self.ranks.tell({"train": writer.version})
            memory = PeakMemory()
            with memory.watched():
                run = Training(inputs, reads, semantic, execution, writer.version, progress, self.ranks)
                run.train()
                results = run.finish()
                summary = run.write(writer, results)
            writer.note(peak_memory_bytes=memory.bytes)
            if self.ranks.world > 1:
                writer.note(ranks=run.rank_records(memory.bytes))
            return summary

    def follow(
        self,
        version: str,
        inputs: Mapping[str, Artifact],
        reads: Mapping[str, Artifact],
        semantic: ModelConfig,
        execution: RunExecution,
    ) -> None:
        """Takes part in a training that the first rank writes.

        Args:
            version: version of the model, from the first rank.
            inputs, reads, semantic, execution: as in `build`.
        """
        keep_freed_memory()
        with torch_threads(semantic.train.threads):
            memory = PeakMemory()
            with memory.watched():
                run = Training(inputs, reads, semantic, execution, version, Silent(), self.ranks)
                run.train()
                run.finish()
            run.rank_records(memory.bytes)
