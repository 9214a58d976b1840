"""The environment variables that graphmill reads: one table, and the only place that reads them.

A variable may have been set years ago, by a launcher that is gone or in a file that a shell reads. So the message that a variable causes
names it, `graphmill doctor` shows those that are set, and docs/environment.md is this table.
"""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.kernels.errors import InputError

USER, OURS, TORCHRUN, SLURM, MPI = "you", "graphmill", "torchrun", "srun", "mpirun"


@dataclass(frozen=True, kw_only=True)
class Variable:
    """An environment variable.

    Attributes:
        set_by: who sets it: "you", "graphmill" itself for its children, or another program.
        meaning: what it says, and what holds without it.
    """

    name: str
    set_by: str
    meaning: str


HOME, PIPELINES = "GRAPHMILL_HOME", "GRAPHMILL_PIPELINES"
STORE, CACHE_BYTES = "GRAPHMILL_STORE", "GRAPHMILL_CACHE_BYTES"
ANY_MEMORY = "GRAPHMILL_ANY_MEMORY"
EXAMPLES, PROCESSOR = "GRAPHMILL_EXAMPLES", "GRAPHMILL_PROCESSOR"
UI, UI_PORT, UI_NAMES = "GRAPHMILL_UI", "GRAPHMILL_UI_PORT", "GRAPHMILL_UI_NAMES"
RANKS_LISTENER, RANK_ERRORS = "GRAPHMILL_RANKS_LISTENER", "GRAPHMILL_RANK_ERRORS"
RANKS_PARENT = "GRAPHMILL_RANKS_PARENT"
RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
MASTER_ADDR, MASTER_PORT, TORCHELASTIC = "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"
INTERFACE, VISIBLE_GPUS, CACHES = "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "XDG_CACHE_HOME"
DAGSTER_HOME, PIPES = "DAGSTER_HOME", "DAGSTER_PIPES_CONTEXT"
TEMPORARY, PYTHON_PATH, TUNABLES = "TMPDIR", "PYTHONPATH", "GLIBC_TUNABLES"
SPINS, WAIT_POLICY, TORCH_LOG, DGL_BACKEND = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "TORCH_CPP_LOG_LEVEL", "DGLBACKEND"
PRODUCTS, SHAPES = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"
CREDENTIALS = ("AWS_", "GOOGLE_", "AZURE_")
"""Beginnings of the variables that an object store's client reads."""

