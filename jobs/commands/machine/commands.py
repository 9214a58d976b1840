"""The commands about this machine, and about machines that are not there: epochs of split devices, a pipeline on a cluster."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from graphmill.jobs.commands.machine.simulate import exchange
from graphmill.jobs.commands.options import Asked, json_option, pipeline_argument
from graphmill.kernels.errors import InputError

EXIT_UNFIT = 1


@click.command(short_help="Makes the home folder with its settings.")
@click.pass_obj
def init(home: Path | None) -> None:
    """Makes the home folder with its settings; every other command does so where it needs to.

    Example: graphmill init
    """
    from graphmill.jobs.runs.instance import SETTINGS, init_home

    folder, written = init_home(home)
    click.echo(f"{folder / SETTINGS} {'is written' if written else 'was there already'}")


@click.command(short_help="Shows what this machine has and lacks for graphmill.")
@click.option("--refresh", is_flag=True, help="Measure speeds again.")
@json_option
@click.pass_obj
def doctor(home: Path | None, refresh: bool, as_json: bool) -> None:
    """Shows what this machine has for graphmill, what it lacks, and the command that mends it; exit code 1 if nothing can be trained.

    Example: graphmill doctor
    """
    from graphmill.jobs.commands.machine.doctor import can_train, examine, print_findings

    findings = examine(home, again=refresh)
    print_findings(findings, as_json=as_json)
    if not can_train(findings):
        sys.exit(EXIT_UNFIT)


@click.command(short_help="Starts the web UI.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on; default the first free one from 3000.")
@click.option(
    "--served-as",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name under which a proxy serves it, as the proxy sends it in Host; may be given several times.",
)
@click.pass_obj
def ui(home: Path | None, port: int | None, names: tuple[str, ...]) -> None:
    """Starts the web UI on this machine's loopback address, with the daemon that runs schedules.

    Example: graphmill ui --port 3001
    """
    from graphmill.jobs.commands.machine.ui import serve

    serve(home, port, click.echo, names)


class Simulations(click.Group):
    """A group whose command `devices` is the one that runs if none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the name of `devices` before arguments that do not begin with the name of a command, or with a call for help."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["devices", *args]
        return super().parse_args(ctx, args)


class Count(click.ParamType):
    """A whole number that may be written as 10e9."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number."""
        try:
            found = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 1 <= found < 2**63 or found != int(found):
            self.fail(f"{value!r} is not a whole number of 1 or more", param, ctx)
        return int(found)


class NumBytes(click.ParamType):
    """A size such as 256GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number of bytes."""
        from graphmill.assets.sizes import parse_size

        return parse_size(str(value))


