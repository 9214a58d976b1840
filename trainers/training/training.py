"""One run of a training: graph, rows, model and loop, assembled from a recipe, and the artifact that it writes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save

from graphmill.assets.building.stage import Check, Progress, Summary
from graphmill.assets.features.read import node_types
from graphmill.assets.graph.read import Graph, open_graph
from graphmill.assets.sampling.drawing import Drawing, open_drawing
from graphmill.assets.storage.artifact import Artifact
from graphmill.assets.storage.machine import processor_name
from graphmill.assets.storage.version import canonical
from graphmill.assets.storage.writer import Writer
from graphmill.kernels.errors import InputError
from graphmill.trainers.batches.source import Batching
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.inference.choice import choose_evaluation
from graphmill.trainers.inference.scores import score
from graphmill.trainers.loop.checkpoint import apart, checkpoint_bytes, parse_checkpoint
from graphmill.trainers.loop.executor import Opening, Run
from graphmill.trainers.loop.loop import Loop
from graphmill.trainers.models.build import PARAMETERS, build_model, require_weights, send_model
from graphmill.trainers.models.layer import LayeredModel
from graphmill.trainers.models.loss import Loss
from graphmill.trainers.models.node_rows import node_rows
from graphmill.trainers.models.own import Model
from graphmill.trainers.models.precision import kept_dtype
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.recipe.config import ModelConfig, TrainConfig, TrainExecution
from graphmill.trainers.recipe.known_mistakes import NO_SEEDS, weights_mistake
from graphmill.trainers.recipe.queue_bytes import queue_bounds
from graphmill.trainers.recipe.techniques import find_technique
from graphmill.trainers.record.checkpoint_head import checkpoint_path
from graphmill.trainers.record.checks import chance_check, ledger_check, ledger_numbers, loss_check, weights_check
from graphmill.trainers.record.epoch_lines import EpochLines, Lines
from graphmill.trainers.record.ledger import Ledger, Line
from graphmill.trainers.record.metrics import Label, MetricWriter, open_writers
from graphmill.trainers.record.timeline import Timeline

WEIGHTS = Line("d2h", "parameter")
FEW_NODES = 1 << 17
"""Training nodes that are scored in any case: it takes a moment."""


@dataclass(frozen=True, kw_only=True)
class RunExecution(TrainExecution):
    """The execution of one run, with the launcher's values."""

    # Continues from the checkpoint of this version, if there is one.
    resume: bool = False
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
        version: version of the model.
        progress: listener.
        ranks: this process among those that share the training.
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
        self.semantic, self.execution, self.progress, self.ranks = semantic, execution, progress, ranks
        self.graph = open_graph(inputs["graph"])
        split = inputs["graph"].config.get("split")
        self._titled = "" if split is None else f"split {split}, "
        if len(self.graph.train_ids) == 0:
            raise InputError(f"graph {inputs['graph'].version[:12]} {NO_SEEDS[0]}", NO_SEEDS[1])
        require_range(semantic.train.dtype, inputs.get("features"))
        require_weights(semantic.train, self.graph.topology)
        self.ledger, self.timeline = Ledger(), Timeline()
        drawing = open_drawing(semantic.sampling, inputs)
        self.chosen = choose_evaluation(semantic, self.graph, drawing)
        if semantic.train.eval == "auto":  # without sampling evaluation is exact
            way = "exact" if self.chosen is None else self.chosen.way
            self.semantic = semantic = replace(semantic, train=replace(semantic.train, eval=way))
        opening = Opening(
            graph=self.graph,
            inputs=inputs,
            reads=reads,
            semantic=semantic,
            execution=execution,
            drawing=drawing,
            ranks=ranks,
        )
        self.data = find_technique(semantic.train.trainer).open_data(opening)
        self.features = self.data.features
        self.model = send_model(self._build_model(drawing), self.features.device)
        self.loss = open_loss(semantic.train, self.graph, self.features.device)
        self._require_scores()
        path = checkpoint_path(execution.checkpoints, version)
        self.run, self.threads = self._build_run(opening), threads
        self.loop = self._build_loop(path, version, progress)
        # The first rank has the checkpoint; the others may be on other machines.
        stored = checkpoint_bytes(path) if execution.resume and ranks.first else None
        found, data = ranks.tell_bytes(b"" if stored is None else b"found", stored or b"")
        if found:
            self.loop.restore(parse_checkpoint(data, path, version))

    def train(self) -> None:
        """Runs the loop."""
        if self.loop.bounded:
            self.features.device.adopt(self.model.parameters(), "parameters")
        self.loop.run()

    def finish(self) -> dict[str, tuple[torch.Tensor, np.ndarray]]:
        """Returns logits and labels of the scored splits by the final model, and makes the ledger that of all ranks; all ranks call it."""
        logits = self._logits(scored_splits(self.semantic.train, self.graph))
        if self.ranks.world > 1:
            whole = self.loop.whole_ledger()
            if self.ranks.first:
                self.ledger.clear()
                self.ledger.merge(whole)
        self.features.source.close()
        return logits

    def rank_records(self, peak_bytes: int | None) -> list[dict[str, Any]]:
        """Returns facts about each rank: its host and processor, its peak memory and the bytes of its shards; all ranks call it."""
        source = self.features.source
        record = {"rank": self.ranks.rank, "host": platform.node(), "processor": processor_name()}
        record |= {"peak_memory_bytes": peak_bytes}
        record |= {"shard_bytes": source.held_bytes, "cached_rows": source.cached_rows}
        return self.ranks.main.gather_values(record)

    def write(self, writer: Writer, logits: Mapping[str, tuple[torch.Tensor, np.ndarray]]) -> Summary:
        """Writes the artifact's files, and scores logits and labels of splits."""
        device = self.features.device
        weights = {
            name: device.fetch(tensor, WEIGHTS, device.traffic) for name, tensor in self.model.state_dict().items()
        }
        writer.path("weights.safetensors").write_bytes(save(apart(weights)))
        rows = "".join(json.dumps(row, sort_keys=True) + "\n" for row in self.loop.state.history)
        writer.path("metrics.jsonl").write_text(rows)
        writer.path("ledger.json").write_text(json.dumps(self.ledger.rows(), indent=1, sort_keys=True) + "\n")
        writer.note(
            epoch_seconds=self.loop.seconds, peak_bytes=dict(self.features.device.peak), cache=self.features.record
        )
        writer.note(timeline=self.timeline.record)
        if self.loop.executor.record:
            writer.note(executors=dict(self.loop.executor.record))
        if device.remote:
            writer.note(device=str(device.torch_device), traffic_besides_batches=device.traffic.rows()["moves"])
        state = self.loop.state
        numbers: dict[str, Any] = {}
        for metric in dict.fromkeys(("accuracy", self.semantic.train.metric)):
            values = {f"{split}_{metric}": score(metric, *each) for split, each in logits.items()}
            numbers |= {name: value for name, value in values.items() if value is not None}
        numbers |= {"epochs_run": state.epoch, "best_epoch": state.best_epoch}
        if isfinite(loss := state.history[-1]["loss"]):  # a run may diverge after its best epoch
            numbers["loss"] = loss
        if self.chosen is not None:
            numbers |= self.chosen.numbers
            writer.note(evaluation=self.chosen.numbers)
        if not self.loop.executor.repeatable:
            numbers["repeatable"] = False
        nodes = node_rows(self.model)
        learnt = [*self.model.parameters(), *([] if nodes is None else [nodes.table.values])]
        numbers |= {"parameters": sum(tensor.numel() for tensor in learnt)}
        return Summary(numbers=numbers, checks=self._checks(numbers, weights))

    def _checks(self, numbers: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> list[Check]:
        """Tests the trained model."""
        metric, graph = self.semantic.train.metric, self.graph
        # Without validation nodes the training nodes are used.
        split, words, ids = ("valid", "validation", graph.valid_ids)
        if not len(ids):
            split, words, ids = ("train", "training", graph.train_ids)
        checks = [
            weights_check(weights),
            chance_check(
                metric, words, numbers.get(f"{split}_{metric}"), graph.labels[np.array(ids)], graph.class_names
            ),
            loss_check(self.loop.state.history),
        ]
        if find_technique(self.semantic.train.trainer).predicts:
            planned = self.loop.executor.planned(self.loop.state.epoch)
            checks.append(ledger_check(ledger_numbers(self.ledger.rows()), planned))
        return checks

    def _build_model(self, drawing: Drawing | None) -> Model:
        semantic, graph, width = self.semantic, self.graph, self.features.source.width
        types = node_types(graph.topology, self.features.stored)
        model = build_model(semantic.train, width, graph.num_classes, semantic.seed, len(graph.relations), types)
        walks = drawing is not None and drawing.neighbours.method == "random_walk"
        if walks and isinstance(model, LayeredModel) and model.reads_relations:
            problem = "the model reads relations, and nodes that random walks visit have none"
            raise InputError(problem, 'set [sampling] method = "uniform" or "weighted", or take another model')
        by_relation = drawing is not None and drawing.neighbours.by_relation
        if by_relation and any(word in (model.edge_weight or "") for word in ("gcn", "sum")):
            problem = (
                f"the model asks for edge weights {model.edge_weight!r}, which suppose that rows are drawn uniformly"
            )
            raise InputError(f"{problem}, and fanouts has numbers per relation", "give one number per layer")
        return model

    def _build_run(self, opening: Opening) -> Run:
        train, graph = self.semantic.train, self.graph
        queue_bytes, most_queue_bytes = queue_bounds(self.execution.queue)
        batching = Batching(
            topology=graph.topology,
            labels=graph.labels,
            plan=self.data.plan,
            edge_weight=self.model.edge_weight,
            transpose=self.model.transpose,
            ledger=self.ledger,
            timeline=self.timeline,
            queue_bytes=queue_bytes,
            most_queue_bytes=most_queue_bytes,
            dtype=kept_dtype(train.dtype),
            device=self.features.device,
        )
        return Run(
            **vars(opening),
            plan=self.data.plan,
            features=self.features,
            model=self.model,
            loss=self.loss,
            batching=batching,
        )

    def _build_loop(self, path: Path, version: str, progress: Progress) -> Loop:
        train = self.semantic.train
        return Loop(
            model=self.model,
            executor=find_technique(train.trainer).load().open_executor(self.run),
            config=train,
            plan=self.data.plan,
            evaluate=self._valid_score if len(self.graph.valid_ids) else None,
            ledger=self.ledger,
            progress=progress,
            checkpoint_path=path,
            version=version,
            checkpoint_steps=self.execution.checkpoint_steps,
            timeline=self.timeline,
            device=self.features.device,
            # Counting takes time, so it is done only with a bound, or if the device has memory of its own.
            bounded=self.execution.workspace is not None or self.features.device.remote,
            ranks=self.ranks,
            threads=self.threads,
            lines=EpochLines(
                progress,
                f"{self._titled}seed {self.semantic.seed}, ",
                train.epochs,
                self.execution.epoch_lines,
                self._open_writers(version),
            ),
        )

    def _open_writers(self, version: str) -> list[MetricWriter]:
        """Opens the programs that draw the epochs, in the first rank alone."""
        pipeline, _, name = self.execution.asked_by.partition("/")
        label = Label(
            home=self.execution.checkpoints.parent,
            pipeline=pipeline or "graphmill",
            name=name or self.semantic.train.model,
            seed=self.semantic.seed,
            version=version,
            recipe=canonical(self.semantic.train),
        )
        return open_writers(self.execution.metrics_to if self.ranks.first else (), label)

    def _require_scores(self) -> None:
        """Refuses a metric that the validation nodes do not define, before any training."""
        labels = self.graph.labels[np.array(self.graph.valid_ids)]
        if self.semantic.train.metric == "roc_auc" and len(labels) and len(np.unique(labels)) < 2:
            problem = "metric = 'roc_auc', but the validation nodes are all of one class"
            raise InputError(problem, "give a split with both, or metric = 'accuracy'")

    def _valid_score(self) -> float:
        value = score(self.semantic.train.metric, *self._logits(("valid",))["valid"])
        assert value is not None
        return value

    def _logits(self, splits: tuple[str, ...]) -> dict[str, tuple[torch.Tensor, np.ndarray]]:
        """Returns logits and labels of each split that has nodes, by the table's evaluation."""
        ids = {split: np.array(getattr(self.graph, f"{split}_ids")) for split in splits}
        ids = {split: node_ids for split, node_ids in ids.items() if len(node_ids)}
        if not ids:
            return {}
        # One pass serves all splits.
        logits = self._infer(np.concatenate(list(ids.values()))) if self.semantic.train.eval == "exact" else None
        found, first = {}, 0
        for split, node_ids in ids.items():
            part = self._infer(node_ids) if logits is None else logits[first : first + len(node_ids)]
            found[split] = part, self.graph.labels[node_ids]
            first += len(node_ids)
        return found

    def _infer(self, node_ids: np.ndarray) -> torch.Tensor:
        if self.semantic.train.eval == "exact":
            with self.features.device.evaluating():
                logits = self.loop.executor.exact_logits(node_ids)
            if logits is not None:
                return logits
        folder, source = self.execution.checkpoints.parent / "spill", self.loop.executor.evaluation_source
        return self.data.infer(self.model, node_ids, folder, self.progress, source)


def require_range(dtype: str, features: Artifact | None) -> None:
    """Refuses features that are infinite in the type in which a model computes.

    Args:
        dtype: the key of the train table.
        features: the features' artifact.

    Raises:
        InputError: features of float64 have a value that float32 cannot hold.
    """
    beyond = features.summary["numbers"].get("beyond_float32") if features is not None and dtype != "float64" else None
    if beyond:
        problem = f"features {beyond}, which float32 cannot hold, and dtype = '{dtype}' computes in it"
        raise InputError(problem, 'scale the features, or set dtype = "float64" in [[train]]')


def scored_splits(train: TrainConfig, graph: Graph) -> tuple[str, ...]:
    """Returns the splits on which the trained model is scored: validation, test, and training if its nodes are few or asked for.

    Training nodes are most of the labelled ones as a rule, and their score decides nothing, but for a graph without validation nodes.
    """
    others = len(graph.valid_ids) + len(graph.test_ids)
    few = len(graph.train_ids) <= max(others, FEW_NODES) or not len(graph.valid_ids)
    return ("train", "valid", "test") if few or train.score_train else ("valid", "test")


def open_loss(train: TrainConfig, graph: Graph, device: Device) -> Loss:
    """Returns the loss of a train table, with its class weights on a device.

    Raises:
        InputError: the list of weights does not fit the classes.
    """
    weights = class_weights(train, graph)
    if weights is not None:
        weights = device.send_tensor(weights, PARAMETERS, device.traffic)
    return Loss(weights, train.label_smoothing)


def class_weights(train: TrainConfig, graph: Graph) -> torch.Tensor | None:
    """Returns float[num_classes], the factors of the seeds' losses, or None.

    Raises:
        InputError: the table's list does not have one weight per class.
    """
    dtype = getattr(torch, kept_dtype(train.dtype))
    if train.class_weights == "none":
        return None
    if train.class_weights == "balanced":
        counts = np.bincount(graph.labels[np.array(graph.train_ids)], minlength=graph.num_classes)
        # A class without seeds does not enter a loss, so any weight is valid.
        return torch.from_numpy(counts.sum() / (graph.num_classes * np.maximum(counts, 1))).to(dtype)
    if mistake := weights_mistake(train, graph.num_classes, graph.class_names):
        raise mistake
    return torch.tensor(train.class_weights, dtype=dtype)
