// Sets of nodes as bitmaps: word w holds nodes 64 w to 64 w + 63, the lowest bit first.
#pragma once

#include <cstdint>

namespace graphmill {

// Threads for a pass over so many words, or edges: a team costs more than a small pass.
inline int worth_a_team(int64_t work, int threads) { return work < 1 << 14 ? 1 : threads; }

inline int64_t words_of(int64_t num_nodes) { return (num_nodes + 63) / 64; }

inline void set_bit(uint64_t* bits, int64_t node) { bits[node >> 6] |= uint64_t{1} << (node & 63); }

// Of plain loops over words the compiler makes vector instructions where the machine counts bits in them.
inline int64_t count_bits(const uint64_t* a, int64_t words) {
    int64_t sum = 0;
    for (int64_t w = 0; w < words; ++w) sum += __builtin_popcountll(a[w]);
    return sum;
}

inline int64_t count_common(const uint64_t* a, const uint64_t* b, int64_t words) {
    int64_t sum = 0;
    for (int64_t w = 0; w < words; ++w) sum += __builtin_popcountll(a[w] & b[w]);
    return sum;
}

// Calls visit(node) for the nodes of words [begin, end), ascending.
template <class Visit>
void for_each_bit(const uint64_t* bits, int64_t begin, int64_t end, Visit visit) {
    for (int64_t w = begin; w < end; ++w) {
        for (uint64_t rest = bits[w]; rest; rest &= rest - 1) visit(64 * w + __builtin_ctzll(rest));
    }
}

}  // namespace graphmill
