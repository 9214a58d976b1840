"""What several techniques open for a run: samplers, drawers on devices, stored batches and packed rows."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from graphmill.assets.features.config import EDGES, of_edges
from graphmill.assets.packed_chunks.read import PackedChunks
from graphmill.assets.samples.read import Samples, open_samples
from graphmill.assets.sampling.config import SamplingConfig
from graphmill.assets.sampling.fanouts import resolved
from graphmill.assets.sizes import parse_size
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.assets.storage.local.require import require
from graphmill.assets.storage.names.table import FeatureTable
from graphmill.kernels.cuda.device import CudaDevice, device_of
from graphmill.kernels.errors import InputError
from graphmill.kernels.sampling.own_sampling import AnySampler
from graphmill.kernels.sampling.part_plan import PartPlan
from graphmill.kernels.sampling.relations_cuda import CudaRelationSampler
from graphmill.kernels.sampling.sample_cuda import CudaSampler
from graphmill.kernels.sampling.scheduled import ScheduledSampler
from graphmill.kernels.sampling.walk_cuda import CudaWalkSampler
from graphmill.kernels.sampling.weighted_cuda import CudaWeightedSampler
from graphmill.kernels.types import Array, Topology
from graphmill.trainers.batches.batch import Drawer
from graphmill.trainers.batches.on_device import DeviceDrawer, place_tables, place_topology
from graphmill.trainers.batches.source import DiskSource
from graphmill.trainers.batches.stored import StoredSampler, batch_uses, planned_counts, require_samples
from graphmill.trainers.devices.protocol import Device
from graphmill.trainers.loop.executor import Run
from graphmill.trainers.record.checks import INPUTS, TO_DEVICE, count_name, move_name
from graphmill.trainers.record.ledger import EDGE_FEATURE
from graphmill.trainers.rows.cache import PackedRows
from graphmill.trainers.rows.packed_loader import loader_reading
from graphmill.trainers.techniques.stored_costs import stored_volumes


def open_samplers(run: Run) -> list[AnySampler | Drawer]:
    """Returns one sampler per thread, or the one that draws on the device; raises InputError if stored samples do not fit."""
    if run.draws_on_device:
        return [*device_drawers(run, 1)]
    if run.execution.samples == "stored":
        return [run.seeded(open_stored(run))] * run.num_samplers
    return [open_sampler(run) for _ in range(run.num_samplers)]


def open_sampler(run: Run) -> AnySampler:
    """Returns a sampler for one thread, which draws batches."""
    assert run.semantic.sampling is not None and run.drawing is not None
    drawing, topology = run.drawing, run.graph.topology
    how = {"seed": run.semantic.sampling_seed, "threads": run.sampling_threads}
    return run.seeded(
        scheduled(run.semantic.sampling, lambda fanouts: drawing.with_fanouts(fanouts).sampler(topology, **how))
    )


def scheduled(sampling: SamplingConfig, make: Callable[[tuple[Any, ...]], AnySampler]) -> AnySampler:
    """Returns a sampler that follows the schedule of `[sampling]`, if it has one; `make` maps fan-outs to a sampler."""
    return ScheduledSampler(sampling.fanouts_at, make) if sampling.schedule else make(sampling.fanouts)


def open_stored(run: Run, parts: Collection[int] | None = None) -> StoredSampler:
    """Returns the reader of the run's stored batches.

    Args:
        parts: parts of the graph whose batches this process reads; None for all batches.

    Raises:
        InputError: samples are missing, or they are of another graph, drawn otherwise or too few.
    """
    artifact, sampling, train = run.reads.get("samples"), run.semantic.sampling, run.semantic.train
    if artifact is None or sampling is None:
        asked = 'samples = "stored"' if run.execution.samples == "stored" else f'trainer = "{train.trainer}"'
        raise InputError(f"{asked}, but no samples were given", "add a table [samples] to the pipeline")
    divided = ("partitions",) if isinstance(run.plan, PartPlan) else ()
    require(artifact, {"inputs": {role: run.inputs[role] for role in ("graph", *sampling.inputs, *divided)}})
    samples = open_samples(artifact, parts=parts)
    require_samples(samples, run.plan, train.epochs, sampling, run.semantic.sampling_seed)
    return StoredSampler(samples)


def open_disk_source(run: Run, parts: Collection[int] | None = None) -> DiskSource:
    """Returns the source of the run's stored batches with packed rows; raises InputError if these are missing, or another run's."""
    stored = open_stored(run, parts)
    packed = open_packed(run, parts)
    pack_edges(run)
    source = DiskSource(run.batching, packed, run.seeded(stored), stored.samples)
    if parts is not None and isinstance(run.plan, PartPlan):
        source.num_parts, source.parts = run.plan.num_parts, parts
    return source


def open_packed(run: Run, parts: Collection[int] | None = None) -> PackedRows:
    """Returns the rows of the run's stored batches, from packed chunks.

    Raises:
        InputError: packed chunks are missing, or are of other features.
    """
    missing = {"cache_plan", "packed_chunks"} - run.reads.keys()
    if missing:
        asked = f'trainer = "{run.semantic.train.trainer}"'
        problem = f"{asked}, but no {' and '.join(sorted(missing))} were given"
        raise InputError(problem, "add tables [memory] and [cache_plan]")
    # Only this check separates rows of other features from those of this run, since both name the same nodes. Of several ranks only the
    # first has the table itself; the others have shards that were made of it.
    features = run.inputs.get("features") or run.reads["shards"].inputs["features"]["version"]
    return _packed_rows(run, ("packed_chunks", "cache_plan"), features, run.features.stored, parts)


def pack_edges(run: Run) -> None:
    """Lets batches take rows of edges from packed chunks, if the pipeline packs them; arguments and errors as `open_packed`."""
    roles = tuple(map(of_edges, ("packed_chunks", "cache_plan")))
    if run.edge_rows is not None and {*roles} <= run.reads.keys():
        run.edge_rows.packed = _packed_rows(run, roles, run.inputs[EDGES], run.edge_rows.table)


def _packed_rows(
    run: Run,
    roles: tuple[str, ...],
    features: Artifact | str,
    table: FeatureTable,
    parts: Collection[int] | None = None,
) -> PackedRows:
    """Returns the packed rows of a table, which are of the artifact `features`, or of its version.

    Args:
        roles: roles of the artifacts of packed chunks and of their plan.
    """
    execution, (chunks, plan) = run.execution, (run.reads[role] for role in roles)
    require(chunks, {"inputs": {"features": features}})
    return PackedRows(
        PackedChunks(chunks, plan, run.reads["samples"], parts),
        table,
        device=run.features.device,
        reading=loader_reading(
            parse_size(execution.io_window),
            method=execution.io,
            fallback=execution.io_fallback,
            depth=execution.io_depth,
        ),
    )


def planned_reads(run: Run, epochs: int) -> dict[str, int]:
    """Returns the numbers that the ledger of all ranks has after training epochs on packed rows, from the cache plan and the samples."""
    samples = open_samples(run.reads["samples"], parts=())  # its index alone
    counts = planned_counts(run.plan, epochs, samples, whole=run.whole_batches)
    times = batch_uses(run.plan, epochs, samples)
    found = stored_volumes(
        samples, run.reads["cache_plan"], run.reads["packed_chunks"], times, run.features.stored.row_bytes
    )
    moved = {move_name("disk", kind): num_bytes for kind, num_bytes in found.disk.items()}
    return {
        INPUTS: counts[INPUTS],
        **moved,
        **counts,
        **{count_name(name, 0): n for name, n in found.rows.items()},
        move_name("disk", "feature", "asked"): found.read_bytes,
        TO_DEVICE: found.to_device,
        **_planned_edges(run, samples, times, found.disk["ids"]),
    }


def _planned_edges(run: Run, samples: Samples, times: Array, ids_bytes: int) -> dict[str, int]:
    """Returns the same numbers of packed rows of edges, {} if none are packed.

    Args:
        times: i64[B], how often each batch is used.
        ids_bytes: bytes of the addresses of rows of nodes; those of edges are read beside them.
    """
    if run.edge_rows is None or run.edge_rows.packed is None:
        return {}
    plan, chunks = (run.reads[of_edges(stage)] for stage in ("cache_plan", "packed_chunks"))
    found = stored_volumes(samples, plan, chunks, times, run.edge_rows.table.row_bytes)
    return {
        move_name("disk", EDGE_FEATURE): found.disk["feature"],
        move_name("disk", EDGE_FEATURE, "asked"): found.read_bytes,
        move_name("disk", "ids"): ids_bytes + found.disk["ids"],
        move_name("h2d", EDGE_FEATURE): found.to_device,
        **{count_name(f"edge_{name}", 0): n for name, n in found.rows.items()},
    }


def device_drawers(
    run: Run, count: int, device: Device | None = None, hosted: dict[str, Array] | None = None
) -> list[DeviceDrawer]:
    """Returns a number of drawers, for a thread each, which share the topology on a device or in pinned memory.

    Args:
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
        for sampler in samplers:
            sampler.records = True
    return [DeviceDrawer(batching, sampler, kernels, where == "uva") for sampler in samplers]


def _device_sampler(
    run: Run, topology: Topology, device: Device, kernels: CudaDevice, hosted: dict[str, Array] | None
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
