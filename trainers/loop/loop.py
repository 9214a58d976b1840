"""The one training loop: step groups, epochs, early stop, evaluation, checkpoints.

A technique is an `Executor` (trainers/loop/executor.py): it computes gradients and never has a loop of its own. The gradient of an
optimiser step is the sum over the seeds of its group, added in batch order and divided once by their number, so a group is exact for
unequal batches and for any number of trainers that share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from math import cos, isfinite, nan, pi
from typing import Any

import torch
from torch import Tensor

from graphmill.assets.storage.remote.checkpoints import CheckpointCopies
from graphmill.kernels.errors import InputError
from graphmill.trainers.loop.checkpoint import (
    Checkpoint,
    CheckpointFile,
    RunState,
    damaged_checkpoint,
    optimiser_state,
    require_tensors,
    restore_optimiser,
    write_checkpoint,
)
from graphmill.trainers.loop.executor import Done, Executor, Run
from graphmill.trainers.models.node_rows import RowAdam, node_rows
from graphmill.trainers.models.optimiser import cut_gradients, make_optimiser
from graphmill.trainers.record.checkpoint_head import Waiting
from graphmill.trainers.record.epoch_lines import EpochLines
from graphmill.trainers.record.ledger import STEP, Ledger, Line

SAVING_SHARE = 20
"""An epoch whose work since the last checkpoint took less than this many times as long as writing that one leaves no checkpoint."""
TO_HOST, TO_DEVICE, LOSS = Line("d2h", "checkpoint"), Line("h2d", "checkpoint"), Line("d2h", "loss")


class Loop:
    """Trains a model to the end, or continues from a checkpoint.

    Args:
        run: the run; its ledger, filled by the executor, is saved and restored here, and its model is trained in place. Each of several
            ranks has a loop, and the first one writes checkpoints.
        evaluate: returns the validation score of the present model; None if the graph has no validation nodes.
        lines: prints a line about each epoch; its `progress` shows them.

    Attributes:
        seconds: duration of each epoch and of each evaluation in this process ("train", "evaluate"); not part of the model's content.
    """

    def __init__(
        self,
        run: Run,
        executor: Executor,
        checkpoints: CheckpointFile,
        evaluate: Callable[[], float] | None,
        lines: EpochLines,
    ):
        self.executor, self.checkpoints, self.evaluate, self.lines = executor, checkpoints, evaluate, lines
        self.model, self.plan, self.ranks = run.model, run.plan, run.ranks
        self.ledger, self.timeline, self.device = run.ledger, run.timeline, run.features.device
        self.timeline.device = self.device.spans
        self.config, self.checkpoint_steps = run.semantic.train, run.execution.checkpoint_steps
        self.progress = lines.progress
        self.copies = CheckpointCopies(checkpoints.path, self.progress.tell)
        self.optimiser, nodes = make_optimiser(self.model.parameters(), self.config), node_rows(self.model)
        self.row_adam = None if nodes is None else RowAdam(nodes, self.config.betas)
        self.row_file = None if nodes is None else nodes.table.file
        self.state = RunState()
        self.best: dict[str, Tensor] = {}
        self.moved: dict[str, Any] = {}  # the ledger's rows at the beginning of the epoch
        self.sound: int | Tensor = 0  # batches of the epoch before the first loss that is not finite
        self.seconds: dict[str, list[float]] = {"train": [], "evaluate": []}
        self._next_save = 0.0  # of time.monotonic()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint; raises InputError if it has this training's version but cannot be one of it."""
        try:
            self._require_course(checkpoint.state)
            own = self.model.state_dict()
            require_tensors("model", checkpoint.parts["model"], own)
            require_tensors("best", checkpoint.parts["best"], own if checkpoint.state.best_epoch else {})
            self._restore(checkpoint)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise damaged_checkpoint(self.checkpoints.path, error) from error

    def _require_course(self, state: RunState) -> None:
        """Refuses a position that this training cannot have reached."""
        last, epochs = state.epoch == self.config.epochs, [row.get("epoch") for row in state.history]
        if epochs != [*range(1, state.epoch + 1)] or not all("loss" in row for row in state.history):
            raise ValueError(f"its history is not that of {state.epoch:,} epochs")
        if state.epoch > self.config.epochs or state.best_epoch > state.epoch or (state.done or last) != state.done:
            raise ValueError(f"it says {state.epoch:,} of {self.config.epochs:,} epochs, best {state.best_epoch:,}")
        if state.position > self.plan.num_batches or (state.done and not state.epoch):
            raise ValueError(f"it says {state.position:,} of {self.plan.num_batches:,} batches")
        if (state.best_score is None) != (not state.best_epoch):
            raise ValueError(f"its best score, {state.best_score}, is that of epoch {state.best_epoch:,}")

    def _restore(self, checkpoint: Checkpoint) -> None:
        parts = {part: self._sent(part, tensors) for part, tensors in checkpoint.parts.items()}
        self.model.load_state_dict(parts["model"])
        restore_optimiser(self.optimiser, parts["optimiser"])
        if self.row_adam is not None:
            own = self.row_adam.state()
            require_tensors("optimiser", {name: parts["optimiser"][name] for name in own}, own)
            self.row_adam.restore(parts["optimiser"])
        self.executor.restore(parts["executor"])
        self.best, self.state = parts["best"], checkpoint.state
        if self.ranks.first:  # the checkpoint has the counts of all ranks
            self.ledger.merge(Ledger.from_rows(checkpoint.ledger))
        self.moved = checkpoint.state.moved if self.ranks.first else Ledger().rows()

    def _sent(self, part: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the tensors of a part of a checkpoint in the device's memory; the optimiser counts its steps on the host."""
        return {
            name: tensor
            if part == "optimiser" and name.endswith("/step")
            else self.device.send_tensor(tensor, TO_DEVICE, self.device.traffic)
            for name, tensor in tensors.items()
        }

    def run(self) -> None:
        """Trains to the last epoch or the early stop, then leaves the best parameters in the model."""
        with closing(self.copies):
            self._run_epochs()
        if self.state.best_epoch:
            self.model.load_state_dict(self.best)
            if self.row_file is not None:
                self.row_file.take_best()

    def _run_epochs(self) -> None:
        while not self.state.done:
            started, whole = time.perf_counter(), self.state.position == 0
            if whole:
                self.moved = self.ledger.rows()
            ended = self._train_epoch()
            if whole:
                self.lines.pace(self.timeline.record, Ledger.from_rows(self.moved), self.ledger)
            if ended is None:
                self.seconds["train"].append(round(time.perf_counter() - started, 4))
                self._finish_epoch()
            else:
                self._end_at(ended)
            state = self.state
            best = None if state.best_score is None else (state.best_score, state.best_epoch)
            self.lines.epoch(state.history[-1], time.perf_counter() - started, best, last=state.done)

    def _train_epoch(self) -> int | None:
        """Trains to the end of the epoch; returns the position of the first batch whose loss is not finite, where it ends, if there is one.

        On a device, which is not waited for, and with other ranks, which may not be left alone, the epoch ends after its last batch.
        """
        state = self.state
        label = f"epoch {state.epoch + 1}/{self.config.epochs}"
        self.progress.start(label, self.plan.num_batches, "batches")
        self.progress.advance(state.position)
        self.timeline.start(state.epoch + 1)
        self.sound = state.position
        # Evaluations have bounds of their own.
        with self.device.training(), closing(self.executor.steps(state.epoch, state.position)) as steps:
            for done in steps:
                if not self._note_loss(done) and self.ranks.world == 1:
                    break
                state.position = done.position + 1
                if done.last:
                    with self.timeline.span(STEP, "update", done.position):
                        self._step(done.seeds)
                self.progress.advance(1)
        finite = isfinite(self._settled_loss())  # a device has done all of the epoch when it tells
        self.timeline.finish()
        self.progress.done()
        return None if finite else int(self.sound)

    def _note_loss(self, done: Done) -> bool:
        """Adds the loss of a batch; returns False if the sum is known not to be finite, and counts the batches before it is."""
        self.state.loss_sum += done.loss_sum
        if isinstance(self.state.loss_sum, Tensor):
            self.sound = self.sound + torch.isfinite(self.state.loss_sum)
            return True
        finite = isfinite(self.state.loss_sum)
        self.sound = self.sound + finite
        return finite

    def _end_at(self, position: int) -> None:
        """Ends the training at a loss that is not finite, with the best model so far and its ledger; raises InputError if there is none."""
        state, epoch = self.state, self.state.epoch + 1
        step, of = position // self.plan.batches_per_step + 1, self.plan.steps_per_epoch
        where = f"the loss of epoch {epoch}, step {step} of {of}, is not finite"
        if not state.best_epoch:
            before = f", or set epochs = {state.epoch}: the losses before were finite" if state.epoch else ""
            problem = f"{where}, and no epoch before it was evaluated"
            raise InputError(problem, f"lower `lr`, or scale the features{before}")
        best = f"the model is that of epoch {state.best_epoch}"
        self.progress.tell(f"{self.lines.title}{where}: the training ends, and {best}; lower `lr` to train on")
        self.ledger.clear()
        self.ledger.merge(Ledger.from_rows(self.moved))
        state.history.append({"epoch": epoch, "loss": nan, "ended_at_step": step})
        state.position, state.loss_sum, state.done = 0, 0.0, True

    def _step(self, group_seeds: int) -> None:
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(group_seeds)
        rows = None if self.row_adam is None else self.row_adam.gradient(group_seeds)
        cut_gradients(self.model.parameters(), self.config.clip_norm, () if rows is None else (rows.values,))
        steps = -(-self.state.position // self.plan.batches_per_step)
        number = self.state.epoch * self.plan.steps_per_epoch + steps
        rate = self._set_rate(number - 1)
        self.optimiser.step()
        if self.row_adam is not None and rows is not None:
            self.row_adam.step(rows, rate, number)
        self.optimiser.zero_grad(set_to_none=True)
        between = self.state.position < self.plan.num_batches
        if self.checkpoint_steps and steps % self.checkpoint_steps == 0 and between and isfinite(self._settled_loss()):
            self._save()

    def _set_rate(self, step: int) -> float:
        """Sets and returns the learning rate of a step of the run, a function of its number alone: a resumed run needs no state for it."""
        per_epoch, config = self.plan.steps_per_epoch, self.config
        factor = rate_factor(config.lr_schedule, step, config.warmup * per_epoch, config.epochs * per_epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = config.lr * factor
        return config.lr * factor

    def _finish_epoch(self) -> None:
        state, config = self.state, self.config
        loss = self._settled_loss() / len(self.plan.train_ids)
        row: dict[str, float | int] = {"epoch": state.epoch + 1, "loss": loss}
        last, every = state.epoch + 1 == config.epochs, config.eval_every
        if self.evaluate and (last or (every and (state.epoch + 1) % every == 0)):
            started = time.perf_counter()
            row["valid"] = score = self.evaluate()
            self.seconds["evaluate"].append(round(time.perf_counter() - started, 4))
            self._note_score(score)
        row |= self.executor.epoch_numbers(state.epoch)
        state.history.append(row)
        state.done = last or self._waited_enough()
        state.epoch, state.position, state.loss_sum = state.epoch + 1, 0, 0.0
        # Ranks save together, and each has a clock of its own. The best rows in files are those that a checkpoint names.
        now = self.ranks.world > 1 or (self.row_file is not None and state.best_epoch == state.epoch)
        if state.done or now or time.monotonic() >= self._next_save:
            self._save()

    def _waited_enough(self) -> bool:
        """Returns whether the score has not been better for as many evaluations, or epochs, as the recipe waits."""
        state, config = self.state, self.config
        epochs = 0 if state.best_epoch is None else state.epoch + 1 - state.best_epoch
        return bool(
            (config.patience and state.waited >= config.patience)
            or (config.patience_epochs and epochs >= config.patience_epochs)
        )

    def _note_score(self, score: float) -> None:
        state = self.state
        if state.best_score is None or score > state.best_score:
            state.best_score, state.best_epoch, state.waited = score, state.epoch + 1, 0
            self.best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
            if self.row_file is not None:
                self.row_file.keep_best()
        else:
            state.waited += 1

    def _settled_loss(self) -> float:
        """Makes the epoch's sum of losses a number and returns it; waits for the device if it holds the sum."""
        found = self.state.loss_sum
        if isinstance(found, Tensor):
            found = self.device.fetch(found, LOSS, self.device.traffic).item()
        self.state.loss_sum = found
        return found

    def whole_ledger(self) -> Ledger:
        """Returns the sum of all ranks' ledgers; all ranks call it, and the first one's result is complete."""
        return self._of_all_ranks(self.ledger.rows())

    def _of_all_ranks(self, rows: dict[str, Any]) -> Ledger:
        whole = Ledger()
        for each in self.ranks.main.gather_values(rows):
            whole.merge(Ledger.from_rows(each))
        return whole

    def _save(self) -> None:
        started = time.monotonic()
        self._settled_loss()
        ledger, self.state.moved = self.ledger, self.moved
        if self.ranks.world > 1:
            ledger, self.state.moved = self.whole_ledger(), self._of_all_ranks(self.moved).rows()
        kept = self.executor.state()
        file = self.checkpoints
        if not self.ranks.first:
            return
        if not self._as_far_as(file.kept):
            return  # a kill would leave less than there was
        parts = {
            "model": self.model.state_dict(),
            "best": self.best,
            "optimiser": optimiser_state(self.optimiser) | ({} if self.row_adam is None else self.row_adam.state()),
            "executor": kept,
        }
        parts = {
            part: {name: self.device.fetch(tensor, TO_HOST, self.device.traffic) for name, tensor in tensors.items()}
            for part, tensors in parts.items()
        }
        facts = file.threads, file.evaluation, file.rows
        write_checkpoint(file.path, Checkpoint(file.version, self.state, ledger.rows(), parts, *facts))
        if self.row_file is not None:
            self.row_file.commit()
        elif self._as_far_as(file.stored):
            self.copies.send()
        ended = time.monotonic()
        self._next_save = ended + SAVING_SHARE * (ended - started)

    def _as_far_as(self, other: Waiting | None) -> bool:
        return other is None or self.state.done or Waiting(self.state.epoch, self.state.position) >= other


def rate_factor(schedule: str, step: int, warmup_steps: int, num_steps: int) -> float:
    """Returns the factor of the learning rate at a step.

    Args:
        schedule: "constant", "cosine" (half a period, from 1 to 0) or "linear" (from 1 to 0), after the warm-up.
        step: number of the optimiser step in the run, from 0.
        warmup_steps: steps in which the factor grows from 1 / warmup_steps to 1.
        num_steps: steps of the whole run; the factor would be 0 at this one.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    share = (step - warmup_steps) / max(1, num_steps - warmup_steps)
    return {"constant": 1.0, "cosine": 0.5 * (1 + cos(pi * share)), "linear": 1.0 - share}[schedule]
