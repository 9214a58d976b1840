"""`graphmill simulate exchange`: the rounds of an exchange over links, and its seconds in rounds and at once (FreshGNN, section 6).

The links are given, measured by an earlier training, or those of this machine's GPUs. Beside the rounds stands the number that the paper's
rule needs, by which two devices exchange both ways in a round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from graphmill.jobs.commands.options import json_option


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
    links: str,
    ranks: int | None,
    size: str,
    efficiency: str | None,
    latency_us: float,
    as_json: bool,
) -> None:
    """Draws the rounds of an exchange of rows between devices, in which no link carries two transfers in one direction.

    Beside them stand the seconds of the exchange in rounds, and of all transfers at once, which share links fairly.

    Example: graphmill simulate exchange --links "0 1 | 2 3 @ 32GB/s | 16GB/s" --efficiency 1,0.6,0.4
    """
    from graphmill.assets.sizes import parse_size
    from graphmill.kernels.errors import InputError

    num_bytes = parse_size(size)
    if not num_bytes:
        raise InputError(
            "an exchange of 0 bytes takes no time", "give bytes from each device to each other one: --bytes 64MB"
        )
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
        num_bytes: bytes of each transfer.
        efficiency: shares of its speed that a link has with 1, 2, ... transfers; None for those of the links.
        latency: seconds of each call.

    Raises:
        InputError: there are no such links.
    """
    from graphmill.trainers.ranks.link_seconds import ends_at_once, seconds_in_rounds
    from graphmill.trainers.ranks.links import parse_efficiency
    from graphmill.trainers.ranks.rounds import make_rounds, paired

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
