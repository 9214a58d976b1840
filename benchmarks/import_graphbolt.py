"""Imports a folder of GraphBolt's OnDiskDataset; run by an interpreter that has DGL 2.1, by the path of this file.

Arguments: the folder with `metadata.yaml`, the number of threads, and "check" to print the number of edges and digests of both degrees of
what was imported before.
"""

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    folder, threads, check = Path(sys.argv[1]), sys.argv[2], "check" in sys.argv[3:]
    os.environ["OMP_NUM_THREADS"] = threads
    import dgl.graphbolt
    import numpy as np
    import torch

    torch.set_num_threads(int(threads))
    if not check:
        if "anew" in sys.argv[3:]:
            shutil.rmtree(folder / "preprocessed", ignore_errors=True)
        dgl.graphbolt.OnDiskDataset(str(folder), include_original_edge_id=False)
        sys.exit()
    graph = dgl.graphbolt.OnDiskDataset(str(folder), include_original_edge_id=False).load().graph
    indptr, indices = graph.csc_indptr.numpy().astype(np.int64), graph.indices.numpy()
    degrees = {"in": np.diff(indptr), "out": np.bincount(indices, minlength=len(indptr) - 1)}
    digests = {name: hashlib.sha256(each.astype("<i8").tobytes()).hexdigest() for name, each in degrees.items()}
    print(json.dumps({"num_edges": len(indices), "num_nodes": len(indptr) - 1, "digests": digests}))
