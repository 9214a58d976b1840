// Samples neighbours as of the times of seeds. kernels/temporal/sampler.py tells the idea and states the rule.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/rng.h"
#include "temporal/pair_map.h"
#include "temporal/row_as_of.h"
#include "temporal/temporal.h"

namespace graphmill {
namespace {

template <class Id>
class PairSampler final : public TemporalSampler<Id> {
  public:
    explicit PairSampler(const TemporalSetup<Id>& setup)
        : topology_(setup.indptr, setup.indices),
          row_(topology_, setup.edge_times.data(), pointer(setup.edge_types), setup.recent, setup.window), fanouts_(setup.fanouts),
          by_relation_(setup.by_relation), replace_(setup.replace) {
        by_relation_.resize(fanouts_.size());
        topology_.check();
    }

    TimedBatch<Id> sample(uint64_t batch_key, Array<const Id> seeds, Array<const double> times, Transposes transposes,
                          bool positions) override {
        if (busy_.exchange(true)) {
            throw InputError("two threads use one Sampler at the same time", "make one Sampler for each thread");
        }
        struct Unlock {
            std::atomic<bool>& flag;
            ~Unlock() { flag = false; }
        } unlock{busy_};
        name_seeds(seeds, times);
        std::vector<SampledBlock> made(fanouts_.size());
        for (int64_t layer = static_cast<int64_t>(fanouts_.size()) - 1; layer >= 0; --layer) {
            if (read_ahead_) topology_.ask_for(nodes_.data(), count());
            made[layer] = sample_block(absorb(batch_key, layer), fanouts_.size() - 1 - layer, positions);
            if (transposes == Transposes::All || (transposes == Transposes::Hidden && layer > 0)) {
                SampledBlock& block = made[layer];
                block.transpose =
                    build_transpose(block.num_dst, block.num_src, block.start.data(), block.end.data(), block.indices.data());
            }
        }
        Buffer<Id> src_ids(count());
        Buffer<double> src_times(count());
        for (int64_t i = 0; i < count(); ++i) {
            src_ids[i] = nodes_[i];
            src_times[i] = time_of(i);
        }
        return {std::move(src_ids), std::move(src_times), std::move(made)};
    }

    void read_ahead() override { read_ahead_ = true; }

    int64_t scratch_bytes() const override {
        return map_.num_bytes() + static_cast<int64_t>(nodes_.capacity() * sizeof(Id) + pairs_.capacity() * sizeof(uint64_t));
    }

  private:
    static constexpr int64_t TILE = 16;  // rows whose reads are in flight together

    int64_t count() const { return static_cast<int64_t>(nodes_.size()); }

    // A pair is the rank of its time among those of the seeds, times N, plus the node: all pairs of a batch have times of seeds.
    uint64_t rank_of(int64_t i) const { return pairs_[i] / static_cast<uint64_t>(topology_.num_nodes()); }
    double time_of(int64_t i) const { return times_[rank_of(i)]; }

