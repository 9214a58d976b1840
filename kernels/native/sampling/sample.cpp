// Fused neighbour sampling: FastSample, section 3.2, Algorithm 1. kernels/sampling/sample.py tells the idea and states the rule.
#include "sampling/sampling.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "sampling/local_ids.h"
#include "sampling/sampled_row.h"
#include "sampling/topology.h"
#include "sampling/two_step.h"
#include "sampling/waiting.h"

namespace graphmill {
namespace {

[[noreturn]] void refuse_repeated(int64_t seed, int64_t first, int64_t second) {
    throw InputError("seed " + std::to_string(seed) + " stands at positions " + std::to_string(first) + " and " + std::to_string(second),
                     "give every seed once");
}

template <class Id, class Map>
class MapSampler final : public Sampler<Id> {
  public:
    explicit MapSampler(const SamplerSetup<Id>& setup)
        : topology_(setup.indptr, setup.indices), local_ids_(topology_.num_nodes()), fanouts_(setup.fanouts), replace_(setup.replace),
          threads_(setup.threads), fused_(setup.fused),
          tables_{reinterpret_cast<const AliasEntry*>(pointer(setup.table)), pointer(setup.support)}, walks_(setup.walks),
          nodes_(topology_.num_nodes() + 1), by_relation_(setup.by_relation) {
        by_relation_.resize(fanouts_.size());
        if (setup.edge_types) topology_.set_relations(*setup.edge_types);
        topology_.check();
    }

    SampledBatch<Id> sample(uint64_t batch_key, Array<const Id> seeds, Transposes transposes, bool positions) override {
        if (busy_.exchange(true)) {
            throw InputError("two threads use one Sampler at the same time", "make one Sampler for each thread");
        }
        struct Unlock {
            std::atomic<bool>& flag;
            ~Unlock() { flag = false; }
        } unlock{busy_};
        std::vector<SampledBlock> made(fanouts_.size());
        name_seeds(seeds.data(), seeds.size());
        for (int64_t layer = static_cast<int64_t>(fanouts_.size()) - 1; layer >= 0; --layer) {
            const size_t place = fanouts_.size() - 1 - layer;
            const int64_t fanout = fanouts_[place];
            const uint64_t layer_key = absorb(batch_key, layer);
            if (read_ahead_) topology_.ask_for(nodes_.data(), count_);
            made[layer] = fused_ ? sample_block(layer_key, fanout, by_relation_[place], positions)
                                 : sample_in_two_steps(layer_key, fanout, positions);
            if (transposes == Transposes::All || (transposes == Transposes::Hidden && layer > 0)) add_transpose(made[layer]);
        }
        Buffer<Id> src_ids(count_);
        most_nodes_ = std::max(most_nodes_, count_);
        parallel_for(count_, 1 << 16, threads_, [&](int64_t begin, int64_t end) {
            std::memcpy(src_ids.data() + begin, nodes_.data() + begin, (end - begin) * sizeof(Id));
        });
        return {std::move(src_ids), std::move(made)};
    }

    void read_ahead() override { read_ahead_ = true; }

    int64_t scratch_bytes() const override { return local_ids_.num_bytes() + most_nodes_ * static_cast<int64_t>(sizeof(Id)); }

    bool counts_visits() const override { return Map::COUNTS_VISITS; }

    void take_visits(Array<uint32_t> counts) override { local_ids_.take_visits(counts.data()); }

  private:
    static constexpr int64_t SHORTEST = 128, LONGEST = 1024;  // rows that one thread takes: a pipeline is filled for each piece
    static constexpr int64_t LONG_PIECE = 1 << 14;  // edges that one thread takes of rows that are taken whole
    static constexpr int64_t AHEAD = 24;  // edges between the prefetch of a node's entry and its use
    static constexpr int64_t NAMED_AT_ONCE = 1 << 14;  // edges between two looks at whether the map has space
    static constexpr int64_t NEAR = SampledRow<Id>::NEAR;  // entries of a row's nodes that are prefetched a step ahead
    static constexpr int64_t LAG = SampledRow<Id>::LAG;

