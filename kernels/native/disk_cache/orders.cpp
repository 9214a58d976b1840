// Orders of a segment's disk cache; see kernels/disk_cache/orders.py.
#include "disk_cache/disk_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#ifdef __AVX512VPOPCNTDQ__
#include <immintrin.h>
#endif

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

// The distinct nodes of a segment, ascending, numbered without a table of the whole graph: a bitmap and its running count.
class Nodes {
  public:
    template <class Id>
    Nodes(const Id* ids, int64_t count) {
        int64_t largest = -1;
        for (int64_t i = 0; i < count; ++i) {
            if (ids[i] < 0) throw InputError("node id " + std::to_string(ids[i]) + " in a batch", "give ids of 0 or more");
            largest = std::max(largest, static_cast<int64_t>(ids[i]));
        }
        present_.assign(largest / 64 + 1, 0);
        for (int64_t i = 0; i < count; ++i) present_[ids[i] / 64] |= uint64_t{1} << (ids[i] % 64);
        before_.resize(present_.size());
        for (size_t word = 0; word < present_.size(); ++word) {
            before_[word] = size_;
            size_ += __builtin_popcountll(present_[word]);
        }
    }

    int64_t size() const { return size_; }

    // The number of a node of the segment.
    int64_t find(int64_t id) const {
        const uint64_t below = (uint64_t{1} << (id % 64)) - 1;
        return before_[id / 64] + __builtin_popcountll(present_[id / 64] & below);
    }

    template <class Id>
    void write(Id* out) const {
        for (size_t word = 0; word < present_.size(); ++word) {
            for (uint64_t rest = present_[word]; rest; rest &= rest - 1) {
                *out++ = static_cast<Id>(64 * word + __builtin_ctzll(rest));
            }
        }
    }

  private:
    std::vector<uint64_t> present_;
    std::vector<int64_t> before_;
    int64_t size_ = 0;
};

// Membership vectors: words of node v are bits[v * words ..]; batch 0 is the highest bit of the first word.
constexpr uint64_t TOP = uint64_t{1} << 63;

template <class Id>
std::vector<uint64_t> memberships(const Nodes& nodes, const int64_t* ptr, int64_t num_batches, const Id* ids,
                                  int64_t words, int threads) {
    std::vector<uint64_t> bits(nodes.size() * words, 0);
    parallel_for(num_batches, 1, threads, [&](int64_t begin, int64_t end) {
        for (int64_t batch = begin; batch < end; ++batch) {
            for (int64_t i = ptr[batch]; i < ptr[batch + 1]; ++i) {
                __atomic_fetch_or(&bits[nodes.find(ids[i]) * words + batch / 64], TOP >> (batch % 64), __ATOMIC_RELAXED);
            }
        }
    });
    return bits;
}

// Bit i of the rank is the parity of the vector's bits 0 .. i: the vector's place in the reflected Gray code.
std::vector<uint64_t> gray_ranks(const std::vector<uint64_t>& bits, int64_t words) {
    std::vector<uint64_t> ranks(bits);
    for (size_t first = 0; first < ranks.size(); first += words) {
        uint64_t odd = 0;
        for (int64_t word = 0; word < words; ++word) {
            uint64_t x = ranks[first + word];
            for (int shift = 1; shift < 64; shift *= 2) x ^= x >> shift;
            ranks[first + word] = x ^ odd;
            odd = (x ^ odd) & 1 ? ~uint64_t{0} : 0;
        }
    }
    return ranks;
}

// Sorts nodes by keys of `words` words; equal ones stand by node.
std::vector<uint32_t> sort_by(const std::vector<uint64_t>& keys, int64_t words) {
    struct Entry {
        uint64_t key;
        uint32_t node;
    };
    std::vector<Entry> entries(keys.size() / words);
    for (size_t node = 0; node < entries.size(); ++node) entries[node] = {keys[node * words], uint32_t(node)};
    std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
        if (a.key != b.key) return a.key < b.key;
        for (int64_t word = 1; word < words; ++word) {
            const uint64_t x = keys[a.node * words + word], y = keys[b.node * words + word];
            if (x != y) return x < y;
        }
        return a.node < b.node;
    });
    std::vector<uint32_t> order(entries.size());
    for (size_t place = 0; place < order.size(); ++place) order[place] = entries[place].node;
    return order;
}

