"""One run of a training: graph, rows, model and loop, assembled from a recipe, and the artifact that it writes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmill.assets.building.stage import Check, Progress, Summary
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.writer import Writer
from graphmill.assets.storage.names.version import canonical
from graphmill.assets.storage.system.control_group import free_bytes
from graphmill.assets.storage.system.machine import processor_name
from graphmill.trainers.inference.choice import scored_splits
from graphmill.trainers.inference.evaluation import WEIGHTS
from graphmill.trainers.loop.checkpoint import CheckpointFile, checkpoint_bytes, parse_checkpoint
from graphmill.trainers.loop.loop import Loop
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.rows.row_file import RowFile
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.node_rows import ON_GPU, rows_in_files, rows_memory, without_row_files
from graphmill.trainers.recipe.execution import TrainExecution
from graphmill.trainers.recipe.recipe import START
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.checkpoint_head import (
    checkpoint_facts,
    checkpoint_path,
    scores_path,
    waiting_here,
    waiting_stored,
)
from graphmill.trainers.record.checks import chance_check, ledger_check, ledger_numbers, loss_check, weights_check
from graphmill.trainers.record.class_scores import FILE
from graphmill.trainers.record.epoch_lines import EpochLines, Lines
from graphmill.trainers.record.metrics import Label, open_writers
from graphmill.trainers.record.weights_file import RowPieces, write_weights
from graphmill.trainers.tasks.opened import open_task
from graphmill.trainers.tasks.task import Outputs, Scored
from graphmill.trainers.training.open_run import open_run


@dataclass(frozen=True, kw_only=True)
class RunExecution(TrainExecution):
    """The execution of one run, with the launcher's values."""

    # Continues from the checkpoint of this version, if there is one.
    resume: bool = False
    # Whether the store has the model already; the checkpoint of its end then gives way to the first new one.
    again: bool = False
    # Folder of checkpoints.
    checkpoints: Path
    # The epochs about which a line is printed.
    epoch_lines: Lines = "some"
    # PIPELINE/TABLE that first ordered the model; "" if unnamed.
    asked_by: str = ""


