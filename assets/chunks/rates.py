"""The speeds of the links in equation 4: measured once into the home, or given.

    $GRAPHMILL_HOME/measured/links.json     device, and bytes per second from the host, between devices, and inside one

Chunks do not depend on what was measured: a schedule is chosen by the rows that it loads, or by the speeds that `rates` of [chunks] states,
so that equal recipes have equal chunks on every machine. `graphmill chunks` computes the seconds for the rows from the stored counts.
"""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphmill.assets.storage.files.documents import keep_numbers, kept_numbers
from graphmill.assets.storage.files.schema import Fields, name, rate
from graphmill.assets.storage.names.home import home_folder
from graphmill.kernels.chunks.rates import LinkRates, measure_rates
from graphmill.kernels.errors import InputError

PLACE = Path("measured") / "links.json"
REMEDY = "measure again: graphmill chunks PIPELINE --refresh"
UNITS = {"MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12}
NAMES = ("host_bytes_per_second", "peer_bytes_per_second", "reuse_bytes_per_second")
rates_schema = Fields({"device": name} | dict.fromkeys(NAMES, rate))
"""The file of the speeds."""


def measured_rates(home: Path | None = None, *, again: bool = False) -> tuple[str, LinkRates]:
    """Returns (device, rates) from the home; measures them first if it holds none, or `again` to replace them."""
    path = home_folder(home) / PLACE
    if again:
        keep_numbers(path, _measured())
    values = kept_numbers(path, rates_schema, _measured, REMEDY)
    return values["device"], LinkRates(**{link: float(values[link]) for link in NAMES})


def parse_rates(text: str) -> LinkRates:
    """Returns the rates of a text such as "12GB/s,200GB/s,1.5TB/s": from the host, between devices, inside one.

    Raises:
        InputError: the text is not three speeds above 0.
    """
    found = [re.fullmatch(r"\s*([0-9.]{1,20})\s*([MGT]B/s)\s*", each) for each in text.split(",")]
    try:
        values = [float(each[1]) * UNITS[each[2]] for each in found if each]
    except ValueError:
        values = []
    if len(values) != len(found) or len(values) != 3 or min(values) <= 0:
        problem = f"rates {text!r} are not three speeds above 0"
        raise InputError(problem, 'give host, peers and reuse with their units: "12GB/s,200GB/s,1.5TB/s"')
    return LinkRates(**dict(zip(NAMES, values, strict=True)))


def _measured() -> dict[str, Any]:
    device, rates = measure_rates()
    return {"device": device} | asdict(rates)
