"""The technique `minibatch`: mini-batches are sampled while the model trains, or read from stored samples.

Rows come from the table, or from a cache in front of it (trainers/rows/cache.py). Stored samples have the bytes of sampled ones, so
neither decides a weight.
"""

from __future__ import annotations

import os

from assets.samples.read import open_samples
from assets.sampling.config import open_sampler
from assets.storage.require import require
from kernels.cuda.device import device_of
from kernels.errors import InputError
from kernels.sampling.own_sampling import AnySampler
from kernels.sampling.sample_cuda import CudaSampler
from trainers.batches.on_device import OnDeviceSource, place_topology
from trainers.batches.online import OnlineSource
from trainers.batches.stored import StoredSampler, planned_counts, require_samples
from trainers.checks import INPUTS, TIER_ROWS, TO_DEVICE, count_name, ledger_numbers
from trainers.executor import BatchExecutor, Run


def open_executor(run: Run) -> BatchExecutor:
    """Returns what trains the run's model on mini-batches, one after the other.

    Raises:
        InputError: the table asks for stored batches that are not given, or are another run's.
    """
    if run.execution.topology != "host" and run.features.device.remote:
        return BatchExecutor(run, _on_device(run))
    stored = run.execution.samples == "stored"
    samplers = stored_samplers(run) if stored else drawing_samplers(run)
    return BatchExecutor(run, OnlineSource(run.batching, run.features.source, samplers))


def _on_device(run: Run) -> OnDeviceSource:
    """Returns the source whose batches the device samples.

    Raises:
        InputError: the sampling function is the user's own, which runs on the CPU.
    """
    sampling, where = run.semantic.sampling, run.execution.topology
    assert sampling is not None
    if sampling.method != "uniform":
        problem = f"topology = {where!r} samples on the device, but method = {sampling.method!r} runs on the CPU"
        raise InputError(problem, 'remove the key, or set method = "uniform"')
    device, batching = run.features.device, run.batching
    topology = place_topology(run.graph.topology, where, device)
    kernels = device_of(topology.in_degree)
    sampler = CudaSampler(topology, sampling.fanouts, seed=run.semantic.seed, device=kernels)
    return OnDeviceSource(batching, run.features.source, sampler, kernels, where == "uva")


def predicted(run: Run, epochs: int) -> dict[str, int]:
    """Returns numbers that the run's ledger has after so many epochs (trainers/checks.py).

    How many inputs a sampled batch has is only known when it is drawn. Then what the ledger says of rows and bytes follows from its count
    of inputs, which is kept apart from them.

    Args:
        run: the run; its ledger is complete.
        epochs: number of training epochs.
    """
    stored = run.execution.samples == "stored"
    planned = planned_counts(run.plan, epochs, open_stored(run).samples if stored else None)
    counted = ledger_numbers(run.ledger.rows())
    rows = planned.get(INPUTS, counted.get(INPUTS, 0)) - counted.get(count_name("without_features", 0), 0)
    planned[TO_DEVICE] = rows * run.features.stored.row_bytes
    if run.features.record:  # a cache counts where rows come from
        planned[TIER_ROWS] = rows
    return planned


def drawing_samplers(run: Run) -> list[AnySampler]:
    """Returns one sampler per thread."""
    sampling = run.semantic.sampling
    assert sampling is not None
    seed, topology = run.semantic.seed, run.graph.topology
    return [open_sampler(topology, sampling.method, sampling.fanouts, seed=seed) for _ in range(num_threads(run))]


def stored_samplers(run: Run) -> list[AnySampler]:
    """Returns what reads the run's stored batches, once per thread.

    Raises:
        InputError: no samples were given, or they are of another graph, drawn otherwise or too few.
    """
    return [open_stored(run)] * num_threads(run)


def open_stored(run: Run) -> StoredSampler:
    """Returns what reads the run's stored batches.

    Raises:
        InputError: no samples were given, or they are of another graph, drawn otherwise or too few.
    """
    artifact, sampling, train = run.reads.get("samples"), run.semantic.sampling, run.semantic.train
    if artifact is None or sampling is None:
        asked = (
            f'samples = "{run.execution.samples}"'
            if run.execution.samples == "stored"
            else f'trainer = "{train.trainer}"'
        )
        raise InputError(f"{asked}, but no samples were given", "add a table [samples] to the pipeline")
    require(artifact, {"inputs": {"graph": run.inputs["graph"]}})
    samples = open_samples(artifact)
    require_samples(samples, run.plan, train.epochs, sampling, run.semantic.seed)
    return StoredSampler(samples)


def num_threads(run: Run) -> int:
    """Returns the threads that sample or read ahead of the step."""
    return run.execution.samplers or max(1, (os.cpu_count() or 1) - 1)
