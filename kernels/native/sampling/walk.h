// Importance neighbours by short random walks with restart; see kernels/sampling/walk.py for the rule.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "sampling/sampling.h"
#include "sampling/topology.h"

namespace graphmill {

// Walks from several nodes at once, so that the reads of all paths are on their way together.
template <class Id>
class Walker {
  public:
    Walker(const Topology<Id>& topology, Walks walks) : topology_(topology), walks_(walks) {
        size_t size = 1;
        while (size < static_cast<size_t>(2 * walks.visits())) size *= 2;
        table_.assign(size, -1);
    }

    // Nodes that are worth walking from together.
    int64_t tile() const { return std::max<int64_t>(1, TOGETHER / walks_.paths); }

    void walk(const Id* nodes, int64_t num_nodes, uint64_t layer_key) {
        nodes_ = nodes;
        keys_.resize(num_nodes);
        for (int64_t i = 0; i < num_nodes; ++i) keys_[i] = absorb(layer_key, nodes[i]);
        const int64_t paths = num_nodes * walks_.paths;
        at_.resize(paths);
        next_.resize(paths);
        visits_.resize(paths * walks_.length);
        for (int64_t p = 0; p < paths; ++p) at_[p] = nodes[p / walks_.paths];
        for (int64_t step = 0; step < walks_.length; ++step) take_step(paths, step);
    }

    // Writes the most visited nodes of the i-th node that was walked from, and their shares of these visits; the node itself is not
    // counted. The most visited come first, of equals that which was visited first. Returns how many there are.
    int64_t most_visited(int64_t i, int64_t most, Id* ids, float* share) {
        const Id* visits = visits_.data() + i * walks_.visits();
        count(visits, nodes_[i]);
        const int64_t taken = std::min<int64_t>(most, found_.size());
        std::partial_sort(found_.begin(), found_.begin() + taken, found_.end(), [](const Visited& a, const Visited& b) {
            return a.count != b.count ? a.count > b.count : a.first < b.first;
        });
        int64_t total = 0;
        for (int64_t j = 0; j < taken; ++j) total += found_[j].count;
        for (int64_t j = 0; j < taken; ++j) {
            ids[j] = visits[found_[j].first];
            share[j] = static_cast<float>(found_[j].count) / static_cast<float>(total);
        }
        return taken;
    }

  private:
    static constexpr int64_t TOGETHER = 256;  // paths whose reads are in flight

    struct Visited {
        int32_t count, first;  // visits; number of the first one
    };

    // Three passes over all paths: restart, find the row's place, read it.
    void take_step(int64_t paths, int64_t step) {
        for (int64_t p = 0; p < paths; ++p) {
            const int64_t i = p / walks_.paths, number = (p % walks_.paths) * walks_.length + step;
            if (step > 0 && (draw(keys_[i], 2 * number) >> 32) < walks_.restart) at_[p] = nodes_[i];
            topology_.prefetch(at_[p]);
        }
        for (int64_t p = 0; p < paths; ++p) {
            const int64_t i = p / walks_.paths, number = (p % walks_.paths) * walks_.length + step;
            InEdges edges = topology_.in_edges(at_[p]);
            if (edges.degree == 0) edges = topology_.in_edges(nodes_[i]);  // a dead end: the path starts again
            next_[p] = edges.degree == 0 ? -1 : edges.begin + static_cast<int64_t>(bounded(draw(keys_[i], 2 * number + 1), edges.degree));
            if (next_[p] >= 0) __builtin_prefetch(topology_.indices() + next_[p]);
        }
        for (int64_t p = 0; p < paths; ++p) {
            Id node = nodes_[p / walks_.paths];
            if (next_[p] >= 0) {
                node = topology_.indices()[next_[p]];
                if (node < 0 || node >= topology_.num_nodes()) topology_.refuse(node);
            }
            at_[p] = node;
            visits_[p * walks_.length + step] = node;
        }
    }

    // found_ = the distinct nodes among the visits, in the order of their first ones.
    void count(const Id* visits, Id own) {
        found_.clear();
        used_.clear();
        const size_t mask = table_.size() - 1;
        for (int64_t n = 0; n < walks_.visits(); ++n) {
            if (visits[n] == own) continue;
            size_t place = mix(static_cast<uint64_t>(visits[n])) & mask;
            while (table_[place] >= 0 && visits[found_[table_[place]].first] != visits[n]) place = (place + 1) & mask;
            if (table_[place] >= 0) {
                ++found_[table_[place]].count;
                continue;
            }
            table_[place] = static_cast<int32_t>(found_.size());
            used_.push_back(place);
            found_.push_back({1, static_cast<int32_t>(n)});
        }
        for (const size_t place : used_) table_[place] = -1;
    }

    const Topology<Id>& topology_;
    Walks walks_;
    const Id* nodes_ = nullptr;
    std::vector<uint64_t> keys_;
    std::vector<Id> at_, visits_;
    std::vector<int64_t> next_;
    std::vector<int32_t> table_;  // place -> number in found_
    std::vector<size_t> used_;
    std::vector<Visited> found_;
};

}  // namespace graphmill
