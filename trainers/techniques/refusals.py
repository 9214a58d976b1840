"""What does not go with each technique: cells of the table of options that are more than "yes", and rules about other tables.

trainers/recipe/option_table.py has the options, trainers/recipe/file_rules.py the rules of every technique.
`graphmill validate` refuses by it, with the line; docs/choosing.md shows the cells, and tests/laws/test_options.py trains every other one.
"""

from collections.abc import Mapping

from graphmill.assets.tasks.labels import ON_EDGES
from graphmill.trainers.recipe.file_rules import FileRule
from graphmill.trainers.recipe.option_table import FileCase, Limit, each

EVERYWHERE = (
    *each("link", "has a link of its own", whens="gpu"),
    *each("uva", "computes where the graph is"),
    *each("row_files", "has rows of nodes there", whens="gpu", remedy='remove the key, or set device = "cpu"'),
    *each("module", "makes no blocks of DGL", whens="gpu", remedy='write it for blocks = "pyg", or set device = "cpu"'),
)
"""Limits of every technique."""
TABLE_OF_EDGES = each(
    "edge_features", "has no packed rows of edges yet", whens="packed", remedy="remove `rows` in {own}"
)
UNNUMBERED = "draws edges without their numbers"
ONE_ROW = each("before", "keeps one row of a node, which has another one as of each time")
EDGE_ROWS = each(
    "edge_features", "sends no rows of edges yet", whens="gpu", remedy='remove the key, or set device = "cpu"'
)
UNPACKED = each("io", "reads no packed rows", useless=True)
ON_DEVICE = (
    *each("topology", "reads batches that were drawn before", whens="stored"),
    *each("schedule own_sampling before", "draws no such batches", whens="on_device"),
)
UNBOOKED = each("booked", "books no graph on devices", useless=True)
OWN_SET = "leave the key out, or give `samples` the name of a [[samples]] table that has these fanouts"
OTHER_SET = 'give `samples` the name of a [[samples]] table whose plan is "shuffled"'
DRAWN = (
    *each(
        "schedule",
        "reads batches that were drawn with one list of fan-outs",
        whens="stored",
        remedy='remove the key, or set samples = "online" in [[train]]',
    ),
    *each("own_fanouts", "reads what was drawn with those", whens="stored_other", remedy=OWN_SET),
)
ALL_SEEDS = "trains on batches of all seeds"
OF_ALL_SEEDS = each("part_plan", ALL_SEEDS, whens="stored", remedy=OTHER_SET)
OTHER_HOTNESS = each("own_fanouts", "reads hotness, which is counted with those", whens="other", remedy=OWN_SET)


def two_step(scheme: str) -> tuple[Limit, ...]:
    """Returns the limits of a scheme that draws by the two-step sampler."""
    return (
        *each("weighted walks own_sampling", 'draws by method = "uniform" alone', whens=scheme),
        *each("by_relation", "draws one number of neighbours per layer", whens=scheme),
        *each("before", "draws neighbours as of no time", whens=scheme),
    )


UNPEERED = each(
    "peer", "takes no row from the shards", whens="packed", useless=True, remedy="remove the key, or `rows` in {own}"
)
MODELLED = "remove the key, or model them by rank_link in {own}"
BY_PARTS = (
    *each("row_files", "has all rows of nodes in the memory of each", whens="several"),
    *ON_DEVICE,
    *UNBOOKED,
    *each("topology", "samples on the CPU", whens="unfused"),
    *DRAWN,
    *each("stored", "trains on batches of single parts", whens="shuffled", remedy='set plan = "parts" in [samples]'),
    *each("stored", "draws batches by a sampler of its own", whens="unfused", remedy='set scheme = "hybrid" in {own}'),
    *each("buffers", "cannot share running statistics", whens="parts", remedy="set [partitions] parts = 1"),
    *two_step("unfused"),
)
MINIBATCH = (*UNPACKED, *DRAWN, *ON_DEVICE, *OF_ALL_SEEDS, *UNBOOKED, *EDGE_ROWS)
DISK = (
    *EDGE_ROWS,
    *each("part_plan", ALL_SEEDS, remedy=OTHER_SET),
    *each("own_fanouts", "reads samples, which are drawn with those", whens="other", remedy=OWN_SET),
    *each("topology booked", "reads batches that were drawn before"),
    *each("cache", "has no cache that could be left out"),
    *each("samplers", "samples nothing", whens="exact", useless=True),
    *each(
        "schedule",
        "reads batches that were drawn with one list of fan-outs",
        remedy="remove `schedule`, or take another trainer",
    ),
)
UNSTORED_ROWS = (
    *each(
        "packed",
        "draws batches for which no rows are packed",
        whens="online",
        remedy='remove the key, or set samples = "stored" in [[train]]',
    ),
    *each("cache", "has a cache of packed rows, which the key does not leave out", whens="packed", useless=True),
)
PACKED_OR_NOT = (
    *each(
        "io",
        "reads no packed rows",
        whens="unpacked",
        useless=True,
        remedy='remove the key, or set rows = "packed" in {own}',
    ),
    *UNSTORED_ROWS,
)


