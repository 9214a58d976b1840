"""The technique `minibatch`: mini-batches are sampled while the model trains, or read from stored samples.

Rows come from the table, or from a cache in front of it (trainers/rows/cache.py). Stored samples have the bytes of sampled ones, so neither
affects a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from graphmill.assets.samples.read import open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import resolved
from graphmill.assets.storage.require import require
from graphmill.kernels.cuda.device import device_of
from graphmill.kernels.cuda.protocol import KernelDevice
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.relations_cuda import CudaRelationSampler
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.sampling.scheduled import ScheduledSampler
from graphmill.kernels.sampling.walk_cuda import CudaWalkSampler
from graphmill.kernels.sampling.weighted_cuda import CudaWeightedSampler
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.batches.on_device import DeviceDrawer, OnDeviceSource, place_tables, place_topology
from graphmill.trainers.batches.online import OnlineSource
from graphmill.trainers.batches.stored import StoredSampler, require_samples
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import BatchExecutor, Run


def open_executor(run: Run) -> BatchExecutor:
    """Returns the executor that trains the run's model on mini-batches, one after the other.

    Raises:
        InputError: the table needs stored batches that are missing, or are another run's.
    """
    if samples_on_device(run):
        (draw,) = device_drawers(run, 1)
        return BatchExecutor(run, OnDeviceSource(run.batching, run.features.source, draw))
    return BatchExecutor(run, OnlineSource(run.batching, run.features.source, open_samplers(run), run.in_turn))


def samples_on_device(run: Run) -> bool:
    """Returns whether the device draws the batches of a run."""
    return run.execution.topology != "host" and run.features.device.remote


def device_drawers(
    run: Run, count: int, device: Device | None = None, hosted: dict[str, Array] | None = None
) -> list[DeviceDrawer]:
    """Returns a number of drawers, for a thread each, which share the topology on a device or in pinned memory.

    Args:
        run: the run.
        count: number of drawers.
        device: the device that draws; None for the run's.
        hosted: arrays in pinned memory that other devices read already, which receives those of this call.
    """
    where = run.execution.topology
    device = device or run.features.device
    batching = replace(run.batching, device=device)
    with device.preparing():  # at its end all copies are complete, for every stream
        topology = place_topology(run.graph.topology, where, device, hosted)
        kernels = device_of(topology.in_degree)
        samplers = [_device_sampler(run, topology, device, kernels, hosted) for _ in range(count)]
    return [DeviceDrawer(batching, sampler, kernels, where == "uva") for sampler in samplers]


def _device_sampler(
    run: Run, topology: Topology, device: Device, kernels: KernelDevice, hosted: dict[str, Array] | None
) -> CudaSampler:
    """Returns the sampler that draws the run's batches on a device, by a topology that lies where it reads it."""
    sampling, drawing = run.semantic.sampling, run.drawing
    assert sampling is not None and drawing is not None
    how: dict[str, Any] = {"seed": run.semantic.sampling_seed, "device": kernels}
    if sampling.method == "random_walk":
        return CudaWalkSampler(topology, drawing.walks(), sampling.numbers, **how)
    if sampling.by_relation:
        fanouts = resolved(sampling.fanouts, drawing.relations)
        return CudaRelationSampler(topology, fanouts, replace=sampling.replace, **how)
    if drawing.tables is None:
        return CudaSampler(topology, sampling.numbers, replace=sampling.replace, **how)
    tables = place_tables(drawing.tables, run.execution.topology, device, hosted)
    longest = int(run.graph.topology.in_degree.max(initial=0))
    return CudaWeightedSampler(topology, tables, sampling.numbers, longest=longest, replace=sampling.replace, **how)


def open_samplers(run: Run) -> list[AnySampler]:
    """Returns one sampler per thread, which draws batches or reads stored ones.

    Raises:
        InputError: samples are missing, or they are of another graph, drawn otherwise or too few.
    """
    if run.execution.samples == "stored":
        return [open_stored(run)] * run.num_samplers
    return [open_sampler(run) for _ in range(run.num_samplers)]


def open_sampler(run: Run) -> AnySampler:
    """Returns a sampler for one thread, which draws batches."""
    assert run.semantic.sampling is not None and run.drawing is not None
    drawing, topology = run.drawing, run.graph.topology
    how = {"seed": run.semantic.sampling_seed, "threads": run.sampling_threads}
    return scheduled(run.semantic.sampling, lambda fanouts: drawing.with_fanouts(fanouts).sampler(topology, **how))


def scheduled(sampling: SamplingConfig, make: Callable[[tuple[Any, ...]], AnySampler]) -> AnySampler:
    """Returns a sampler that follows the schedule of `[sampling]`, if it has one.

    Args:
        sampling: the table `[sampling]`.
        make: fan-outs -> sampler.
    """
    return ScheduledSampler(sampling.fanouts_at, make) if sampling.schedule else make(sampling.fanouts)


def open_stored(run: Run, parts: Collection[int] | None = None) -> StoredSampler:
    """Returns the reader of the run's stored batches.

    Args:
        run: the run.
        parts: parts of the graph whose batches this process reads; None for all batches.

    Raises:
        InputError: samples are missing, or they are of another graph, drawn otherwise or too few.
    """
    artifact, sampling, train = run.reads.get("samples"), run.semantic.sampling, run.semantic.train
    if artifact is None or sampling is None:
        asked = (
            f'samples = "{run.execution.samples}"'
            if run.execution.samples == "stored"
            else f'trainer = "{train.trainer}"'
        )
        raise InputError(f"{asked}, but no samples were given", "add a table [samples] to the pipeline")
    divided = ("partitions",) if isinstance(run.plan, PartPlan) else ()
    require(artifact, {"inputs": {role: run.inputs[role] for role in ("graph", *sampling.inputs, *divided)}})
    samples = open_samples(artifact, parts=parts)
    require_samples(samples, run.plan, train.epochs, sampling, run.semantic.sampling_seed)
    return StoredSampler(samples)