class SpeedOption(click.ParamType):
    """A speed such as "3 GB/s" or "25 Gbit/s"."""

    name = "speed"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the bytes per second."""
        from graphmill.assets.sizes import parse_speed

        return value if isinstance(value, float) else parse_speed(str(value))


def _refuse_unit(name: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    """Returns the callback of an old option whose unit was mistaken for bits: it names the option of today."""

    def refuse(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
        if value is not None:
            problem = f"{parameter.opts[0]} {value} meant {value} gigabytes per second, and a card of {value} Gbit/s has an eighth of it"
            raise InputError(problem, f'give the unit: {name} "{value} GB/s" or {name} "{value} Gbit/s"')

    return refuse


@click.group(cls=Simulations, short_help="Simulates split devices, an exchange, or a cluster.")
def simulate() -> None:
    """Simulates what is not there: `devices`, the default, splits devices into samplers and trainers; `exchange` is about links between
    devices, `cluster` about machines.

    Example: graphmill simulate --sample 0.02 --train 0.06 --devices 8
    """


@simulate.command(short_help="Simulates an epoch for every split of devices.")
@click.argument("name", required=False)
@click.option("--devices", "count", type=click.IntRange(1, 64), default=8, show_default=True, help="Devices to share.")
@click.option("--sample", type=float, help="Seconds in which a sampler draws and marks a batch.")
@click.option("--extract", type=float, help="Seconds in which a trainer extracts the rows of a batch.")
@click.option("--train", type=float, help="Seconds in which a trainer trains on a batch.")
@click.option("--standby", type=float, help="Seconds in which a standby trainer extracts; default as a trainer.")
@click.option("--batches", type=click.IntRange(1), help="Batches of an epoch.")
@click.option("--group", type=click.IntRange(0), help="Batches per update; 0 = trainers wait for no update.")
@click.option("--queue", type=click.IntRange(0), default=0, help="Batches that may wait; 0 = any number.")
@click.option("--jitter", type=float, default=0.0, help="Share by which times vary, in [0, 1).")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Draws the result to this PNG.")
@json_option
@click.pass_obj
def devices(home: Path | None, name: str | None, count: int, out: Path | None, as_json: bool, **given: Any) -> None:
    """Simulates an epoch for every split of devices into samplers and trainers, with the stage times of a model, NAME as for `show`.

    Times that are given count instead of the model's; without NAME, --sample and --train are needed.

    Example: graphmill simulate --sample 0.02 --train 0.06 --devices 8
    """
    from graphmill.assets.storage.store import Store
    from graphmill.jobs.commands.machine.simulate import measured_workload, print_simulation, simulation
    from graphmill.jobs.commands.names import find_artifact
    from graphmill.jobs.figures.allocation import draw_allocation
    from graphmill.jobs.figures.timeline import write_png
    from graphmill.trainers.techniques.factored.simulator.workload import Workload

    known = measured_workload(find_artifact(Store(home), name)) if name else {}
    known |= {key: value for key, value in given.items() if value is not None}
    if not {"sample", "train"} <= known.keys():
        raise InputError("there is neither a model nor both --sample and --train", "give NAME, or both times")
    found = simulation(Workload(**known), count)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        print_simulation(found, click.echo)
    if out is not None:
        click.echo(f"drawn in {write_png(draw_allocation(found), out)}", err=as_json)


@simulate.command(short_help="Simulates a pipeline on many machines.")
@click.option("--nodes", type=Count(), required=True, help="Nodes of the graph: 10e9.")
@click.option("--edges", type=Count(), required=True, help="Stored edges.")
@click.option("--features", type=Count(), default=128, show_default=True, help="Columns of the features.")
@click.option(
    "--dtype",
    type=click.Choice(["float16", "float32"]),
    default="float16",
    show_default=True,
    help="Type of a feature.",
)
@click.option("--classes", type=Count(), default=172, show_default=True, help="Classes.")
@click.option("--train-share", type=float, default=0.01, show_default=True, help="Share of the nodes that train.")
@click.option("--fanouts", default="10,10", show_default=True, metavar="N,N", help="Neighbours per layer.")
@click.option("--batch-size", type=Count(), default=1024, show_default=True, help="Seeds of a batch.")
@click.option("--hidden", type=Count(), default=256, show_default=True, help="Width of the layers between.")
@click.option("--epochs", type=Count(), default=10, show_default=True, help="Epochs.")
@click.option("--packed", type=float, default=3.0, show_default=True, help="Packed rows on disk, times the features.")
@click.option("--distinct", type=float, default=1.0, show_default=True, help="Share of a batch's inputs that differ.")
@click.option("--machines", type=Count(), default=64, show_default=True, help="Machines.")
@click.option("--cores", type=Count(), default=32, show_default=True, help="Cores of each.")
@click.option("--memory", type=NumBytes(), default="256GiB", show_default=True, help="Memory of each.")
@click.option("--disk", type=NumBytes(), default="8TiB", show_default=True, help="Disk of each.")
@click.option(
    "--disk-speed", type=SpeedOption(), default="2 GB/s", show_default=True, help="What a disk reads in order."
)
@click.option("--disk-gbps", hidden=True, callback=_refuse_unit("--disk-speed"))
@click.option(
    "--disk-pages", type=float, default=5e5, show_default=True, help="Pages of 4 KiB per second, in any order."
)
@click.option(
    "--network", type=SpeedOption(), default="3 GB/s", show_default=True, help="What a machine sends and gets."
)
@click.option("--network-gbps", hidden=True, callback=_refuse_unit("--network"))
@click.option("--latency-us", type=float, default=100.0, show_default=True, help="Microseconds of a call between all.")
@click.option("--core-gflops", type=float, default=40.0, show_default=True, help="GFLOP/s of a core in a step.")
@json_option
def cluster(as_json: bool, fanouts: str, distinct: float, packed: float, **given: Any) -> None:
    """Simulates the stages and trainings of a graph on equal machines: memory, disk, network, hours, and what breaks first.

    Sizes are those of the formulas of `inspect`, so most are bounds; speeds are those of docs/needs.md. Nothing is built.

    Example: graphmill simulate cluster --nodes 10e9 --edges 100e9 --machines 64
    """
    from graphmill.jobs.commands.machine.simulate import print_cluster
    from graphmill.jobs.scaling.cluster import ClusterWork, Machines
    from graphmill.jobs.scaling.simulation import simulate_cluster

    if not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", fanouts, re.ASCII):
        raise InputError(f"fanouts = {fanouts!r}", "give whole numbers with commas between them, such as 10,10")
    names = ("nodes", "edges", "features", "dtype", "classes", "train_share", "batch_size", "hidden", "epochs")
    numbers = tuple(int(each) for each in fanouts.split(","))
    work = ClusterWork(fanouts=numbers, packed_times=packed, **{name: given[name] for name in names})
    machines = Machines(
        count=given["machines"], cores=given["cores"], memory_bytes=given["memory"], disk_bytes=given["disk"],
        disk_rate=given["disk_speed"], pages_rate=given["disk_pages"], network_rate=given["network"],
        latency=given["latency_us"] / 1e6, core_flops=given["core_gflops"] * 1e9,
    )  # fmt: skip
    found = simulate_cluster(work, machines, distinct)
    if as_json:
        click.echo(json.dumps(found.values(), indent=2))
    else:
        print_cluster(found, machines, click.echo)


@click.command(short_help="Counts what crosses the network.")
@pipeline_argument
@json_option
@click.pass_obj
def network(home: Path | None, pipeline: Asked, as_json: bool) -> None:
    """Counts the bytes that the built steps of PIPELINE move between machines: inputs that a machine fetches, artifacts that it publishes,
    and in trainings by ranks what these sent each other.

    Example: graphmill network python-environment
    """
    from dataclasses import asdict

    from graphmill.assets.storage.store import Store
    from graphmill.jobs.commands.machine.simulate import print_counted
    from graphmill.jobs.scaling.cluster import counted_steps

    found = counted_steps(pipeline.load(), Store(home))
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=2))
    else:
        print_counted(found, click.echo)


simulate.add_command(exchange)
MACHINE = (init, doctor, ui, simulate, network)