def roles(name: str) -> tuple[Limit, ...]:
    """Returns the limits of a technique with samplers and trainers."""
    return (
        *each(
            "samplers",
            "has samplers of its own",
            remedy=f"write it below [train.{name}], where it means devices that sample",
        ),
        *each(
            "buffers", "computes batches on replicas, and each may change them", remedy="take a trainer with one model"
        ),
    )


FACTORED = (
    *EDGE_ROWS,
    *PACKED_OR_NOT,
    *DRAWN,
    *OF_ALL_SEEDS,
    *roles("factored"),
    *each("booked", "reads batches that were drawn before", whens="packed"),
    *each("presample", "has a cache of packed rows, which is filled before", whens="packed"),
    *ON_DEVICE,
    *each("hotness", "counts visits itself", whens="presample", useless=True, remedy="remove one of them"),
)
FRESH = (
    *EDGE_ROWS,
    *TABLE_OF_EDGES,
    *ONE_ROW,
    *OTHER_HOTNESS,
    *ON_DEVICE,
    *UNBOOKED,
    *DRAWN,
    *OF_ALL_SEEDS,
    *PACKED_OR_NOT,
)
FRESH_FACTORED = (
    *FRESH,
    *roles("fresh-factored"),
    *each("trainers", "has its history on one device, which trains", whens="gpu"),
    *each(
        "sharing",
        "has its history on one device, which trains",
        whens="gpu",
        remedy='remove the key: "fresh" shares a GPU in time',
    ),
    *each("presample", "reads hotness before it trains"),
    *each("staleness", "would read a history that an update changes"),
    *each("lookahead", "loads the rows of a step group beside its steps, by trainers that wait for the update before"),
)
ALL_ROWS = "has all rows on the device"
FULLGRAPH = (
    *EDGE_ROWS,
    *each("row_files", "reads the rows of all nodes at every step"),
    *each("before", "computes each node once, as of no time"),
    *UNPACKED,
    *each("topology", "takes all neighbours"),
    *UNBOOKED,
    *each("stored", "has no mini-batches"),
    *each("queue", "has no mini-batches that could wait", whens="exact", useless=True),
    *each("samplers", "samples nothing", whens="exact", useless=True),
    *each("own_fanouts", "takes all neighbours", whens="exact", useless=True),
    *each("cache", ALL_ROWS, whens="uncut", useless=True),
    *each("memory device_cache", ALL_ROWS, whens="uncut", useless=True, remedy="remove the table"),
    *each("checkpoint_steps", "has one step per epoch, and a checkpoint behind it", useless=True),
    *each("accumulate", "has one step per epoch, over all seeds"),
    *each("buffers", "would change them once per chunk", whens="chunks", remedy='set mode = "device" in {own}'),
    *each(
        "self_term",
        "needs the rows of the nodes that it computes",
        whens="chunks",
        remedy="set it to true, which is the default",
    ),
    *each(
        "ranks",
        "trains in one process, since the graph is not cut",
        whens="uncut",
        remedy='remove the key, or set mode = "p2p+reuse" in {own}',
    ),
    *each("sampling", "takes all neighbours", whens="exact", useless=True, remedy="remove the table"),
    *each("hotness", "counts the rows that its chunks load", useless=True, remedy="remove the table"),
)
DISTRIBUTED = (
    *EDGE_ROWS,
    *each("edge_features", UNNUMBERED, whens="unfused vanilla"),
    *BY_PARTS,
    *each("link", "moves its rows between ranks", whens="exchanged", useless=True, remedy=MODELLED),
    *UNPEERED,
    *each(
        "io",
        "reads no packed rows",
        whens="exchanged",
        useless=True,
        remedy='remove the key, or set rows = "packed" in {own}',
    ),
    *UNSTORED_ROWS,
    *each("samplers", "samples nothing", whens="packed_exact", useless=True),
    *each("stored", "draws batches with the other ranks", whens="vanilla", remedy='set scheme = "hybrid" in {own}'),
    *two_step("vanilla"),
    *each("topology", "draws batches with the other ranks", whens="vanilla"),
    *each("schedule", "knows no schedule of fan-outs", whens="vanilla"),
    *each("relations edge_weight", "draws edges without relations and weights", whens="vanilla"),
)
FRESH_DISTRIBUTED = (
    *EDGE_ROWS,
    *TABLE_OF_EDGES,
    *each("edge_features", UNNUMBERED, whens="unfused"),
    *ONE_ROW,
    *BY_PARTS,
    *PACKED_OR_NOT,
    *each("link", "moves its rows between ranks", whens="unpacked", useless=True, remedy=MODELLED),
    *UNPEERED,
    *OTHER_HOTNESS,
    *each(
        "vanilla",
        "would sample with the other ranks, in the thread that waits for the history",
        remedy='set scheme = "unfused" in {own}',
    ),
    *each("probe", "has no rank with all rows"),
    *each("lookahead", "asks other ranks for rows in the order of steps and updates"),
)
LIMITS: Mapping[str, tuple[Limit, ...]] = {
    "minibatch": MINIBATCH,
    "disk": DISK,
    "factored": FACTORED,
    "fresh": FRESH,
    "fresh-factored": FRESH_FACTORED,
    "fullgraph": FULLGRAPH,
    "distributed": DISTRIBUTED,
    "fresh-distributed": FRESH_DISTRIBUTED,
}
"""Technique -> its limits, besides those of every technique."""


