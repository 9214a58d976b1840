"""A model of layers in two halves. The example of docs/own-models.md."""

import torch
from torch import nn

from graphmill import aggregate


class GatedLayer(nn.Module):
    cacheable = True  # aggregate has no parameters and keeps nothing for its backward pass
    edge_weight = None  # or "gcn": GCN coefficients on every block; or "sum": factors that make a sampled sum unbiased

    def __init__(self, in_width, out_width, dropout, last):
        super().__init__()
        self.own = nn.Linear(in_width, out_width)
        self.neighbours = nn.Linear(in_width, out_width)
        self.gate = nn.Linear(in_width, out_width)
        self.dropout, self.last = dropout, last

    def aggregate(self, block, h_src, rng):
        return aggregate(block, h_src, "mean")  # float[num_src, F] -> float[num_dst, F]

    def update(self, agg, h_dst, rng):
        h = self.own(h_dst) + torch.sigmoid(self.gate(h_dst)) * self.neighbours(agg)
        return h if self.last else rng.dropout(h.relu(), self.dropout)


def gated(in_width, num_classes, config):
    widths = [in_width] + [config.hidden] * (config.layers - 1) + [num_classes]
    return [
        GatedLayer(widths[i], widths[i + 1], config.dropout, last=i == config.layers - 1) for i in range(config.layers)
    ]