// Eight numbers side by side; the compiler cuts them up where registers are shorter.
typedef int64_t Eight __attribute__((vector_size(64)));

Eight popcount(Eight v) {
#ifdef __AVX512VPOPCNTDQ__
    return (Eight)_mm512_popcnt_epi64((__m512i)v);
#else
    for (int lane = 0; lane < 8; ++lane) v[lane] = __builtin_popcountll(v[lane]);
    return v;
#endif
}

Eight lesser(Eight a, Eight b) { return a < b ? a : b; }

int64_t least_of(Eight v) {
    int64_t least = v[0];
    for (int lane = 1; lane < 8; ++lane) least = std::min<int64_t>(least, v[lane]);
    return least;
}

// Fills pages greedily from a window over an order; one piece of the order at a time, so pieces may run side by side.
class PageFiller {
  public:
    PageFiller(const std::vector<uint64_t>& bits, int64_t words, int64_t row_bytes, int64_t page_bytes, int64_t window)
        : bits_(bits), words_(words), row_bytes_(row_bytes), page_bytes_(page_bytes), window_(window), eights_((window + 7) / 8),
          shift_(64 - __builtin_clzll(64 * words)), slots_(words * eights_), cost_(eights_), turn_(eights_),
          node_(window), page_(words) {}

    void fill(uint32_t* order, int64_t count) {
        const std::vector<uint32_t> given(order, order + count);
        int64_t taken = 0, size = 0, last = -1;
        bool grown = true;  // the page wants more batches than when costs were counted
        std::fill(page_.begin(), page_.end(), 0);
        for (int64_t place = 0; place < count; ++place) {
            const int64_t first = place * row_bytes_ / page_bytes_, offset = place * row_bytes_ % page_bytes_;
            const bool opens = offset == 0, alone = opens || offset + row_bytes_ > page_bytes_;
            if (first != last) {
                grown = true;
                for (; size < window_ && taken < count; ++size, ++taken) enter(size, given[taken], taken);
            }
            if (opens) weigh<true>(size);
            else if (grown) weigh<false>(size);
            const int64_t best = cheapest(size);
            grown = alone;
            last = first;
            for (int64_t word = 0; word < words_; ++word) {
                const int64_t mine = at(slots_, word * eights_ * 8 + best);
                grown = grown || (mine & ~page_[word]);
                page_[word] = alone ? mine : page_[word] | mine;  // a row that straddles pages begins the later one
            }
            order[place] = node_[best];
            leave(best, --size);
        }
    }

  private:
    static int64_t& at(std::vector<Eight>& all, int64_t index) { return reinterpret_cast<int64_t*>(all.data())[index]; }

    void enter(int64_t slot, uint32_t node, int64_t turn) {
        for (int64_t word = 0; word < words_; ++word) at(slots_, word * eights_ * 8 + slot) = bits_[node * words_ + word];
        at(turn_, slot) = turn * SLOTS + slot;
        node_[slot] = node;
    }

    void leave(int64_t slot, int64_t last) {
        for (int64_t word = 0; word < words_; ++word) {
            int64_t* row = &at(slots_, word * eights_ * 8);
            row[slot] = row[last];
        }
        at(cost_, slot) = at(cost_, last);
        at(turn_, slot) = at(turn_, last) / SLOTS * SLOTS + slot;
        node_[slot] = node_[last];
    }

    // The first of a page: fewest batches that only it or only the page before has. Then: fewest new batches, most shared.
    template <bool OPENS>
    void weigh(int64_t size) {
        const int64_t used = (size + 7) / 8;
        Eight* const cost = cost_.data();
        for (int64_t word = 0; word < words_; ++word) {
            const Eight page = Eight{} + page_[word], *slot = slots_.data() + word * eights_;
            for (int64_t j = 0; j < used; ++j) {
                const Eight here = OPENS ? popcount(slot[j] ^ page)
                                         : (popcount(slot[j] & ~page) << shift_) - popcount(slot[j] & page);
                cost[j] = word ? cost[j] + here : here;
            }
        }
    }