    // Starts a new stamp, so that every entry of the map is stale, and gives the seeds the first local ids. The front door has
    // checked that they are in range.
    void name_seeds(const Id* seeds, int64_t num_seeds) {
        if (num_seeds >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        local_ids_.begin_batch();
        local_ids_.reserve(num_seeds, nodes_.data(), 0);
        const auto names = local_ids_.view();
        for (int64_t i = 0; i < num_seeds; ++i) {
            uint64_t& entry = names.entry(seeds[i]);
            if (names.has_name(entry)) refuse_repeated(seeds[i], names.local_id(entry), i);
            entry = names.named(entry, seeds[i], i);
            nodes_[i] = seeds[i];
        }
        count_ = num_seeds;
    }

    // The nodes that have a local id so far are the destinations; new sources in the rows that are picked for them get the next ones.
    // With numbers for each relation `fanout` is the most edges of a row, -1 if rows have no such bound.
    SampledBlock sample_block(uint64_t layer_key, int64_t fanout, const std::vector<int64_t>& by_relation, bool positions) {
        SampledBlock block;
        block.key = layer_key;
        block.num_dst = count_;
        if (!by_relation.empty()) {
            block.by_relation = by_relation.data();
            block.num_relations = static_cast<int64_t>(by_relation.size());
        }
        block.replace = replace_ && (fanout >= 0 || block.by_relation);  // all neighbours are all, once
        const int64_t space = find_space(block, fanout);
        block.start = Buffer<int32_t>(block.num_dst);
        block.end = Buffer<int32_t>(block.num_dst);
        block.indices = Buffer<int32_t>(space);
        if (positions) block.position = Buffer<int64_t>(space);
        if (shared()) block.share = Buffer<float>(space);
        const int64_t num_edges = pick_block(block, fanout);
        block.indices.shrink(num_edges);
        block.position.shrink(num_edges);
        block.share.shrink(num_edges);
        if (count_ > LOCAL_IDS) throw InputError("a block would have more than 2147483647 sources", SMALLER);
        block.num_src = count_;
        return block;
    }

    // Whether edges have shares of their own in the mean of their row.
    bool shared() const { return tables_.entries || walks_.paths > 0; }

    int64_t pick_block(SampledBlock& block, int64_t fanout) {
        if (fanout < 0 && threads_ > 1 && !shared() && !block.by_relation) return pick_whole(block);
        const int64_t piece = std::clamp(block.num_dst / (8 * threads_), SHORTEST, LONGEST);
        if (!shared() && (threads_ == 1 || block.num_dst <= piece)) return pick_and_name(block, fanout);
        return pick_pieces(block, fanout, piece);
    }

    // Returns no fewer edges than the block will have; memory that is not used is never touched. Rows differ, so that without replacement
    // an edge is taken once at most. Lengths are added up beforehand only where this does not keep to local ids.
    int64_t find_space(const SampledBlock& block, int64_t fanout) const {
        if (walks_.paths > 0) return find_walked_space(block, fanout);
        const int64_t most = block.replace ? block.num_dst * fanout : std::min(block.num_dst * fanout, topology_.num_edges());
        if (fanout >= 0 && most <= LOCAL_IDS) return most;
        return count_edges(topology_, nodes_.data(), block, fanout, threads_);
    }

    int64_t find_walked_space(const SampledBlock& block, int64_t fanout) const {
        const int64_t most = block.num_dst * walks_.most(fanout);
        if (most > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
        return most;
    }

    // Rows that are taken whole: their places are known before, so threads share them by edges, and a single long row, too.
    int64_t pick_whole(SampledBlock& block) {
        int64_t num_edges = 0;
        for (int64_t i = 0; i < block.num_dst; ++i) {
            if (i + AHEAD < block.num_dst) topology_.prefetch(nodes_[i + AHEAD]);
            block.start[i] = static_cast<int32_t>(num_edges);
            num_edges += topology_.in_edges(nodes_[i]).degree;
            block.end[i] = static_cast<int32_t>(num_edges);
        }
        std::vector<Waiting<Id>> waiting(num_edges / LONG_PIECE + 1);
        const auto read = [&](int64_t low, int64_t high) {
            read_whole(topology_, block, nodes_.data(), low, high, waiting[low / LONG_PIECE]);
        };
        const auto name = [&](int64_t low, int64_t high) {
            rename(std::move(waiting[low / LONG_PIECE]), high - low, block, low);
        };
        ordered_for(num_edges, LONG_PIECE, threads_, read, name);
        return num_edges;
    }

    // Gives the edges of a piece their local ids, at their place in the block.
    void rename(const Waiting<Id> edges, int64_t count, SampledBlock& block, int64_t first) {
        relabel<0>(edges.ids.data(), count, block.indices.data() + first);
        if (count && block.position.data()) std::memcpy(block.position.data() + first, edges.position.data(), count * sizeof(int64_t));
        if (count && block.share.data()) std::memcpy(block.share.data() + first, edges.share.data(), count * sizeof(float));
    }

    int64_t pick_pieces(SampledBlock& block, int64_t fanout, int64_t piece) {
        std::vector<Waiting<Id>> waiting(block.num_dst / piece + 1);
        int64_t num_edges = 0;
        const auto pick = [&](int64_t begin, int64_t end) {
            Waiting<Id>& edges = waiting[begin / piece];
            edges.grow((end - begin) * std::clamp<int64_t>(fanout, 1, NEAR), block);  // mostly enough
            pick_piece(block, fanout, begin, end, edges);
        };
        const auto name = [&](int64_t begin, int64_t end) {
            const int64_t count = block.end[end - 1];
            rename(std::move(waiting[begin / piece]), count, block, num_edges);
            for (int64_t i = begin; i < end; ++i) {
                block.start[i] += static_cast<int32_t>(num_edges);
                block.end[i] += static_cast<int32_t>(num_edges);
            }
            num_edges += count;
        };
        ordered_for(block.num_dst, piece, threads_, pick, name);
        return num_edges;
    }

    void pick_piece(SampledBlock& block, int64_t fanout, int64_t begin, int64_t end, Waiting<Id>& edges) {
        if (walks_.paths > 0) pick_visited(topology_, walks_, block, fanout, nodes_.data(), begin, end, edges);
        else if (tables_.entries) pick_weighted(topology_, tables_, block, fanout, nodes_.data(), begin, end, edges);
        else pick_uniform(topology_, block, fanout, nodes_.data(), begin, end, edges);
    }

    // The ablation: see TwoStepSampler.
    SampledBlock sample_in_two_steps(uint64_t layer_key, int64_t fanout, bool positions) {
        SampledBlock block;
        block.num_dst = count_;
        const auto edges = sample_edges(topology_.indptr(), topology_.indices(), nodes_.data(), count_, fanout, replace_ && fanout >= 0,
                                        layer_key, positions, threads_);
        local_ids_.reserve(edges.src.size(), nodes_.data(), count_);
        const Buffer<int32_t> row = rename_ends(edges.dst), column = rename_ends(edges.src);
        edges_to_block(row, column, edges.position, block);
        block.num_src = count_;
        return block;
    }

    // Returns the local ids of one side of an edge list; a new node gets the next one.
    Buffer<int32_t> rename_ends(const Buffer<Id>& ends) {
        Buffer<int32_t> local_ids(ends.size());
        const auto names = local_ids_.view();
        for (int64_t e = 0; e < ends.size(); ++e) {
            if (e + AHEAD < ends.size()) names.prefetch(ends[e + AHEAD]);
            const Id node = ends[e];
            if (node < 0 || node >= topology_.num_nodes()) topology_.refuse(node);
            uint64_t& entry = names.entry(node);
            if (!names.has_name(entry)) {
                entry = names.named(entry, node, count_);
                nodes_[count_++] = node;
            }
            local_ids[e] = names.local_id(entry);
        }
        return local_ids;
    }

    // Picks all rows and names their edges at once.
    int64_t pick_and_name(SampledBlock& block, int64_t fanout) {
        std::vector<Id> ids[LAG];  // of rows that are named next
        const auto read = [&](int64_t i, const SampledRow<Id>& row) {
            const int64_t taken = row.taken();
            std::vector<Id>& own = ids[i % LAG];
            if (own.size() < static_cast<size_t>(taken)) own.resize(taken);
            row.read(topology_, own.data(), block.position.data() ? block.position.data() + block.start[i] : nullptr);
            const auto names = local_ids_.view();
            for (int64_t j = 0; j < std::min(taken, NEAR); ++j) names.prefetch(own[j]);
        };
        const auto name = [&](int64_t i) {
            const int64_t first = block.start[i];
            relabel<NEAR>(ids[i % LAG].data(), block.end[i] - first, block.indices.data() + first);
        };
        return pick_rows(topology_, block, fanout, nodes_.data(), 0, block.num_dst, read, name);
    }

    static void add_transpose(SampledBlock& block) {
        block.transpose = build_transpose(block.num_dst, block.num_src, block.start.data(), block.end.data(),
                                          block.indices.data());
    }

    // The second loop of Algorithm 1. It is called in edge order, so new sources have the same order
    // for any team. Entries from number READY on are prefetched here; who calls has asked for those before.
    template <int64_t READY>
    void relabel(const Id* ids, int64_t num_edges, int32_t* local_ids) {
        const int64_t first = std::min(num_edges, NAMED_AT_ONCE);
        relabel_some<READY>(ids, first, local_ids);
        for (int64_t e = first; e < num_edges; e += NAMED_AT_ONCE) {
            relabel_some<0>(ids + e, std::min(num_edges - e, NAMED_AT_ONCE), local_ids + e);
        }
    }

    // Whether a node is new is not to be guessed, so there is no branch: an old one is written again.
    template <int64_t READY>
    void relabel_some(const Id* ids, int64_t num_edges, int32_t* local_ids) {
        local_ids_.reserve(num_edges, nodes_.data(), count_);
        const auto names = local_ids_.view();
        Id* nodes = nodes_.data();
        uint64_t count = count_;
        for (int64_t e = 0; e < num_edges; ++e) {
            if (READY == 0 || e + AHEAD >= READY) {
                if (e + AHEAD < num_edges) names.prefetch(ids[e + AHEAD]);
            }
            const Id node = ids[e];
            uint64_t& entry = names.entry(node);
            const bool known = names.has_name(entry);
            const uint64_t now = known ? entry : names.named(entry, node, static_cast<int64_t>(count));
            entry = now;
            nodes[count] = node;
            count += !known;
            local_ids[e] = names.local_id(now);
        }
        count_ = static_cast<int64_t>(count);
    }

    Topology<Id> topology_;
    Map local_ids_;
    std::vector<int64_t> fanouts_;
    bool replace_;
    int threads_;
    bool fused_;
    bool read_ahead_ = false;  // whether the pages of a layer's rows are asked for before they are read
    AliasTables tables_;  // where neighbours have weights
    Walks walks_;         // where they are visited by walks
    std::atomic<bool> busy_{false};
    int64_t count_ = 0;       // nodes that have a local id in this batch
    int64_t most_nodes_ = 0;  // of any batch
    ZeroedArray<Id> nodes_;   // their global ids; every block's sources are a prefix of it. It never moves: other threads read it
    std::vector<std::vector<int64_t>> by_relation_;  // of each fan-out, the numbers of each relation; empty where they are alike
};

}  // namespace

template <class Id>
std::unique_ptr<Sampler<Id>> make_sampler(const SamplerSetup<Id>& setup, bool hashed) {
    if (hashed) return std::make_unique<MapSampler<Id, HashedMap>>(setup);
    return std::make_unique<MapSampler<Id, DirectMap>>(setup);
}

template decltype(make_sampler<int32_t>) make_sampler<int32_t>;
template decltype(make_sampler<int64_t>) make_sampler<int64_t>;

}  // namespace graphmill
