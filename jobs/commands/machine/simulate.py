"""`graphmill simulate`: how long an epoch takes for every split of devices into samplers and trainers.

The paper: FGNN, section 5.3, Figures 13, 14 and 16a.

Stage times are given, or those of a trained model whose devices were split. Beside the simulated best stands the split that the paper's
formula gives.

`graphmill simulate exchange`: the rounds of an exchange over links, and its seconds in rounds and at once (FreshGNN, section 6).

The links are given, measured by an earlier training, or those of this machine's GPUs. Beside the rounds stands the number that the paper's
rule needs, by which two devices exchange both ways in a round.

`graphmill simulate cluster` and `graphmill network` as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.artifact import Artifact
from graphmill.jobs.commands.options import json_option
from graphmill.kernels.errors import InputError
from graphmill.trainers.techniques.factored.simulator.simulate import Allocation, search, simulate, time_shared
from graphmill.trainers.techniques.factored.simulator.workload import Workload

if TYPE_CHECKING:
    from graphmill.jobs.scaling.cluster import CountedStep, Machines
    from graphmill.jobs.scaling.simulation import ClusterSimulation
    from graphmill.jobs.scaling.trainers import TrainerCost


def measured_workload(model: Artifact) -> dict[str, Any]:
    """Returns stage times of a model's last epoch, its number of batches, batches per step group, and updates that weights may lack.

    Raises:
        InputError: its devices were not split, so it lacks these times.
    """
    record = model.run_record().get("executors") or {}
    sampled, seconds = sum((record.get("sampled_by") or {}).values()), record.get("stage_seconds") or {}
    trained = sum((record.get("trained_by") or {}).values())
    if not (sampled and trained):
        problem = f"{model.label} was not trained by samplers and trainers"
        raise InputError(problem, "give a model of such a train table, or the times with --sample and --train")
    train = model.config["train"]
    return {
        # A run that went on inside its last epoch has sampled less than all of it.
        "batches": record["batches"],
        "sample": (seconds["sample"] + seconds["mark"]) / sampled,
        "extract": seconds["extract"] / trained,
        "train": seconds["train"] / trained,
        "group": train["accumulate"],
        "staleness": (train.get("settings") or {}).get("staleness", 0),
    }


def simulation(workload: Workload, devices: int) -> dict[str, Any]:
    """Returns the best allocations of 1 to `devices` devices, and every allocation of all `devices`, JSON-ready.

    Raises:
        InputError: no stage takes time, so no split is better than another.
    """
    if not (workload.sample or workload.extract or workload.train):
        raise InputError("no stage takes time", "give seconds per batch with --sample, --extract or --train")
    counts = sorted({1, 2, 4, 8, 16, 32, 64, devices} & {*range(1, devices + 1)})
    found = {count: search(workload, count) for count in counts}
    return {
        "devices": devices,
        "stage_seconds": {name: getattr(workload, name) for name in ("sample", "extract", "train", "standby_extract")},
        "batches": workload.batches,
        "group": workload.group,
        "by_samplers": [_row(workload, found[devices], samplers) for samplers in range(1, devices + 1)],
        "by_devices": [_summary(workload, found[count]) for count in counts],
    }


def _row(workload: Workload, allocation: Allocation, samplers: int) -> dict[str, Any]:
    outcome = simulate(workload, samplers, allocation.devices - samplers)
    return {
        "samplers": samplers,
        "trainers": allocation.devices - samplers,
        "static_seconds": allocation.static_seconds.get(samplers),
        "seconds": outcome.seconds,
        "switched_batches": outcome.switched,
        "busy_seconds": outcome.busy,
    }


def _summary(workload: Workload, allocation: Allocation) -> dict[str, Any]:
    static = allocation.static_seconds
    return {
        "devices": allocation.devices,
        "formula_samplers": allocation.formula,
        "formula_static_seconds": static.get(allocation.formula),
        "formula_seconds": allocation.seconds[allocation.formula],
        "best_samplers": allocation.best,
        "best_seconds": allocation.seconds[allocation.best],
        "time_shared_seconds": time_shared(workload, allocation.devices),
    }


def print_simulation(found: Mapping[str, Any], write: Callable[[str], Any] = print) -> None:
    """Prints both tables, and their conclusion."""
    stages = ", ".join(f"{name.replace('_', ' ')} {seconds:.4g} s" for name, seconds in found["stage_seconds"].items())
    write(f"{found['batches']} batches, {stages}")
    write(f"{'samplers':>8} {'trainers':>8} {'static s':>10} {'switching s':>11} {'switched':>8}")
    for row in found["by_samplers"]:
        static = "-" if row["static_seconds"] is None else f"{row['static_seconds']:.3f}"
        write(
            f"{row['samplers']:8} {row['trainers']:8} {static:>10} {row['seconds']:11.3f} {row['switched_batches']:8}"
        )
    write("")
    write(
        f"{'devices':>7} {'formula':>7} {'static s':>10} {'switching s':>11} {'best':>5} {'best s':>9} {'shared s':>9}"
    )
    for row in found["by_devices"]:
        static = "-" if row["formula_static_seconds"] is None else f"{row['formula_static_seconds']:.3f}"
        write(
            f"{row['devices']:7} {row['formula_samplers']:7} {static:>10} {row['formula_seconds']:11.3f} {row['best_samplers']:5} "
            f"{row['best_seconds']:9.3f} {row['time_shared_seconds']:9.3f}"
        )
    last = found["by_devices"][-1]
    ratio = last["formula_seconds"] / last["best_seconds"]
    write(
        f"{last['devices']} devices: {last['best_samplers']} should sample; the formula says {last['formula_samplers']}, "
        f"which takes {ratio:.2f} times as long"
    )


@click.command(short_help="Draws the rounds of an exchange of rows over links, with their seconds.")
@click.option(
    "--links",
    required=True,
    metavar="LINKS",
    help='Groups at a switch and speeds, "0 1 | 2 3 @ 32GB/s | 16GB/s", as in a pipeline file; measured, or nvml.',
)
@click.option("--ranks", type=click.IntRange(2), help="Ranks of measured links; else only the first of the devices.")
@click.option(
    "--bytes", "size", default="64MB", show_default=True, help="Bytes, above 0, from each device to each other one."
)
@click.option(
    "--efficiency", metavar="SHARES", help="Shares of its speed that a link has with 1, 2, 3 transfers: 1,0.6,0.4."
)
@click.option("--latency-us", type=click.FloatRange(0), default=0.0, help="Microseconds of each call.")
@json_option
def exchange(
    links: str, ranks: int | None, size: str, efficiency: str | None, latency_us: float, as_json: bool
) -> None:
    """Draws the rounds of an exchange of rows between devices, in which no link carries two transfers in one direction.

    Beside them stand the seconds of the exchange in rounds, and of all transfers at once, which share links fairly.

    Example: graphmill simulate exchange --links "0 1 | 2 3 @ 32GB/s | 16GB/s" --efficiency 1,0.6,0.4
    """
    from graphmill.assets.sizes import parse_size

    num_bytes = parse_size(size)
    if not num_bytes:
        problem = "an exchange of 0 bytes takes no time"
        raise InputError(problem, "give bytes from each device to each other one: --bytes 64MB")
    found = exchange_simulation(links, ranks, num_bytes, efficiency, latency_us * 1e-6)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_exchange(found, click.echo)


def exchange_simulation(
    named: str, ranks: int | None, num_bytes: int, efficiency: str | None, latency: float
) -> dict[str, Any]:
    """Returns the rounds and the seconds of an exchange, JSON-ready.

    Args:
        named: the links, as the key `links` names them.
        ranks: number of devices; None for all.
        efficiency: shares of its speed that a link has with 1, 2, ... transfers; None for those of the links.

    Raises:
        InputError: there are no such links.
    """
    from graphmill.trainers.ranks.links import parse_efficiency
    from graphmill.trainers.ranks.rounds import ends_at_once, make_rounds, paired, seconds_in_rounds

    links = _find(named, ranks)
    if efficiency is not None:
        links = replace(links, efficiency=parse_efficiency(efficiency))
    order, users, sizes = make_rounds(links), links.users(), dict.fromkeys(links.routes, num_bytes)
    fair = replace(links, efficiency=(1.0,))
    most = max(range(len(users)), key=lambda link: len(users[link]))
    seconds = [latency + each for each in seconds_in_rounds(links, order, sizes)]
    facts = zip(links.names, links.gbps, users, strict=True)
    return {
        "devices": links.num_devices,
        "links": [{"name": name, "gbps": gbps, "transfers": len(carried)} for name, gbps, carried in facts],
        "efficiency": list(links.efficiency),
        "bytes_per_pair": num_bytes,
        "rounds": [
            {
                "transfers": [list(pair) for pair in each],
                "busy_links": sorted({links.names[link] for pair in each for link in links.routes[pair]}),
                "seconds": took,
            }
            for each, took in zip(order.rounds, seconds, strict=True)
        ],
        "least_rounds": order.least,
        "fullest_link": links.names[most],
        "paired_rounds": len(make_rounds(paired(links)).rounds),
        "seconds": {
            "at_once_fair": latency + max(ends_at_once(fair, sizes).values()),
            "at_once": latency + max(ends_at_once(links, sizes).values()),
            "in_rounds": sum(seconds),
        },
    }


def _find(named: str, ranks: int | None) -> Any:
    """Returns the links; those that are written need no torch."""
    if named == "measured":
        from graphmill.trainers.ranks.measured_links import kept_links

        return kept_links(ranks)
    if named == "nvml":
        from graphmill.trainers.ranks.gpu_links import machine_links

        links = machine_links()
    else:
        from graphmill.trainers.ranks.links import parse_links

        links = parse_links(named)
    return links if ranks is None else links.between(range(ranks))


def print_exchange(found: Mapping[str, Any], write: Callable[[str], Any] = print) -> None:
    """Prints the rounds as a table, and the seconds."""
    links, rounds, seconds = found["links"], found["rounds"], found["seconds"]
    between = [each["name"] for each in links if not each["name"].endswith((" out", " in")) or "{" in each["name"]]
    texts = [" ".join(f"{one}>{other}" for one, other in each["transfers"]) for each in rounds]
    width = max(len("transfers"), *map(len, texts))
    write(f"{'round':>5} {'ms':>9} {'busy links':>11}  {'transfers':{width}}  busy links between groups".rstrip())
    for number, (each, text) in enumerate(zip(rounds, texts, strict=True), 1):
        busy = ", ".join(name for name in between if name in each["busy_links"])
        count = f"{len(each['busy_links'])} of {len(links)}"
        write(f"{number:5} {each['seconds'] * 1e3:9.3f} {count:>11}  {text:{width}}  {busy}".rstrip())
    write("")
    most = max(each["transfers"] for each in links)
    fewest = "no order needs fewer" if len(rounds) == found["least_rounds"] else f"at least {found['least_rounds']}"
    write(f"{len(rounds)} rounds ({fewest}); the link {found['fullest_link']} has {most} transfers")
    write(f"{found['paired_rounds']} rounds, if two devices exchange both ways in a round")
    write(f"{found['bytes_per_pair']:,} bytes from each device to each other one:")
    for name, text in (("at_once_fair", "at once, links shared fairly"), ("at_once", "at once, with congestion")):
        faster = seconds[name] / seconds["in_rounds"]
        write(f"  {text:30} {seconds[name] * 1e3:9.3f} ms; rounds are {faster:.2f} times as fast")
    write(f"  {'in rounds':30} {seconds['in_rounds'] * 1e3:9.3f} ms")


Write = Callable[[str], object]


def print_cluster(found: ClusterSimulation, machines: Machines, write: Write) -> None:
    """Prints the tables of stages and trainings, and what breaks; at most 80 columns wide."""
    for line in _stage_lines(found):
        write(line)
    write("")
    for line in _trainer_lines(found.trainers):
        write(line)
    write(f"fullgraph with {found.chunks_per_part} chunks per part; packed rows, samples and shards by part")
    write("")
    stops = [limit for limit in found.limits if limit.stops]
    if not stops:
        write(f"all of it fits {machines.count} such machines")
    for limit in found.limits:
        said = "breaks first" if stops and limit is stops[0] else "breaks" if limit.stops else "slow"
        write(f"{said}: {limit.name}: {limit.text}")


def _stage_lines(found: ClusterSimulation) -> Iterator[str]:
    yield f"{'stage':14} {'on':>4} {'memory':>13} {'stored':>10} {'scratch':>10} {'network':>10} {'hours':>12}"
    for each in found.stages:
        memory = ("<= " if each.memory_at_most else "") + format_bytes(each.memory_bytes)
        scratch = format_bytes(each.scratch_bytes) if each.scratch_bytes else ""
        network = format_bytes(each.fetched_bytes + each.published_bytes)
        hours = _range(each.best_seconds / 3600, each.most_seconds / 3600)
        yield (
            f"{each.name:14} {each.machines:4} {memory:>13} {format_bytes(each.stored_bytes):>10} {scratch:>10} {network:>10} {hours:>12}"
        )
    yield f"{'in turn':66} {_range(*found.hours):>12}"


def _range(low: float, high: float) -> str:
    return f"{low:.1f} to {high:.1f}" if high >= 0.1 else f"{high:.3f}"


def _trainer_lines(trainers: Sequence[TrainerCost]) -> Iterator[str]:
    yield f"{'an epoch of':19} {'on':>4} {'memory':>10} {'disk':>10} {'network':>10} {'seconds':>9}  of which"
    for each in trainers:
        network = format_bytes(sum(each.network_bytes.values())) if each.network_bytes else ""
        longest = max(each.seconds, key=lambda name: each.seconds[name])
        yield (
            f"{each.name:19} {each.machines:4} {format_bytes(each.memory_bytes):>10} {format_bytes(each.disk_bytes):>10} {network:>10} "
            f"{each.epoch_seconds:9.1f}  {longest}"
        )


def print_counted(found: Sequence[CountedStep], write: Write) -> None:
    """Prints the bytes that each step moves, and those between the ranks of trainings; at most 80 columns wide."""
    width = max(len(each.name) for each in found)
    write(f"{'step':{width}}  {'parts':>5}  {'a machine fetches':>17}  {'publishes':>10}")
    for each in found:
        if not each.built:
            write(f"{each.name:{width}}  is not built")
            continue
        parts = str(each.parts) if each.parts else ""
        write(
            f"{each.name:{width}}  {parts:>5}  {format_bytes(each.fetched_bytes):>17}  {format_bytes(each.published_bytes):>10}"
        )
        for kind, num_bytes in each.between.items():
            mark = "" if kind not in each.by_formula else " =" if each.by_formula[kind] == num_bytes else " /="
            write(f"  between {each.ranks} ranks {num_bytes:>20,} B of {kind}{mark}")
    if any(each.by_formula for each in found):
        write("= the formula of docs/scaling.md gives the same number, from other counts")