ROWS = (
    (HOME, USER, "Folder of artifacts and history; `.graphmill` in the current folder without it. `--home` overrides it."),
    (PIPELINES, USER, "Folder of your pipeline files; `pipelines` in the current folder without it."),
    (STORE, USER, "URL of the object store that homes share, such as s3://BUCKET/PREFIX; no object store without it."),
    (CACHE_BYTES, USER, "Most bytes of artifacts that are fetched into the home, such as 200GiB; no bound without it."),
    (ANY_MEMORY, USER, "Set to 1, steps begin that need more memory than is there; they are refused without it."),
    (EXAMPLES, USER, "0 shows none of the shipped pipelines in the web UI, 1 all; those that ran without it."),
    (PROCESSOR, USER, "Highest level of instructions for the kernels, x86-64-v3 or x86-64-v4; the processor's without it."),
    (TEMPORARY, USER, "Folder of temporary files; /tmp without it."),
    (VISIBLE_GPUS, USER, "GPUs that a process may use, separated by commas; all without it. Ranks get theirs by it."),
    (CACHES, USER, "Folder of caches, such as compiled CUDA kernels; ~/.cache without it."),
    (PYTHON_PATH, USER, "Folders of your own modules; processes that graphmill starts search them, too."),
    (TUNABLES, USER, "Settings of the C library; trainings add one for their heap, unless you set it."),
    (WAIT_POLICY, USER, "How threads wait for work; trainings then leave GOMP_SPINCOUNT alone."),
    (SPINS, USER, "Rounds that a thread spins before it sleeps; trainings take 1000 without it."),
    (TORCH_LOG, USER, "Lines of torch's C++ code that are printed; trainings print none without it."),
    (PRODUCTS, USER, "Shapes whose compiled products oneDNN keeps; 32 without it."),
    (SHAPES, USER, "The same, of torch's own layer above oneDNN; 32 without it."),
    (INTERFACE, USER, "Network interface between ranks; that of the node's address without it."),
    (DGL_BACKEND, USER, "Library under DGL; graphmill needs pytorch, and takes it without this."),
    (DAGSTER_HOME, OURS, "Folder of Dagster's history: the home. `graphmill` sets it for its processes."),
    (PIPES, "Dagster", "How a training reports to the step that started it."),
    (UI, OURS, "Address of the web UI, which loads changed pipeline files again."),
    (UI_PORT, OURS, "Port of the web UI."),
    (UI_NAMES, OURS, "Names under which a proxy serves the web UI (`--served-as`)."),
    (RANKS_LISTENER, OURS, "Descriptor of the socket at which the ranks of `--ranks` meet."),
    (RANK_ERRORS, OURS, "Descriptor to which a rank reports its input error."),
    (RANKS_PARENT, OURS, "Process id of the launcher of a rank."),
    (RANK, TORCHRUN, "Number of this process among the ranks of a training."),
    (WORLD_SIZE, TORCHRUN, "Number of ranks; one without it."),
    (LOCAL_RANK, TORCHRUN, "Number of this process among the ranks on its machine."),
    (LOCAL_WORLD_SIZE, TORCHRUN, "Number of ranks on this machine; all of them without it."),
    (MASTER_ADDR, TORCHRUN, "Address at which the ranks meet."),
    (MASTER_PORT, TORCHRUN, "Port at which the ranks meet."),
    (TORCHELASTIC, TORCHRUN, "Says that torchrun started this process, which then ends with it."),
    ("SLURM_PROCID", SLURM, "Number of this process; `graphmill` refuses to be one of several."),
    ("SLURM_STEP_NUM_TASKS", SLURM, "Number of processes that one `srun` started."),
    ("OMPI_COMM_WORLD_RANK", MPI, "Number of this process (Open MPI)."),
    ("OMPI_COMM_WORLD_SIZE", MPI, "Number of processes (Open MPI)."),
    ("PMI_RANK", MPI, "Number of this process (MPICH, Intel MPI)."),
    ("PMI_SIZE", MPI, "Number of processes (MPICH, Intel MPI)."),
    ("PMIX_RANK", MPI, "Number of this process (PMIx)."),
    *((f"{prefix}...", USER, "Credentials and settings of the object store's client.") for prefix in CREDENTIALS),
)  # fmt: skip
VARIABLES = {name: Variable(name=name, set_by=who, meaning=meaning) for name, who, meaning in ROWS}

