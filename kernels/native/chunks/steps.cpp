// Steps of a full-graph pass, one after the other, for all devices; see kernels/chunks/steps.py.
#include "chunks/chunks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/parallel.h"
#include "chunks/bits.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1 << 16;  // edges that a thread takes at a time

// The buffer of one device: nodes as a bitmap with a running count, and the row of each, in the order of ids.
struct BufferState {
    std::vector<uint64_t> bits;
    std::vector<int32_t> before;  // nodes in all words before
    std::vector<int32_t> rows;

    void count() {
        before.resize(bits.size());
        int64_t sum = 0;
        for (size_t w = 0; w < bits.size(); ++w) {
            before[w] = static_cast<int32_t>(sum);
            sum += __builtin_popcountll(bits[w]);
        }
        if (sum >= int64_t{1} << 31) {
            throw InputError("a buffer has 2^31 rows or more", "raise chunks_per_part in [chunks], or parts in [partitions]");
        }
        rows.resize(sum);
    }

    int32_t place(int64_t node) const {
        const uint64_t below = (uint64_t{1} << (node & 63)) - 1;
        return before[node >> 6] + static_cast<int32_t>(__builtin_popcountll(bits[node >> 6] & below));
    }

    bool holds(int64_t node) const { return bits[node >> 6] >> (node & 63) & 1; }
    int32_t row(int64_t node) const { return rows[place(node)]; }
};

// A step of one device while it is made.
template <class Id>
struct Made : DeviceStep<Id> {
    std::vector<std::vector<Id>> fetched;  // by hop: the copies that are new in this step
};

}  // namespace

template <class Id>
class StepMaker<Id>::Buffers {
  public:
    Buffers(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> part_of, int num_parts, bool self_term, int threads)
        : indptr_(indptr.data()), indices_(indices.data()), part_of_(part_of.data()), num_nodes_(indptr.size() - 1),
          words_(words_of(num_nodes_)), num_parts_(num_parts), self_term_(self_term), threads_(threads), now_(num_parts),
          last_(num_parts), all_(words_) {
        for (int part = 0; part < num_parts; ++part) {
            now_[part].bits.assign(words_, 0);
            last_[part].bits.assign(words_, 0);
            now_[part].count();
            last_[part].count();
        }
    }

    std::vector<DeviceStep<Id>> advance(const std::vector<Array<const Id>>& dst) {
        std::vector<Made<Id>> made(num_parts_);
        std::vector<const Id*> nodes(num_parts_);
        std::vector<int64_t> counts(num_parts_);
        for (int part = 0; part < num_parts_; ++part) nodes[part] = dst[part].data(), counts[part] = dst[part].size();
        now_.swap(last_);
        int64_t edges = num_parts_ * words_;
        for (int part = 0; part < num_parts_; ++part) {
            for (int64_t i = 0; i < counts[part]; ++i) edges += indptr_[nodes[part][i] + 1] - indptr_[nodes[part][i]];
        }
        const auto for_parts = [&, team = worth_a_team(edges, threads_)](auto body) {
            parallel_for(num_parts_, 1, team, [&](int64_t begin, int64_t end) {
                for (int64_t part = begin; part < end; ++part) body(static_cast<int>(part));
            });
        };
        for_parts([&](int part) { collect(part, nodes[part], counts[part], made[part]); });
        unite();
        for_parts([&](int part) { add_transition(part, made[part]); });
        for_parts([&](int part) { place_rows(part, made[part]); });
        for_parts([&](int part) { find_peers(part, made[part]); });
        for (int part = 0; part < num_parts_; ++part) name_edges(part, nodes[part], counts[part], made[part]);
        return {std::make_move_iterator(made.begin()), std::make_move_iterator(made.end())};
    }