    void name_seeds(Array<const Id> seeds, Array<const double> times) {
        if (seeds.size() >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        times_.assign(times.data(), times.data() + times.size());
        std::sort(times_.begin(), times_.end());
        times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
        nodes_.clear();
        pairs_.clear();
        map_.begin_batch();
        map_.reserve(seeds.size(), pairs_, 0);
        for (int64_t i = 0; i < seeds.size(); ++i) {
            const uint64_t rank = std::lower_bound(times_.begin(), times_.end(), times[i]) - times_.begin();
            const int32_t found = name(seeds[i], rank);
            if (found == i) continue;
            throw InputError("seed " + std::to_string(seeds[i]) + " stands at positions " + std::to_string(found) + " and " +
                                 std::to_string(i) + " with one time",
                             "give every pair of a node and a time once");
        }
    }

    int32_t name(Id node, uint64_t rank) {
        const uint64_t pair = pair_of(node, rank);
        const int32_t local_id = map_.name(pair, static_cast<int32_t>(count()));
        if (local_id == count()) {
            nodes_.push_back(node);
            pairs_.push_back(pair);
        }
        return local_id;
    }

    uint64_t pair_of(Id node, uint64_t rank) const {
        return rank * static_cast<uint64_t>(topology_.num_nodes()) + static_cast<uint64_t>(node);
    }

    // The pairs that have a local id so far are the destinations; new ones in their rows get the next ones.
    SampledBlock sample_block(uint64_t layer_key, size_t place, bool positions) {
        SampledBlock block;
        const int64_t fanout = fanouts_[place];
        const std::vector<int64_t>& by_relation = by_relation_[place];
        block.key = layer_key;
        block.num_dst = count();
        if (!by_relation.empty()) {
            block.by_relation = by_relation.data();
            block.num_relations = static_cast<int64_t>(by_relation.size());
        }
        block.replace = replace_ && (fanout >= 0 || block.by_relation);  // all neighbours are all, once
        block.start = Buffer<int32_t>(block.num_dst);
        block.end = Buffer<int32_t>(block.num_dst);
        block.indices = Buffer<int32_t>(0);
        if (positions) block.position = Buffer<int64_t>(0);
        int64_t num_edges = 0;
        for (int64_t tile = 0; tile < block.num_dst; tile += TILE) {
            num_edges = sample_tile(block, fanout, tile, std::min(tile + TILE, block.num_dst), num_edges);
        }
        block.indices.shrink(num_edges);
        block.position.shrink(num_edges);
        block.num_src = count();
        return block;
    }

    // Each pass over the rows of a tile asks for what the next pass reads. Returns the number of edges so far.
    int64_t sample_tile(SampledBlock& block, int64_t fanout, int64_t begin, int64_t end, int64_t num_edges) {
        for (int64_t i = end; i < std::min(end + TILE, block.num_dst); ++i) topology_.prefetch(nodes_[i]);
        for (int64_t i = begin; i < end; ++i) row_.prefetch(nodes_[i]);
        places_.clear();
        for (int64_t i = begin; i < end; ++i) {
            row_.find(nodes_[i], time_of(i));
            block.start[i] = static_cast<int32_t>(num_edges);
            num_edges += row_.take(block, fanout, nodes_[i], places_);
            if (num_edges > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
            block.end[i] = static_cast<int32_t>(num_edges);
        }
        const int64_t first = num_edges - static_cast<int64_t>(places_.size());
        for (const int64_t place : places_) __builtin_prefetch(topology_.indices() + place);
        map_.reserve(static_cast<int64_t>(places_.size()), pairs_, count());
        if (count() + static_cast<int64_t>(places_.size()) > LOCAL_IDS) {
            throw InputError("a block would have more than 2147483647 sources", SMALLER);
        }
        block.indices.grow(num_edges);
        if (block.position.data()) {
            block.position.grow(num_edges);
            if (!places_.empty()) std::memcpy(block.position.data() + first, places_.data(), places_.size() * sizeof(int64_t));
        }
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t rank = rank_of(i);
            for (int64_t e = block.start[i]; e < block.end[i]; ++e) {
                const Id node = topology_.indices()[places_[e - first]];
                if (node < 0 || node >= topology_.num_nodes()) topology_.refuse(node);
                map_.prefetch(pair_of(node, rank));
            }
        }
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t rank = rank_of(i);
            for (int64_t e = block.start[i]; e < block.end[i]; ++e) {
                block.indices[e] = name(topology_.indices()[places_[e - first]], rank);
            }
        }
        return num_edges;
    }

    Topology<Id> topology_;
    RowAsOf<Id> row_;
    std::vector<int64_t> fanouts_;
    std::vector<std::vector<int64_t>> by_relation_;  // of each fan-out, the numbers of each relation; empty where they are alike
    bool replace_, read_ahead_ = false;
    std::atomic<bool> busy_{false};
    PairMap map_;
    std::vector<double> times_;    // of the seeds, each once, ascending
    std::vector<Id> nodes_;        // of the pairs that have a local id; every block's sources are a prefix of it
    std::vector<uint64_t> pairs_;  // the same pairs as numbers
    std::vector<int64_t> places_;  // of the edges of a tile in the topology
};

}  // namespace

template <class Id>
std::unique_ptr<TemporalSampler<Id>> make_temporal_sampler(const TemporalSetup<Id>& setup) {
    return std::make_unique<PairSampler<Id>>(setup);
}

template decltype(make_temporal_sampler<int32_t>) make_temporal_sampler<int32_t>;
template decltype(make_temporal_sampler<int64_t>) make_temporal_sampler<int64_t>;

}  // namespace graphmill
