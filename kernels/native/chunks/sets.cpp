// Neighbour sets of chunks as bitmaps, and the counts of their unions and overlaps; see kernels/chunks/sets.py.
#include "chunks/chunks.h"

#include <algorithm>
#include <string>
#include <vector>

#ifdef __BMI2__
#include <immintrin.h>
#endif

#include "base/input_error.h"
#include "base/parallel.h"
#include "chunks/bits.h"

namespace graphmill {
namespace {

constexpr int64_t TILE = 2048;  // words of a set that stay in the first cache while it meets the others

struct Matrix {
    const uint64_t* data;
    int64_t rows, words;
    const uint64_t* row(int64_t number) const { return data + number * words; }
};

Matrix matrix_of(const Array<const uint64_t>& bits) { return {bits.data(), bits.shape(0), bits.shape(1)}; }

Buffer<int64_t> empty_counts(int64_t count) {
    Buffer<int64_t> out(count);
    std::fill(out.data(), out.data() + count, 0);
    return out;
}

uint64_t gather_bits(uint64_t word, uint64_t mask) {
#ifdef __BMI2__
    return _pext_u64(word, mask);
#else
    uint64_t out = 0;
    for (int place = 0; mask; mask &= mask - 1, ++place) {
        if (word & mask & -mask) out |= uint64_t{1} << place;
    }
    return out;
#endif
}

}  // namespace

template <class Id>
void neighbour_sets(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> node_ids, Array<const int64_t> ptr,
                    bool self_term, int threads, Array<uint64_t> out) {
    const int64_t *first = indptr.data(), *cuts = ptr.data(), num_nodes = indptr.size() - 1, words = out.shape(1);
    const Id *sources = indices.data(), *nodes = node_ids.data();
    uint64_t* bits = out.data();
    const int64_t num_chunks = out.shape(0);
    parallel_for(num_chunks, 1, worth_a_team(indices.size() + num_chunks * words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; ++chunk) {
            uint64_t* row = bits + chunk * words;
            std::fill(row, row + words, 0);
            for (int64_t place = cuts[chunk]; place < cuts[chunk + 1]; ++place) {
                const int64_t node = nodes[place];
                if (self_term) set_bit(row, node);
                for (int64_t edge = first[node]; edge < first[node + 1]; ++edge) {
                    const int64_t source = sources[edge];
                    if (source < 0 || source >= num_nodes) {
                        throw InputError("an edge leads to node " + std::to_string(source) + " of " + std::to_string(num_nodes),
                                         "build the graph anew");
                    }
                    set_bit(row, source);
                }
            }
        }
    });
}

Buffer<int64_t> set_overlaps(Array<const uint64_t> left, Array<const uint64_t> right, int threads) {
    const Matrix a = matrix_of(left), b = matrix_of(right);
    Buffer<int64_t> out = empty_counts(a.rows * b.rows);
    parallel_for(a.rows, 1, worth_a_team(a.rows * b.rows * a.words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t low = 0; low < a.words; low += TILE) {
            const int64_t count = std::min(TILE, a.words - low);
            for (int64_t i = begin; i < end; ++i) {
                for (int64_t j = 0; j < b.rows; ++j) out[i * b.rows + j] += count_common(a.row(i) + low, b.row(j) + low, count);
            }
        }
    });
    return out;
}

Buffer<int64_t> set_sizes(Array<const uint64_t> bits, int threads) {
    const Matrix a = matrix_of(bits);
    Buffer<int64_t> out(a.rows);
    parallel_for(a.rows, 1, worth_a_team(a.rows * a.words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = count_bits(a.row(i), a.words);
    });
    return out;
}

Buffer<int64_t> chain_overlaps(Array<const uint64_t> bits, int threads) {
    const Matrix a = matrix_of(bits);
    Buffer<int64_t> out(std::max<int64_t>(0, a.rows - 1));
    parallel_for(out.size(), 1, worth_a_team(a.rows * a.words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) out[i] = count_common(a.row(i), a.row(i + 1), a.words);
    });
    return out;
}

void set_unions(Array<const uint64_t> bits, Array<const int64_t> rows, int threads, Array<uint64_t> out) {
    const Matrix a = matrix_of(bits);
    const int64_t *chosen = rows.data(), num_parts = rows.shape(0), num_steps = rows.shape(1);
    uint64_t* made = out.data();
    parallel_for(num_steps, 1, worth_a_team(rows.size() * a.words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t step = begin; step < end; ++step) {
            uint64_t* to = made + step * a.words;
            std::fill(to, to + a.words, 0);
            for (int64_t part = 0; part < num_parts; ++part) {
                const int64_t number = chosen[part * num_steps + step];
                if (number < 0) continue;
                const uint64_t* from = a.row(number);
                for (int64_t w = 0; w < a.words; ++w) to[w] |= from[w];
            }
        }
    });
}

Buffer<uint64_t> shared_sets(Array<const uint64_t> bits, int threads) {
    const Matrix a = matrix_of(bits);
    std::vector<uint64_t> twice(a.words, 0);
    parallel_for(a.words, TILE, threads, [&](int64_t begin, int64_t end) {
        std::vector<uint64_t> once(end - begin, 0);
        for (int64_t i = 0; i < a.rows; ++i) {
            const uint64_t* row = a.row(i);
            for (int64_t w = begin; w < end; ++w) {
                twice[w] |= once[w - begin] & row[w];
                once[w - begin] |= row[w];
            }
        }
    });
    const int64_t words = words_of(count_bits(twice.data(), a.words));
    Buffer<uint64_t> out(a.rows * words);
    uint64_t* made = out.data();
    parallel_for(a.rows, 1, worth_a_team(a.rows * a.words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t* row = a.row(i);
            uint64_t* to = made + i * words;
            std::fill(to, to + words, 0);
            int64_t place = 0;
            for (int64_t w = 0; w < a.words; ++w) {
                if (!twice[w]) continue;
                const uint64_t packed = gather_bits(row[w], twice[w]);
                const int64_t shift = place & 63, count = __builtin_popcountll(twice[w]);
                to[place >> 6] |= packed << shift;
                if (shift + count > 64) to[(place >> 6) + 1] |= packed >> (64 - shift);
                place += count;
            }
        }
    });
    return out;
}

template <class Id>
void listed_unions(Array<const int64_t> indptr, Array<const Id> numbers, Array<const int32_t> column_of, Array<uint64_t> out) {
    const int64_t *first = indptr.data(), num_nodes = indptr.size() - 1, num_sets = column_of.size(), words = out.shape(1);
    const Id* held_by = numbers.data();
    const int32_t* columns = column_of.data();
    uint64_t* bits = out.data();
    int64_t place = 0;
    for (int64_t node = 0; node < num_nodes; ++node) {
        if (first[node + 1] - first[node] < 2) continue;
        if (place >= 64 * words) throw InputError("the sets have bits for fewer nodes than they share", "list the sets again");
        for (int64_t i = first[node]; i < first[node + 1]; ++i) {
            const int64_t set = held_by[i];
            if (set < 0 || set >= num_sets) {
                throw InputError("a node is in set " + std::to_string(set) + " of " + std::to_string(num_sets), "list the sets again");
            }
            if (columns[set] >= 0) set_bit(bits + columns[set] * words, place);
        }
        ++place;
    }
}

template decltype(listed_unions<int32_t>) listed_unions<int32_t>;
template decltype(listed_unions<int64_t>) listed_unions<int64_t>;
template decltype(neighbour_sets<int32_t>) neighbour_sets<int32_t>;
template decltype(neighbour_sets<int64_t>) neighbour_sets<int64_t>;

}  // namespace graphmill
