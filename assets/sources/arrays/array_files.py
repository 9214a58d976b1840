"""Files that are not arrays of numbers: what they are by their first bytes, and the command that makes an array of them.

Arrays of features come from many programs, and most of what lies in their place is sound: raw numbers without a header, as `np.memmap`
writes them, lists of Python, archives, tensors, tables. Their first bytes tell more than their names.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graphmill.assets.sources.readers.duck import FIX_FILE
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array

NPY = b"\x93NUMPY"
COPY = "copy the file again"
SAVE = "save the rows with numpy.save, as numbers [N, F]"

_NUMPY = 'python -c "import numpy; numpy.save({new!r}, {what})"'
_ARRAYS = {
    b"PK\x03\x04": ("a zip archive, such as numpy.savez writes", "numpy.load({path!r})['NAME']"),
    b"PAR1": ("a Parquet table", "__import__('polars').read_parquet({path!r}).to_numpy()"),
    b"ARROW1": ("an Arrow table", "__import__('polars').read_ipc({path!r}).to_numpy()"),
    b"\x89HDF": ("an HDF5 file", "__import__('h5py').File({path!r})['NAME'][:]"),
    b"MATLAB": ("a file of MATLAB", "__import__('scipy.io').io.loadmat({path!r})['NAME']"),
}
"""First bytes -> (what the file is, the expression of its rows)."""

_BY_NAME = {
    (".pt", ".pth"): ("tensors of torch", "__import__('torch').load({path!r}, weights_only=True).numpy()"),
    (".npz",): _ARRAYS[b"PK\x03\x04"],
    (".h5", ".hdf5"): _ARRAYS[b"\x89HDF"],
    (".parquet", ".pq"): _ARRAYS[b"PAR1"],
    (".feather", ".arrow"): _ARRAYS[b"ARROW1"],
    (".csv",): ("text", "numpy.loadtxt({path!r}, numpy.float32, delimiter=',')"),
    (".tsv", ".txt"): ("text", "numpy.loadtxt({path!r}, numpy.float32)"),
}
"""Endings of a name -> the same."""

OBJECTS = "numpy.array(numpy.load({path!r}, allow_pickle=True).tolist(), numpy.float32)"
RAW = "numpy.fromfile({path!r}, 'float32').reshape(ROWS, -1)"


def command(path: Path, expression: str) -> str:
    """Returns the command that saves the rows of an expression as a `.npy` file beside the file."""
    new = f"{path.with_suffix('')}-rows.npy"
    return _NUMPY.replace("{what}", expression).format(new=new, path=str(path))


def other_rows(path: Path) -> InputError | None:
    """Returns the error of a file that is not `.npy`, by its first bytes and then its name; None if it may be safetensors."""
    start, name = first_of(path), path.name.lower()
    found = next((found for first, found in _ARRAYS.items() if start.startswith(first)), None)
    if found is None and (name.endswith(".safetensors") or start[8:9] == b"{"):
        return None
    found = found or next((found for ends, found in _BY_NAME.items() if name.endswith(ends)), None)
    problem = f"{path}: the name ends with neither .npy nor .safetensors"
    if name.endswith(".safetensors"):
        problem = f"{path}: is no whole safetensors file"
    if found is None:
        return InputError(problem, f"{SAVE}, in a .npy file")
    return InputError(f"{problem}, and the file is {found[0]}", f"make an array of it: {command(path, found[1])}")


def no_array(path: Path, error: Exception) -> InputError:
    """Returns the error of a file that cannot be mapped as an array."""
    start, where = first_of(path), f"{path}: is no array of plain numbers"
    if not start:
        return InputError(f"{where}: the file is empty", COPY)
    if start.startswith(NPY):
        return _damaged(path, where, error)
    if found := next((found for first, found in _ARRAYS.items() if start.startswith(first)), None):
        return InputError(f"{where}, but {found[0]}", f"make an array of it: {command(path, found[1])}")
    if start[8:9] == b"{":
        return InputError(f"{where}, but of safetensors", "give the file the ending .safetensors")
    if start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05":
        return InputError(f"{where}: it holds Python objects (pickle), which are never loaded", SAVE)
    if (size := path.stat().st_size) < 16 or start[:4] in NPY:
        return InputError(f"{where}: it has {size} bytes", COPY)
    problem = f"{where}: it has no .npy header, so shape and type of its {size:,} bytes are not known"
    how = f"for raw numbers without a header, write one, with the number of rows and their type: {command(path, RAW)}"
    return InputError(problem, how)


def _damaged(path: Path, where: str, error: Exception) -> InputError:
    text = str(error)
    if "Python objects" in text:
        problem = f"{where}: it holds Python objects, which are never loaded, since they can run code"
        return InputError(problem, f"save plain numbers; if you trust the file: {command(path, OBJECTS)}")
    if "mmap length" in text or "cut" in text:
        return InputError(f"{where}: it is cut short", COPY)
    return InputError(f"{where}: its header is damaged", COPY)


def first_of(path: Path) -> bytes:
    """Returns the first 16 bytes of a file; raises InputError if it is a folder, or cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(16)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing", "unzip the dataset again, or restore the file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}", "give a readable file") from error


