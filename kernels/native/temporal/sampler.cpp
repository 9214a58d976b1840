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
          rows_(topology_, setup.edge_times.data(), pointer(setup.edge_types), setup.recent, setup.window,
                {reinterpret_cast<const AliasEntry*>(pointer(setup.table)), pointer(setup.support)}, EmptyRow(setup.empty)),
          fanouts_(setup.fanouts), by_relation_(setup.by_relation), replace_(setup.replace) {
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
            if (read_ahead_) topology_.ask_for(nodes_.data(), count_);
            made[layer] = sample_block(absorb(batch_key, layer), fanouts_.size() - 1 - layer, positions);
            if (transposes == Transposes::All || (transposes == Transposes::Hidden && layer > 0)) {
                SampledBlock& block = made[layer];
                block.transpose =
                    build_transpose(block.num_dst, block.num_src, block.start.data(), block.end.data(), block.indices.data());
            }
        }
        Buffer<Id> src_ids(count_);
        Buffer<double> src_times(count_);
        for (int64_t i = 0; i < count_; ++i) {
            src_ids[i] = nodes_[i];
            src_times[i] = time_of(i);
        }
        return {std::move(src_ids), std::move(src_times), std::move(made)};
    }

    void read_ahead() override { read_ahead_ = true; }

    int64_t scratch_bytes() const override {
        return map_.num_bytes() + static_cast<int64_t>(nodes_.capacity() * sizeof(Id) + ranks_.capacity() * sizeof(uint32_t));
    }

  private:
    static constexpr int64_t TILE = 32;  // rows whose times are searched together
    static constexpr int64_t LAG = 8;    // rows between two steps: their reads are in flight together

    // The edges that a row takes, on their way.
    struct Taken {
        std::vector<int64_t> places;  // in the topology
        std::vector<float> shares;    // where neighbours have weights
        std::vector<uint64_t> pairs;  // of their sources
        std::vector<Id> ids;
    };

    double time_of(int64_t i) const { return times_[ranks_[i]]; }

    // A pair is the rank of its time among those of the seeds, times N, plus the node: all pairs of a batch have times of seeds.
    uint64_t pair_of(Id node, uint64_t rank) const {
        return rank * static_cast<uint64_t>(topology_.num_nodes()) + static_cast<uint64_t>(node);
    }

    // Makes space for `more` pairs in the map and in the lists.
    void reserve(int64_t more) {
        if (count_ + more > LOCAL_IDS) throw InputError("a block would have more than 2147483647 sources", SMALLER);
        map_.reserve(more, count_, [&](int64_t i) { return pair_of(nodes_[i], ranks_[i]); });
        const size_t needed = static_cast<size_t>(count_ + more + 1);  // a pair that has a name is written behind the last one
        if (nodes_.size() >= needed) return;
        nodes_.resize(std::max(needed, 2 * nodes_.size()));
        ranks_.resize(nodes_.size());
    }

    // The local id of a pair, for which there is space. Whether it is new is not to be guessed, so there is no branch.
    int32_t name(uint64_t pair, Id node, uint32_t rank) {
        const int32_t local_id = map_.name(pair, static_cast<int32_t>(count_));
        nodes_[count_] = node;
        ranks_[count_] = rank;
        count_ += local_id == count_;
        return local_id;
    }

    void name_seeds(Array<const Id> seeds, Array<const double> times) {
        if (seeds.size() >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        times_.assign(times.data(), times.data() + times.size());
        std::sort(times_.begin(), times_.end());
        times_.erase(std::unique(times_.begin(), times_.end()), times_.end());
        count_ = 0;
        map_.begin_batch();
        reserve(seeds.size());
        for (int64_t i = 0; i < seeds.size(); ++i) {
            const auto rank = static_cast<uint32_t>(std::lower_bound(times_.begin(), times_.end(), times[i]) - times_.begin());
            const int32_t found = name(pair_of(seeds[i], rank), seeds[i], rank);
            if (found == i) continue;
            throw InputError("seed " + std::to_string(seeds[i]) + " stands at positions " + std::to_string(found) + " and " +
                                 std::to_string(i) + " with one time",
                             "give every pair of a node and a time once");
        }
    }

    // The pairs that have a local id so far are the destinations; new ones in their rows get the next ones.
    SampledBlock sample_block(uint64_t layer_key, size_t place, bool positions) {
        SampledBlock block;
        const int64_t fanout = fanouts_[place];
        const std::vector<int64_t>& by_relation = by_relation_[place];
        block.key = layer_key;
        block.num_dst = count_;
        if (!by_relation.empty()) {
            block.by_relation = by_relation.data();
            block.num_relations = static_cast<int64_t>(by_relation.size());
        }
        block.replace = replace_ && (fanout >= 0 || block.by_relation);  // all neighbours are all, once
        // What is not used of the space is not touched, and given back.
        const int64_t most = fanout >= 0 && block.num_dst * fanout <= LOCAL_IDS ? block.num_dst * fanout : 0;
        block.start = Buffer<int32_t>(block.num_dst);
        block.end = Buffer<int32_t>(block.num_dst);
        block.indices = Buffer<int32_t>(most);
        if (positions) block.position = Buffer<int64_t>(most);
        if (rows_.has_weights()) block.share = Buffer<float>(most);
        for (int64_t i = 0; i < std::min(2 * TILE, block.num_dst); ++i) topology_.prefetch(nodes_[i]);
        for (int64_t i = 0; i < std::min(TILE, block.num_dst); ++i) rows_.prefetch(nodes_[i]);
        int64_t num_edges = 0;
        for (int64_t tile = 0; tile < block.num_dst; tile += TILE) {
            num_edges = sample_tile(block, fanout, tile, std::min(tile + TILE, block.num_dst), num_edges);
        }
        for (int64_t i = block.num_dst; i < block.num_dst + 2 * LAG; ++i) advance(block, i);
        block.indices.shrink(num_edges);
        block.position.shrink(num_edges);
        block.share.shrink(num_edges);
        block.num_src = count_;
        return block;
    }

    // Takes edges of the rows of a tile. Returns the number of edges so far.
    int64_t sample_tile(SampledBlock& block, int64_t fanout, int64_t begin, int64_t end, int64_t num_edges) {
        for (int64_t i = end + TILE; i < std::min(end + 2 * TILE, block.num_dst); ++i) topology_.prefetch(nodes_[i]);
        for (int64_t i = end; i < std::min(end + TILE, block.num_dst); ++i) rows_.prefetch(nodes_[i]);
        rows_.find(block, fanout, nodes_.data(), begin, end, [&](int64_t i) { return time_of(i); });
        for (int64_t i = begin; i < end; ++i) {
            Taken& row = taken_[i % TAKEN];
            row.places.clear();
            row.shares.clear();
            block.start[i] = static_cast<int32_t>(num_edges);
            num_edges += rows_.take(block, fanout, i - begin, nodes_[i], time_of(i), row.places, row.shares);
            if (num_edges > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
            block.end[i] = static_cast<int32_t>(num_edges);
            for (const int64_t place : row.places) __builtin_prefetch(topology_.indices() + place);
            advance(block, i);
        }
        return num_edges;
    }

    // When the edges of row i are taken: reads the sources of a row LAG rows behind, and names those of one as far behind that.
    void advance(SampledBlock& block, int64_t i) {
        if (i >= 2 * LAG) name_row(block, i - 2 * LAG);
        if (i >= LAG && i - LAG < block.num_dst) read_row(i - LAG);
    }

    // Reads the sources of a row's edges, and asks for the slots of their pairs.
    void read_row(int64_t i) {
        Taken& row = taken_[i % TAKEN];
        const int64_t count = static_cast<int64_t>(row.places.size());
        if (static_cast<int64_t>(row.ids.size()) < count) {
            row.ids.resize(count);
            row.pairs.resize(count);
        }
        const uint64_t rank = ranks_[i];
        for (int64_t j = 0; j < count; ++j) {
            const Id node = topology_.indices()[row.places[j]];
            if (node < 0 || node >= topology_.num_nodes()) topology_.refuse(node);
            row.ids[j] = node;
            row.pairs[j] = pair_of(node, rank);
            map_.prefetch(row.pairs[j]);
        }
    }

    // Gives the edges of a row their local ids, and writes what else the block keeps of them.
    void name_row(SampledBlock& block, int64_t i) {
        const Taken& row = taken_[i % TAKEN];
        const int64_t first = block.start[i], count = block.end[i] - first;
        if (count == 0) return;
        reserve(count);
        block.indices.grow(first + count);
        const uint32_t rank = ranks_[i];
        for (int64_t j = 0; j < count; ++j) block.indices[first + j] = name(row.pairs[j], row.ids[j], rank);
        if (block.position.data()) {
            block.position.grow(first + count);
            std::memcpy(block.position.data() + first, row.places.data(), count * sizeof(int64_t));
        }
        if (block.share.data()) {
            block.share.grow(first + count);
            std::memcpy(block.share.data() + first, row.shares.data(), count * sizeof(float));
        }
    }

    Topology<Id> topology_;
    RowsAsOf<Id> rows_;
    std::vector<int64_t> fanouts_;
    std::vector<std::vector<int64_t>> by_relation_;  // of each fan-out, the numbers of each relation; empty where they are alike
    bool replace_, read_ahead_ = false;
    std::atomic<bool> busy_{false};
    PairMap map_;
    std::vector<double> times_;  // of the seeds, each once, ascending
    int64_t count_ = 0;          // pairs that have a local id in this batch; every block's sources are a prefix of them
    std::vector<Id> nodes_;      // of these pairs; the lists have space behind them
    std::vector<uint32_t> ranks_;
    static constexpr int64_t TAKEN = 2 * LAG + 1;
    Taken taken_[TAKEN];  // row i at i mod TAKEN, until it is named
};

}  // namespace

template <class Id>
std::unique_ptr<TemporalSampler<Id>> make_temporal_sampler(const TemporalSetup<Id>& setup) {
    return std::make_unique<PairSampler<Id>>(setup);
}

template decltype(make_temporal_sampler<int32_t>) make_temporal_sampler<int32_t>;
template decltype(make_temporal_sampler<int64_t>) make_temporal_sampler<int64_t>;

}  // namespace graphmill