  private:
    // The chunk's neighbour set becomes the buffer's bitmap; its rows' ends are counted.
    void collect(int part, const Id* dst, int64_t count, Made<Id>& made) {
        std::vector<uint64_t>& bits = now_[part].bits;
        std::fill(bits.begin(), bits.end(), 0);
        made.start = Buffer<int32_t>(count);
        made.end = Buffer<int32_t>(count);
        int64_t edges = 0;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t node = dst[i];
            if (self_term_) set_bit(bits.data(), node);
            made.start[i] = static_cast<int32_t>(edges);
            edges += indptr_[node + 1] - indptr_[node];
            if (edges >= int64_t{1} << 31) {
                throw InputError("a chunk has 2^31 edges or more", "raise chunks_per_part in [chunks], or parts in [partitions]");
            }
            made.end[i] = static_cast<int32_t>(edges);
            for (int64_t edge = indptr_[node]; edge < indptr_[node + 1]; ++edge) {
                const int64_t source = indices_[edge];
                if (source < 0 || source >= num_nodes_) {
                    throw InputError("an edge leads to node " + std::to_string(source) + " of " + std::to_string(num_nodes_),
                                     "build the graph anew");
                }
                set_bit(bits.data(), source);
            }
        }
        made.indices = Buffer<int32_t>(edges);
    }

    void unite() {
        std::fill(all_.begin(), all_.end(), 0);
        for (const BufferState& buffer : now_) {
            for (int64_t w = 0; w < words_; ++w) all_[w] |= buffer.bits[w];
        }
    }

    // Adds the nodes of the step's union that belong to this part.
    void add_transition(int part, Made<Id>& made) {
        uint64_t* bits = now_[part].bits.data();
        for_each_bit(all_.data(), 0, words_, [&](int64_t node) {
            if (part_of_[node] != part) return;
            set_bit(bits, node);
            ++made.num_transition;
        });
        now_[part].count();
    }

    // Nodes that were there keep their rows; new ones take the lowest free rows, first the transition nodes, then peer by peer.
    void place_rows(int part, Made<Id>& made) {
        BufferState &now = now_[part], &last = last_[part];
        std::vector<Id> loaded;
        made.fetched.resize(num_parts_);
        int32_t top = -1;
        int64_t next = 0;
        for_each_bit(now.bits.data(), 0, words_, [&](int64_t node) {
            int32_t& row = now.rows[next++];
            if (last.holds(node)) {
                row = last.row(node);
                top = std::max(top, row);
                return;
            }
            row = -1;
            if (part_of_[node] == part) {
                loaded.push_back(static_cast<Id>(node));
            } else {
                made.fetched[(part_of_[node] - part + num_parts_) % num_parts_].push_back(static_cast<Id>(node));
            }
        });
        std::vector<char> taken(top + 1 + now.rows.size() + 1, 0);
        for (const int32_t row : now.rows) {
            if (row >= 0) taken[row] = 1;
        }
        int32_t free = 0;
        const auto take = [&](const std::vector<Id>& nodes, Buffer<int32_t>& rows) {
            rows = Buffer<int32_t>(nodes.size());
            for (size_t i = 0; i < nodes.size(); ++i) {
                while (taken[free]) ++free;
                rows[i] = free;
                now.rows[now.place(nodes[i])] = free++;
            }
        };
        take(loaded, made.load_rows);
        made.load_ids = Buffer<Id>(loaded.size());
        std::copy(loaded.begin(), loaded.end(), made.load_ids.data());
        for (int hop = 1; hop < num_parts_; ++hop) {
            if (!made.fetched[hop].empty()) take(made.fetched[hop], made.fetch.emplace_back(Fetch{hop, {}, {}}).own_rows);
        }
        int32_t highest = -1;
        for (const int32_t row : now.rows) highest = std::max(highest, row);
        made.src_ids = Buffer<Id>(highest + 1);
        std::fill(made.src_ids.data(), made.src_ids.data() + highest + 1, Id{-1});
        next = 0;
        for_each_bit(now.bits.data(), 0, words_, [&](int64_t node) { made.src_ids[now.rows[next++]] = static_cast<Id>(node); });
    }

    void find_peers(int part, Made<Id>& made) {
        for (Fetch& fetch : made.fetch) {
            const BufferState& peer = now_[(part + fetch.hop) % num_parts_];
            const std::vector<Id>& nodes = made.fetched[fetch.hop];
            fetch.peer_rows = Buffer<int32_t>(nodes.size());
            for (size_t i = 0; i < nodes.size(); ++i) fetch.peer_rows[i] = peer.row(nodes[i]);
        }
    }

    void name_edges(int part, const Id* dst, int64_t count, Made<Id>& made) {
        const BufferState& now = now_[part];
        int32_t* out = made.indices.data();
        const int64_t num_edges = made.indices.size();
        // Pieces are of edges, for one destination may have most of them.
        parallel_for(num_edges, PIECE, threads_, [&](int64_t begin, int64_t end) {
            int64_t i = std::upper_bound(made.end.data(), made.end.data() + count, static_cast<int32_t>(begin)) - made.end.data();
            for (int64_t edge = begin; edge < end; ++i) {
                const int64_t stop = std::min<int64_t>(end, made.end[i]), shift = indptr_[dst[i]] - made.start[i];
                for (; edge < stop; ++edge) out[edge] = now.row(indices_[edge + shift]);
            }
        });
        if (!self_term_) return;
        made.dst_pos = Buffer<int32_t>(count);
        for (int64_t i = 0; i < count; ++i) made.dst_pos[i] = now.row(dst[i]);
    }

    const int64_t* indptr_;
    const Id* indices_;
    const int32_t* part_of_;
    int64_t num_nodes_, words_;
    int num_parts_;
    bool self_term_;
    int threads_;
    std::vector<BufferState> now_, last_;
    std::vector<uint64_t> all_;
};

template <class Id>
StepMaker<Id>::StepMaker(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> part_of, int num_parts,
                         bool self_term, int threads)
    : buffers_(std::make_unique<Buffers>(indptr, indices, part_of, num_parts, self_term, threads)) {}

template <class Id>
StepMaker<Id>::~StepMaker() = default;

template <class Id>
std::vector<DeviceStep<Id>> StepMaker<Id>::next(const std::vector<Array<const Id>>& dst) {
    return buffers_->advance(dst);
}

template class StepMaker<int32_t>;
template class StepMaker<int64_t>;

}  // namespace graphmill
