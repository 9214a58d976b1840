"""What budgets take of the machine, and what they allow before they are resolved."""

from graphmill.assets.budgets.config import AUTO
from graphmill.assets.costs.needs import DRAWING, Need, Sizes
from graphmill.assets.sizes import parse_size


def budgets_need() -> Need:
    """Returns the need of the budgets stage, which only computes and draws."""
    return Need(name="budgets", phases=((DRAWING,),))


def budget_bytes(sizes: Sizes, level: str) -> int | None:
    """Returns the bytes of the level "device", "host" or "disk" of [memory]; None if "auto" is not resolved yet, or nothing is said."""
    if "budgets" in sizes.artifacts:
        return int(sizes.artifacts["budgets"].summary["numbers"][f"{level}_bytes"])
    config = sizes.configs.get("budgets")
    size = AUTO if config is None else getattr(config.memory, level)
    return None if size == AUTO else parse_size(size, sizes.feature_bytes)


def budget_rows(sizes: Sizes, level: str) -> int:
    """Returns the most rows that a level may hold: those of its budget, all rows if that is not known."""
    budget = budget_bytes(sizes, level)
    return sizes.num_rows if budget is None else min(sizes.num_rows, budget // max(1, sizes.row_bytes))
