"""The model stage: the trained models of a [[train]] table, one per seed, and per split if the pipeline lists several.

docs/pipelines.md#train says which keys enter a model's version; docs/choosing.md compares the techniques.

    weights.safetensors   the parameters that were best on validation, or the last ones without validation nodes
    metrics.jsonl         a row per epoch: `epoch` from 1, `loss`, and `valid` if it was evaluated
    scores.json           counts of right and wrong answers per class and split, and of their probabilities
    ledger.json           bytes that moved over each link, and counts of seeds, inputs, edges and rows by tier

With the key `start` the model whose weights were the initial ones is an input of the artifact, as graph and features are.

Seconds, the processor, the number of threads of the step, peak memory, the time-line of the last epoch and what was read (hotness,
budgets, samples) are in `run.json`, outside the content: two runs of one recipe on one kind of processor with equal `threads` have equal
content and other seconds. `products` names the library of matrix products, "onednn" or, on processors of Intel, "blas", which decides
the last bits, too. A training that was resumed with fewer threads has the earlier numbers in `threads_before`. If ranks shared the
training, the host, the processor, the peak memory and the bytes of the shards of each stand there, too. If devices were split into samplers
and trainers, `executors` says how, what was measured to choose it, who sampled and trained how many batches, and what each device held.
Of ranks of `fullgraph`, `executors` has the parts of each, its nodes, and the bytes of their rows between layers; of several GPUs of its
process, the most bytes that each held; of ranks that exchange rows in rounds, the number of rounds, and whether no order needs fewer.

Numbers: the figures are the learning curve with the kept epoch, the cost of an epoch, and the time-line. A table has precision, recall and
F1 of each class on test nodes, or on validation nodes without any, of all models together; `graphmill show` has them for every split, with
the classes that are confused most.

Cost: `graphmill leaderboard PIPELINE` shows seconds, bytes by link and peak memory. What a training will take is added up before it
starts; `memory_need` of `run.json` has the sum, what of it is sure, and the terms beside the measured peak (not on a GPU). Exact evaluation
stays within `eval_workspace` and may spill layers to disk. A checkpoint is written after an epoch, one for several short ones, and more
often with `checkpoint_steps`; `--resume` ends with the same bits as a run that was never interrupted: it keeps the checkpoint's way of
evaluation, its library of products, and its number of threads, unless there are fewer cores than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from graphmill.assets.building.stage import Building, Progress, Silent, Summary
from graphmill.assets.costs.needs import Need, Sizes, Term, sizes_of
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.kernels.errors import InputError
from graphmill.trainers.devices.malloc import keep_freed_memory, return_freed_memory
from graphmill.trainers.devices.torch_threads import torch_threads
from graphmill.trainers.models.products import Library, products_of
from graphmill.trainers.ranks.group import ALONE, Ranks
from graphmill.trainers.ranks.launch import MOST_RANKS, launcher_number
from graphmill.trainers.recipe.config import ModelConfig
from graphmill.trainers.recipe.costs.forecast import expected_memory, forecast, has_formula
from graphmill.trainers.recipe.costs.known import kept_speeds, open_case, speeds_path
from graphmill.trainers.recipe.costs.memory import running_bytes, training_need
from graphmill.trainers.recipe.recipe import ModelRecipe
from graphmill.trainers.record.checkpoint_head import checkpoint_facts, checkpoint_path
from graphmill.trainers.record.memory import PeakMemory
from graphmill.trainers.training.thread_count import ThreadCount, decide_library, decide_threads
from graphmill.trainers.training.training import RunExecution, Training


class ModelStage(ModelRecipe):
    """Trains a model by the technique of its recipe."""

    Execution = RunExecution

    def __init__(self, ranks: Ranks = ALONE):
        self.ranks = ranks

    def need(self, semantic: ModelConfig, execution: RunExecution, sizes: Sizes) -> Need | None:
        """Returns the memory of a training, of all ranks on this machine, without what other processes have when it is added up."""
        ranks = self._local_ranks()
        found = training_need(semantic, execution, sizes, ranks)
        running = running_bytes(ranks)
        if found is None or not running:
            return found
        there = Term("less what other ranks have already", -running)
        return found.beside(there)

    def _local_ranks(self) -> int:
        """Returns the number of ranks on this machine, which torchrun tells; else all are on one."""
        return launcher_number("LOCAL_WORLD_SIZE", str(self.ranks.world), 1, MOST_RANKS)

    def build(self, building: Building[ModelConfig, RunExecution]) -> Summary:
        """Trains, evaluates and writes the model; raises InputError without training nodes, for a small budget, and a wrong checkpoint."""
        semantic = building.semantic
        execution = building.execution
        writer = building.writer
        progress = building.progress
        keep_freed_memory()
        decide = self.inputs(semantic)
        reads = {role: artifact for role, artifact in building.inputs.items() if role not in decide}
        inputs = {role: building.inputs[role] for role in decide}
        self.ranks.tell({"train": writer.version})
        threads, library = self._decide_arithmetic(writer.version, semantic, execution)
        if threads.warning:
            progress.tell(threads.warning)
        with torch_threads(threads.number), products_of(library):
            recipe, memory = threads.resolve(semantic), PeakMemory()
            predicted = self._predicted(recipe, execution, {**reads, **inputs}, progress)
            return_freed_memory()  # a prediction has no part in the peak of the training
            with memory.watched():
                training = Training(inputs, reads, recipe, execution, writer.version, progress, self.ranks, threads.all)
                with closing(training):
                    training.train()
                    results = training.finish()
                    summary = training.write(writer, results)
            writer.note(peak_memory_bytes=memory.bytes, threads=threads.number, products=library)
            writer.note(memory_need=self._said(semantic, execution, {**reads, **inputs}))
            writer.note(prediction=predicted.get(training.run.semantic.train.eval != "sampled"))
            if before := threads.all[:-1]:
                writer.note(threads_before=before)
            if self.ranks.world > 1:
                writer.note(ranks=training.rank_records(memory.bytes))
            return summary

    def _said(
        self, semantic: ModelConfig, execution: RunExecution, artifacts: Mapping[str, Artifact]
    ) -> dict[str, Any] | None:
        """Returns the sum that was said before the training and its terms, for run.json; None without a formula."""
        sizes = sizes_of(artifacts)
        found = None if sizes is None else training_need(semantic, execution, sizes, self._local_ranks())
        if found is None:
            return None
        terms = {term.name: term.most for term in found.memory if term.most}
        return {"bytes": found.memory_bytes, "least_bytes": found.least_bytes, "terms": terms}

    def _predicted(
        self, semantic: ModelConfig, execution: RunExecution, artifacts: Mapping[str, Artifact], progress: Progress
    ) -> dict[bool, dict[str, Any]]:
        """Returns whether evaluations are exact -> the prediction, for run.json; empty without a formula, and on other ranks.

        It is made before the training, whose numbers have no part in it. It has seconds if the home has measured ones of the recipe.
        """
        try:
            return {} if self.ranks.rank else self._forecast(semantic, execution, artifacts)
        except InputError:  # the training says what is wrong
            return {}
        except Exception as error:  # a training does not end because a formula does
            progress.tell(f"no prediction was recorded: {type(error).__name__}: {error}")
            return {}

    def _forecast(
        self, semantic: ModelConfig, execution: RunExecution, artifacts: Mapping[str, Artifact]
    ) -> dict[bool, dict[str, Any]]:
        if not has_formula(semantic):
            return {}
        case = open_case(semantic, execution, artifacts, self.ranks.world)
        if case is None:
            return {}
        speeds = kept_speeds(speeds_path(execution.checkpoints.parent, semantic, case.sizes, built=True))
        found = forecast(replace(case, speeds=speeds))
        if found is None:
            return {}
        memory = {exact: expected_memory(replace(case, exact_evaluation=exact)) for exact in (False, True)}
        return {exact: replace(found, memory=terms).values() for exact, terms in memory.items()}

    def follow(
        self,
        version: str,
        inputs: Mapping[str, Artifact],
        reads: Mapping[str, Artifact],
        semantic: ModelConfig,
        execution: RunExecution,
    ) -> None:
        """Takes part in a training whose model the first rank writes, with the version that it tells."""
        keep_freed_memory()
        threads, library = self._decide_arithmetic(version, semantic, execution)
        with torch_threads(threads.number), products_of(library):
            recipe, memory = threads.resolve(semantic), PeakMemory()
            with memory.watched():
                training = Training(inputs, reads, recipe, execution, version, Silent(), self.ranks, threads.all)
                training.train()
                training.finish()
            training.rank_records(memory.bytes)

    def _decide_arithmetic(
        self, version: str, semantic: ModelConfig, execution: RunExecution
    ) -> tuple[ThreadCount, Library]:
        """Returns the number of threads and the library of products, which decide the last bits; all ranks call it."""
        asked = execution.resume and self.ranks.first
        before = checkpoint_facts(checkpoint_path(execution.checkpoints, version)) if asked else {}
        threads = decide_threads(semantic.train, self.ranks, before.get("threads", ()))
        return threads, decide_library(self.ranks, before)