LAUNCHERS = (
    (TORCHRUN, WORLD_SIZE, RANK),
    (SLURM, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    (MPI, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    (MPI, "PMI_SIZE", "PMI_RANK"),
    (MPI, "", "PMIX_RANK"),
)
"""Programs that start several processes, and their variables of the number of processes and of this process's number."""
ANSWER_SECONDS = 2.0
MEETING = (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC)
"""What a launcher tells a rank."""


def read(name: str, otherwise: str = "") -> str:
    """Returns the text of a variable of the table, `otherwise` if it is not set."""
    assert name in VARIABLES, f"{name} is not in the table"
    return os.environ.get(name, otherwise)


def is_set(name: str) -> bool:
    """Tells whether a variable of the table is set, if only to an empty text."""
    assert name in VARIABLES, f"{name} is not in the table"
    return name in os.environ


def read_named(name: str) -> str:
    """Returns the text of a variable that a pipeline file names; "" if it is not set."""
    return os.environ.get(name, "")


def whole_number(name: str, otherwise: str, least: int, most: int, remedy: str) -> int:
    """Returns a variable as a whole number, `otherwise` if it is not set; raises InputError if it is not a whole number in the range."""
    text = read(name, otherwise)
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII) or not least <= int(text) <= most:
        problem = f"the environment says {name} = {text!r}, where a whole number from {least} to {most} is needed"
        raise InputError(problem, remedy)
    return int(text)


def set_default(name: str, text: str) -> None:
    """Sets a variable of the table for libraries in this process, unless it is set."""
    assert name in VARIABLES, f"{name} is not in the table"
    os.environ.setdefault(name, text)


def all_variables() -> dict[str, str]:
    """Returns a copy of this process's environment, for a child."""
    return dict(os.environ)


def with_prefixes(prefixes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Returns the variables whose names begin with one of several texts, sorted."""
    return tuple(sorted(each for each in os.environ.items() if each[0].startswith(prefixes)))


def forget_launcher() -> None:
    """Removes what a launcher told: a training that a step starts is not a rank of a launcher, whatever stands in the shell of the step."""
    for name in MEETING:
        os.environ.pop(name, None)


def variables_set() -> dict[str, str]:
    """Returns the variables of the table that are set, with their texts; of credentials the names alone."""
    found = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    return found | {name: "(not shown)" for name, _ in with_prefixes(CREDENTIALS)}


def launcher(environment: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """Returns the program that started this process as one of several, and its variables; ("", {}) if none did.

    A number of processes without this one's number says nothing: a batch system tells a job's script of its tasks, too.

    Args:
        environment: variables of the process; None for those of this one.
    """
    environment = os.environ if environment is None else environment
    for program, size, rank in LAUNCHERS:
        told = {name: environment[name] for name in (size, rank) if environment.get(name)}
        if rank in told and (
            not _at_most(told.get(size, "1"), 1) or (program != TORCHRUN and not _at_most(told[rank], 0))
        ):
            return program, {name: environment[name] for name in (*told, *MEETING) if name in environment}
    return "", {}


def is_first(told: Mapping[str, str]) -> bool:
    """Tells whether a process is the first of those that `srun` or `mpirun` started, by the variables that `launcher` returned."""
    return any(program != TORCHRUN and _at_most(told.get(rank, ""), 0) for program, _, rank in LAUNCHERS)


def answers(address: str, port: str) -> bool:
    """Tells whether somebody answers at the address at which ranks meet, within ANSWER_SECONDS."""
    try:
        with socket.create_connection((address, int(port)), timeout=ANSWER_SECONDS):
            return True
    except (OSError, ValueError, OverflowError):  # UnicodeError, of a name that cannot be looked up, is a ValueError
        return False


LONGEST_SOCKET = 107
"""Most bytes of the name of a socket."""
SERVER_SOCKET = 47
"""Most bytes that Dagster puts behind the folder of temporary files in the name of a code server's socket."""
SHORT_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")


def socket_folder(rest: int) -> str:
    """Returns a folder for sockets: that of temporary files, or a shorter one if it is too long, as those of batch systems may be.

    Args:
        rest: most bytes of what stands behind the folder in the name of a socket.

    Raises:
        InputError: there is no folder that is short enough.
    """
    import tempfile

    folder = tempfile.gettempdir()
    for each in (folder, *SHORT_FOLDERS):
        if len(os.fsencode(each)) + rest <= LONGEST_SOCKET and os.access(each, os.W_OK | os.X_OK):
            return each
    taken, most = len(os.fsencode(folder)), LONGEST_SOCKET - rest
    problem = f"{TEMPORARY} = {folder!r} has {taken} bytes, and for a socket in it at most {most} are possible"
    raise InputError(problem, f"set {TEMPORARY} to a folder with a shorter path")


def _at_most(text: str, number: int) -> bool:
    return re.fullmatch(r"\s*\d{1,18}\s*", text) is not None and int(text) <= number
