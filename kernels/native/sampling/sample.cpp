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

template <class Id, class Map>
class MapSampler final : public Sampler<Id>, private Naming<Id, Map> {
  public:
    explicit MapSampler(const SamplerSetup<Id>& setup)
        : Naming<Id, Map>(setup.indptr.size() - 1), topology_(setup.indptr, setup.indices), fanouts_(setup.fanouts), replace_(setup.replace),
          threads_(setup.threads), fused_(setup.fused),
          tables_{reinterpret_cast<const AliasEntry*>(pointer(setup.table)), pointer(setup.support)}, walks_(setup.walks),
          by_relation_(setup.by_relation) {
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
    using Names = Naming<Id, Map>;
    using Names::AHEAD, Names::count_, Names::local_ids_, Names::nodes_, Names::name_seeds;
    static constexpr int64_t SHORTEST = 128, LONGEST = 1024;  // rows that one thread takes: a pipeline is filled for each piece
    static constexpr int64_t LONG_PIECE = 1 << 14;  // edges that one thread takes of rows that are taken whole
    static constexpr int64_t NEAR = SampledRow<Id>::NEAR;  // entries of a row's nodes that are prefetched a step ahead
    static constexpr int64_t LAG = SampledRow<Id>::LAG;

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
        this->require_local_ids();
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
        this->template relabel<0>(edges.ids.data(), count, block.indices.data() + first);
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
            this->template relabel<NEAR>(ids[i % LAG].data(), block.end[i] - first, block.indices.data() + first);
        };
        return pick_rows(topology_, block, fanout, nodes_.data(), 0, block.num_dst, read, name);
    }

    static void add_transpose(SampledBlock& block) {
        block.transpose = build_transpose(block.num_dst, block.num_src, block.start.data(), block.end.data(),
                                          block.indices.data());
    }

    Topology<Id> topology_;
    std::vector<int64_t> fanouts_;
    bool replace_;
    int threads_;
    bool fused_;
    bool read_ahead_ = false;  // whether the pages of a layer's rows are asked for before they are read
    AliasTables tables_;  // where neighbours have weights
    Walks walks_;         // where they are visited by walks
    std::atomic<bool> busy_{false};
    int64_t most_nodes_ = 0;  // of any batch
    std::vector<std::vector<int64_t>> by_relation_;  // of each fan-out, the numbers of each relation; empty where they are alike
};

// Names what was drawn elsewhere or before; kernels/sampling/sample_layer.py tells of it.
template <class Id>
class HashedRenamer final : public Renamer<Id>, private Naming<Id, HashedMap> {
  public:
    explicit HashedRenamer(int64_t num_nodes) : Names(num_nodes), num_nodes_(num_nodes) {}

    void begin(Array<const Id> seeds) override { this->name_seeds(seeds.data(), seeds.size()); }

    std::pair<Buffer<int32_t>, Buffer<int64_t>> name(Optional<const int64_t> order, Array<const int32_t> counts,
                                                     Array<const Id> sources, Array<int32_t> end) override {
        const int64_t num_rows = counts.size(), num_edges = sources.size();
        const auto row_of = [&](int64_t j) { return order ? (*order)[j] : j; };
        check(order, counts, sources, end);
        // The ends hold lengths first, then the place of each row's first edge; both follow the order of the rows.
        for (int64_t j = 0; j < num_rows; ++j) end[row_of(j)] = counts[j];
        int32_t total = 0;
        for (int64_t i = 0; i < num_rows; ++i) {
            const int32_t length = end[i];
            end[i] = total;
            total += length;
        }
        Buffer<int64_t> edge(num_edges);
        Buffer<Id> ids(num_edges);
        for (int64_t j = 0, e = 0; j < num_rows; ++j) {
            int32_t& place = end[row_of(j)];
            std::memcpy(ids.data() + place, sources.data() + e, counts[j] * sizeof(Id));
            for (int32_t k = 0; k < counts[j]; ++k) edge[place++] = e++;
        }
        Buffer<int32_t> indices(num_edges);
        this->template relabel<0>(ids.data(), num_edges, indices.data());
        this->require_local_ids();
        return {std::move(indices), std::move(edge)};
    }

    Buffer<Id> nodes() const override {
        Buffer<Id> found(this->count_);
        std::memcpy(found.data(), this->nodes_.data(), this->count_ * sizeof(Id));
        return found;
    }

  private:
    using Names = Naming<Id, HashedMap>;

    // Rows and edges fit, so that nothing is written beside the block.
    void check(Optional<const int64_t> order, Array<const int32_t> counts, Array<const Id> sources, Array<int32_t> end) const {
        const int64_t num_rows = counts.size();
        if (sources.size() > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
        bool sound = num_rows == this->count_ && end.size() == num_rows && (!order || order->size() == num_rows);
        int64_t total = 0;
        for (int64_t j = 0; sound && j < num_rows; ++j) {
            sound = counts[j] >= 0;
            total += counts[j];
        }
        std::vector<bool> seen(order ? num_rows : 0);
        for (int64_t j = 0; sound && order && j < num_rows; ++j) {
            const int64_t row = (*order)[j];
            sound = row >= 0 && row < num_rows && !seen[row];
            if (sound) seen[row] = true;
        }
        for (int64_t e = 0; sound && e < sources.size(); ++e) sound = sources[e] >= 0 && sources[e] < num_nodes_;
        if (sound && total == sources.size()) return;
        throw InputError("the drawn rows of a layer do not fit each other", "draw them again");
    }

    int64_t num_nodes_;
};

}  // namespace

template <class Id>
std::unique_ptr<Sampler<Id>> make_sampler(const SamplerSetup<Id>& setup, bool hashed) {
    if (hashed) return std::make_unique<MapSampler<Id, HashedMap>>(setup);
    return std::make_unique<MapSampler<Id, DirectMap>>(setup);
}

template <class Id>
std::unique_ptr<Renamer<Id>> make_renamer(int64_t num_nodes) {
    return std::make_unique<HashedRenamer<Id>>(num_nodes);
}

template decltype(make_sampler<int32_t>) make_sampler<int32_t>;
template decltype(make_sampler<int64_t>) make_sampler<int64_t>;
template decltype(make_renamer<int32_t>) make_renamer<int32_t>;
template decltype(make_renamer<int64_t>) make_renamer<int64_t>;

}  // namespace graphmill