    // The earliest of the least costs.
    int64_t cheapest(int64_t size) {
        const int64_t used = (size + 7) / 8;
        for (int64_t slot = size; slot < used * 8; ++slot) at(cost_, slot) = INT64_MAX;
        const Eight none = Eight{} + INT64_MAX;
        Eight least = none, first = none;
        for (int64_t j = 0; j < used; ++j) least = lesser(least, cost_[j]);
        const Eight wanted = Eight{} + least_of(least);
        for (int64_t j = 0; j < used; ++j) first = cost_[j] == wanted ? lesser(first, turn_[j]) : first;
        return least_of(first) % SLOTS;
    }

    // A turn has its slot in the low bits: the least of them says where it is.
    static constexpr int64_t SLOTS = int64_t{1} << 32;

    const std::vector<uint64_t>& bits_;
    int64_t words_, row_bytes_, page_bytes_, window_, eights_;
    int shift_;  // 2^shift is more than there are batches
    std::vector<Eight> slots_;  // [words][eights]: memberships of the window
    std::vector<Eight> cost_;
    std::vector<Eight> turn_;  // place in the given order, which decides ties
    std::vector<uint32_t> node_;
    std::vector<int64_t> page_;  // batches of the page's nodes so far
};

template <class Id>
Buffer<Id> named(const Nodes& nodes, const std::vector<uint32_t>& order) {
    std::vector<Id> ids(order.size());
    nodes.write(ids.data());
    Buffer<Id> out(order.size());
    for (size_t place = 0; place < order.size(); ++place) out[place] = ids[order[place]];
    return out;
}

}  // namespace

template <class Id>
Buffer<Id> gray_order(Array<const int64_t> ptr, Array<const Id> ids, int64_t row_bytes, int64_t page_bytes, int64_t window,
                      int64_t piece, int threads) {
    const int64_t num_batches = ptr.size() - 1, words = std::max<int64_t>(1, (num_batches + 63) / 64);
    const int64_t* start = ptr.data();
    const Id* id = ids.data();
    const int64_t count = ids.size();
    const Nodes nodes(id, count);
    const std::vector<uint64_t> bits = memberships(nodes, start, num_batches, id, words, threads);
    std::vector<uint32_t> order = sort_by(gray_ranks(bits, words), words);
    const int64_t size = order.size();
    if (row_bytes > 0) {
        parallel_for((size + piece - 1) / piece, 1, threads, [&](int64_t begin, int64_t end) {
            PageFiller filler(bits, words, row_bytes, page_bytes, window);
            for (int64_t p = begin; p < end; ++p) filler.fill(&order[p * piece], std::min(piece, size - p * piece));
        });
    }
    return named<Id>(nodes, order);
}

template <class Id>
Buffer<Id> minhash_order(Array<const int64_t> ptr, Array<const Id> ids, Array<const int32_t> permutations) {
    const int64_t num_hashes = permutations.shape(0), num_batches = ptr.size() - 1, count = ids.size();
    const int64_t* start = ptr.data();
    const int32_t* hash = permutations.data();
    const Id* id = ids.data();
    const Nodes nodes(id, count);
    std::vector<uint64_t> least(nodes.size() * num_hashes, ~uint64_t{0});
    for (int64_t batch = 0; batch < num_batches; ++batch) {
        for (int64_t i = start[batch]; i < start[batch + 1]; ++i) {
            uint64_t* mine = &least[nodes.find(id[i]) * num_hashes];
            for (int64_t j = 0; j < num_hashes; ++j) {
                mine[j] = std::min<uint64_t>(mine[j], hash[j * num_batches + batch]);
            }
        }
    }
    return named<Id>(nodes, sort_by(least, num_hashes));
}

template decltype(gray_order<int32_t>) gray_order<int32_t>;
template decltype(gray_order<int64_t>) gray_order<int64_t>;
template decltype(minhash_order<int32_t>) minhash_order<int32_t>;
template decltype(minhash_order<int64_t>) minhash_order<int64_t>;

}  // namespace graphmill