def _parts_by_devices(case: FileCase) -> bool:
    parts, devices = case.table("partitions", "parts"), case.own.devices
    return bool(devices and not case.own.unread and parts and parts % devices)


OF_FACTORED = (
    FileRule(
        "*.presample",
        lambda c: c.own.presample and c.missing("memory"),
        "presample = {case.own.presample} fills a cache after so many epochs, but there is no budget for one: add a table [memory]",
    ),
)
OF_DISTRIBUTED = (
    FileRule(
        "*.links",
        lambda c: c.own.linked_devices < c.own.ranks,
        "links has {case.own.linked_devices} devices, and ranks = {case.own.ranks}: name as many devices as ranks",
    ),
    FileRule(
        "*.exchange",
        lambda c: c.own.exchange == "peer" and c.missing("hotness", "memory"),
        'exchange = "peer" needs {found}',
    ),
)
RULES: Mapping[str, tuple[FileRule, ...]] = {
    "factored": OF_FACTORED,
    "fresh-factored": OF_FACTORED,
    "fullgraph": (
        FileRule(
            "*.devices",
            _parts_by_devices,
            "devices = {case.own.devices} does not divide [partitions] parts = {case.tables[partitions].parts}: give a divisor",
        ),
        FileRule(
            "*.peer_link",
            lambda c: c.own.peer_link is not None and c.train.device == "cuda",
            "peer_link models links between devices of the CPU, and GPUs have links of their own: remove the key",
        ),
        FileRule(
            "*.devices",
            lambda c: c.own.devices and not c.own.unread and c.own.devices % c.own.ranks,
            "devices = {case.own.devices} is not a multiple of ranks = {case.own.ranks}: remove the key, or give a multiple",
        ),
    ),
    "distributed": (
        *OF_DISTRIBUTED,
        FileRule(
            "*.scheme",
            lambda c: c.kind in ON_EDGES and c.own.scheme == "vanilla",
            'scheme = "vanilla" draws neighbours of nodes by messages, and links are drawn by other schemes: remove the key',
        ),
    ),
    "fresh-distributed": OF_DISTRIBUTED,
}
"""Technique -> what its settings ask of the other tables of a file."""