class Training:
    """One run: the graph, the model and the loop, assembled from a recipe.

    Args:
        inputs, reads: role -> artifact: those that decide the weights, and those that only change how the training runs.
        semantic, execution: the recipe, with the number of threads in place of "auto", and how it is carried out.
        threads: numbers of threads that the training has had, oldest first; checkpoints record them.
    """

    def __init__(
        self,
        inputs: Mapping[str, Artifact],
        reads: Mapping[str, Artifact],
        semantic: ModelConfig,
        execution: RunExecution,
        version: str,
        progress: Progress,
        ranks: Ranks = ALONE,
        threads: Sequence[int] = (),
    ):
        path = checkpoint_path(execution.checkpoints, version)
        there = checkpoint_facts(path) if ranks.first else {}
        began = there if execution.resume else {}
        self.run, self.chosen = open_run(inputs, reads, semantic, execution, ranks, began.get("evaluation", ""))
        self.execution, self.progress, self.features = execution, progress, self.run.features
        self.task = open_task(self.run.graph)
        if self.chosen is not None and ranks.first:
            progress.tell(self.chosen.sentence)
        anew, ended = not execution.resume and ranks.first, not execution.again
        kept, stored = (read(path, version, ended=ended) if anew else None for read in (waiting_here, waiting_stored))
        self.row_file = self._open_rows(path, there.get("rows", ""), "rows" in began if began else None)
        rows = "" if self.row_file is None else self.row_file.name
        file = CheckpointFile(path, version, threads, self.chosen.way if self.chosen else "", rows, kept, stored)
        try:
            self.loop = self._open_loop(file)
        except BaseException:
            self.close()
            raise

    def _open_loop(self, file: CheckpointFile) -> Loop:
        """Returns the loop, which goes on from the checkpoint if the run does; all ranks call it."""
        run = self.run
        loop = Loop(
            run,
            find_technique(run.semantic.train.trainer).load().open_executor(run),
            file,
            self._valid_score if self.task.size("valid") else None,
            self._open_lines(file.version),
        )
        # The first rank has the checkpoint; the others may be on other machines.
        stored = checkpoint_bytes(file.path) if self.execution.resume and run.ranks.first else None
        found, data = run.ranks.tell_bytes(b"" if stored is None else b"found", stored or b"")
        if found:
            loop.restore(parse_checkpoint(data, file.path, file.version))
        return loop

    def _open_rows(self, checkpoint: Path, named: str, resumed: bool | None) -> RowFile | None:
        """Opens the files of the rows of nodes, None if they are in memory or there are none.

        Args:
            named: name of the files that the checkpoint has, "" for none.
            resumed: whether the checkpoint that the run goes on from has files; None for a new run.
        """
        nodes, run = node_rows(self.run.model), self.run
        if nodes is None:
            return None
        table, scored = nodes.table, self.task.size("valid") > 0
        num_bytes = sum(rows_memory(prod(table.shape) * table.dtype.itemsize, scored=scored))
        # A run goes on with its rows where they are.
        asked = self.execution.embedding_rows if resumed is None else ("memory", "mapped")[resumed]
        train, device = run.semantic.train, run.features.device
        why = without_row_files(train, run.ranks.world, start=START in run.inputs)
        why = why or ("" if device.holds(torch.empty(0)) else ON_GPU)
        if not rows_in_files(asked, num_bytes, free_bytes(), why):
            return None
        resumed = bool(resumed)
        file = RowFile(checkpoint, table.shape, table.dtype, table.initial, named=named, resumed=resumed)
        table.give_to(file)
        return file

    def close(self) -> None:
        """Closes the files of the rows of nodes."""
        if self.row_file is not None:
            self.row_file.close()

    def train(self) -> None:
        """Runs the loop."""
        if self.features.device.work_bytes is not None:
            self.features.device.adopt(self.run.model.parameters(), "parameters")
        self.loop.run()

    def finish(self) -> Outputs:
        """Returns logits and labels of the scored splits by the final model, and makes the ledger that of all ranks; all ranks call it."""
        kept = scores_path(self.loop.checkpoints.path, self.run.ranks.rank, self.run.ranks.world)
        kept = None if self.row_file is not None else kept  # which knows a model by a digest of all its weights
        train = self.run.semantic.train
        logits = self._outputs(self.task.scored(train, scored_splits(train, self.run.graph)), kept)
        if self.run.ranks.world > 1:
            whole = self.loop.whole_ledger()
            if self.run.ranks.first:
                self.run.ledger.clear()
                self.run.ledger.merge(whole)
        self.features.source.close()
        return logits

    def rank_records(self, peak_bytes: int | None) -> list[dict[str, Any]]:
        """Returns facts about each rank: its host and processor, its peak memory and the bytes of its shards; all ranks call it."""
        source = self.features.source
        record = {"rank": self.run.ranks.rank, "host": platform.node(), "processor": processor_name()}
        record |= {"peak_memory_bytes": peak_bytes}
        record |= {"shard_bytes": source.held_bytes, "cached_rows": source.cached_rows}
        return self.run.ranks.main.gather_values(record)

    def write(self, writer: Writer, logits: Outputs) -> Summary:
        """Writes the artifact's files, and scores logits and labels of splits."""
        device = self.features.device
        weights: dict[str, torch.Tensor | RowPieces] = {
            name: device.fetch(tensor, WEIGHTS, device.traffic) for name, tensor in self.run.model.state_dict().items()
        }
        nodes = node_rows(self.run.model)
        if nodes is not None and self.row_file is not None:
            weights[nodes.name] = RowPieces(nodes.table.shape, nodes.table.dtype, nodes.table.read)
        written = write_weights(writer.path("weights.safetensors"), weights)
        rows = "".join(json.dumps(row, sort_keys=True) + "\n" for row in self.loop.state.history)
        writer.path("metrics.jsonl").write_text(rows)
        writer.path("ledger.json").write_text(json.dumps(self.run.ledger.rows(), indent=1, sort_keys=True) + "\n")
        scored = {split: (values.numpy(), labels) for split, (values, labels) in logits.items()}
        if (document := self.task.document(scored)) is not None:
            writer.path(FILE).write_text(document)
        writer.note(
            epoch_seconds=self.loop.seconds, peak_bytes=dict(self.features.device.peak), cache=self.features.record
        )
        writer.note(timeline=self.run.timeline.record)
        if self.loop.executor.record:
            writer.note(executors=dict(self.loop.executor.record))
        writer.note(**device.facts)
        state = self.loop.state
        numbers: dict[str, Any] = self.task.numbers(self.run.semantic.train.metric, scored)
        numbers |= {"epochs_run": state.epoch, "best_epoch": state.best_epoch}
        if isfinite(loss := state.history[-1]["loss"]):  # a run may diverge after its best epoch
            numbers["loss"] = loss
        if self.chosen is not None:
            numbers |= self.chosen.numbers
            writer.note(evaluation=self.chosen.numbers)
        if not self.loop.executor.repeatable:
            numbers["repeatable"] = False
        of_nodes = 0 if nodes is None else prod(nodes.table.shape)
        numbers |= {"parameters": of_nodes + sum(tensor.numel() for tensor in self.run.model.parameters())}
        return Summary(numbers=numbers, checks=self._checks(numbers, written, scored))

    def _checks(self, numbers: Mapping[str, Any], written: tuple[int, int], scored: Scored) -> list[Check]:
        """Tests the trained model; `written` is the number of values of its weights, and of those that are NaN or infinite."""
        metric = self.run.semantic.train.metric
        # Without validation nodes the training nodes are used.
        split, words = ("valid", "validation") if "valid" in scored else ("train", "training")
        checks = [
            weights_check(*written),
            self._chance_check(words, numbers.get(f"{split}_{metric}"), scored[split][1]),
            loss_check(self.loop.state.history, self.task.loss_unit),
        ]
        if find_technique(self.run.semantic.train.trainer).predicts:
            planned = self.loop.executor.planned(self.loop.state.epoch)
            checks.append(ledger_check(ledger_numbers(self.run.ledger.rows()), planned))
        return checks

    def _chance_check(self, split: str, score: float | None, labels: np.ndarray) -> Check:
        metric = self.run.semantic.train.metric
        if score is None or not len(labels):
            return chance_check(metric, split, None, 0.0, "")
        return chance_check(metric, split, score, *self.task.chance(metric, labels))

    def _open_lines(self, version: str) -> EpochLines:
        """Opens the lines about epochs, and in the first rank the programs that draw them."""
        run, execution = self.run, self.execution
        pipeline, _, name = execution.asked_by.partition("/")
        label = Label(
            home=execution.checkpoints.parent,
            pipeline=pipeline or "graphmill",
            name=name or run.semantic.train.model,
            seed=run.semantic.seed,
            version=version,
            recipe=canonical(run.semantic.train),
        )
        writers = open_writers(execution.metrics_to if run.ranks.first else (), label)
        split = run.inputs["graph"].config.get("split")
        title = f"seed {run.semantic.seed}, " if split is None else f"split {split}, seed {run.semantic.seed}, "
        return EpochLines(
            self.progress, title, run.semantic.train.epochs, execution.epoch_lines, writers, run.semantic.train.metric
        )

    def _valid_score(self) -> float:
        metric = self.run.semantic.train.metric
        logits, labels = self._outputs(("valid",), metric=metric)["valid"]
        value = self.task.score(metric, logits.numpy(), labels)
        assert value is not None
        return value

    def _outputs(self, splits: Sequence[str], kept: Path | None = None, metric: str = "") -> Outputs:
        """Returns logits and labels of each split that is not empty, by the table's evaluation; one that was killed goes on from `kept`."""
        exact = self.run.semantic.train.eval == "exact"
        infer = partial(self._infer, kept)
        return self.task.outputs(splits, infer, self.run.model, at_once=exact, metric=metric)

    def _infer(self, kept: Path | None, node_ids: np.ndarray, times: np.ndarray | None = None) -> torch.Tensor:
        if self.run.semantic.train.eval == "exact":
            with self.features.device.evaluating():
                logits = self.loop.executor.exact_logits(node_ids)
            if logits is not None:
                return logits
        folder, source = self.execution.checkpoints.parent / "spill", self.loop.executor.evaluation_source
        return self.run.infer(self.run.model, node_ids, folder, self.progress, source, kept, times)