def check_matrix(shape: tuple[int, ...], dtype: np.dtype[Any], count: int, where: str) -> None:
    """Raises InputError unless an array is a matrix of numbers with `count` rows."""
    if len(shape) == 2 and shape[0] == count and dtype.kind in "biuf":
        return
    kind, rows = dtype, f"numbers [{count}, F]"
    remedy = f"save an array with {count:,} rows of numbers"
    if dtype.kind == "V" and dtype.names:
        kind = f"a structure of {', '.join(dtype.names[:5])} "
        remedy = "save its columns side by side: numpy.array(array.tolist(), 'float32')"
    elif dtype.kind not in "biuf":
        remedy = "save real numbers, such as array.astype('float32')"
    elif len(shape) == 1 and shape[0] == count:
        remedy = "for one number for each node, save array[:, None]"
    elif len(shape) > 2 and shape[0] == count:
        remedy = "save array.reshape(len(array), -1), which has one row for each node"
    elif len(shape) == 2 and shape[1] == count:
        remedy = "save array.T, which has one row for each node"
    raise InputError(f"{where} is {kind}{list(shape)}, not {rows}", remedy)


STACKED = "save np.stack([sources, targets])"


def to_integers(values: Array, name: str, cast: str = "astype(np.int64)") -> str:
    """Returns the remedy for values of another type than integers.

    Args:
        cast: the call that makes integers of whole numbers.
    """
    if values.dtype.kind == "f":
        broken = values[~(np.isfinite(values) & (values == np.floor(values)))]
        if len(broken):
            return f"give whole numbers: {name} holds {broken[0]}, of which {cast} would make another number"
    if values.dtype.kind in "fb" or (values.dtype.kind in "US" and np.char.isdecimal(values.astype(str)).all()):
        return f"save {name}.{cast}"
    if name != "edge_index":
        return f"give whole numbers in {name}"
    return f"number them: {name} = np.unique({name}, return_inverse=True)[1].reshape({name}.shape)"


def to_two_rows(shape: Sequence[int], name: str) -> str:
    """Returns the remedy for edges of another shape than [2, E]."""
    if len(shape) == 2 and 3 in shape and shape[0] != shape[1]:
        rows = f"{name}[:2]" if shape[0] == 3 else f"{name}[:, :2].T"
        return f"if the first two are the ends of the edges: save {rows}"
    if len(shape) == 2 and shape[1] == 2:
        return f"save {name}.T"
    if len(shape) == 2 and shape[0] == shape[1]:
        return f"if it is an adjacency matrix: save np.stack(np.nonzero({name}))"
    return STACKED if len(shape) == 1 else FIX_FILE
