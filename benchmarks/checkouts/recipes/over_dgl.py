"""A model over DGL blocks. The example of docs/own-models.md."""

import dgl
from torch import nn


class TwoGats(nn.Module):
    def __init__(self, in_width, num_classes, config):
        super().__init__()
        self.first = dgl.nn.GATv2Conv(in_width, config.hidden, 2, allow_zero_in_degree=True)
        self.last = dgl.nn.GATv2Conv(2 * config.hidden, num_classes, 1, allow_zero_in_degree=True)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, blocks, x):
        h = self.dropout(self.first(blocks[0], x).flatten(1).relu())
        return self.last(blocks[1], h).mean(1)
