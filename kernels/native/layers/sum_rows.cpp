// Output rows as sums of rows; see sum_rows.h. Sums of whole vectors are made by one of a table of functions, by how many there are.
#include "layers/sum_rows.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "layers/tiles.h"
#include "rows/row_prefetch.h"
#include "rows/row_stream.h"

namespace graphmill {
namespace {

// Factors of edges.
template <class T>
struct Factors {
    const float* weights;
    const Sum<T>* inverses;
    const int32_t* at;
    explicit Factors(const Sums<T>& sums) : weights(sums.weights), inverses(sums.inverses), at(sums.at) {
        if constexpr (std::is_same_v<Sum<T>, float>) {
            if (inverses) weights = inverses;
        }
    }
    bool given() const { return weights || inverses; }
    Sum<T> operator()(int64_t e) const {
        const int64_t k = __builtin_expect(at != nullptr, false) ? at[e] : e;
        if constexpr (!std::is_same_v<Sum<T>, float>) {
            if (inverses) return inverses[k];
        }
        return weights[k];
    }
};

template <class T>
struct OwnTerm {
    const T* row = nullptr;  // nullptr: none
    Sum<T> factor = 0;
};

template <class T>
inline OwnTerm<T> own_term(const Sums<T>& sums, int64_t i) {
    if (!sums.own_weights) return {};
    const int64_t row = sums.own_rows ? sums.own_rows[i] : i;
    if (row < 0) return {};
    return {sums.input + row * sums.width, static_cast<Sum<T>>(sums.own_weights[sums.own_of_input ? row : i])};
}

// 0: none.
template <class T>
inline Sum<T> divisor_of(const Sums<T>& sums, int64_t i) {
    return sums.mean ? static_cast<Sum<T>>(sums.ends[i] - sums.begins[i]) : 0;
}

// Where `past`, rows consist of whole lines and are written past the caches.
template <class T, bool SCALED, int LENGTH>
void sum_tile(const Sums<T>& sums, const Tile<T>& tile, bool past) {
    // Copies stay in registers: as far as the compiler knows, what is stored might change the originals.
    const Factors<T> factor_of(sums);
    const T* const input = sums.input + tile.column;
    const int32_t* const sources = sums.sources;
    const int64_t width = sums.width, last = sums.last;
    const auto at = [tail = tile.tail](int v) { return v + 1 < LENGTH ? v * LANES<T> : tail; };
    T* out = tile.out;
    for (int64_t i = tile.first; i < tile.last; ++i, out += width) {
        Vector<T> sum[LENGTH];
        for (int v = 0; v < LENGTH; ++v) sum[v] = Vector<T>{};
        const int64_t end = sums.ends[i];
        const int32_t* const later = sources + std::min(EDGES_AHEAD, last - end);
        for (int64_t e = sums.begins[i]; e < end; ++e) {
            const T* next = input + later[e] * width;
            constexpr int A_LINE = sizeof(Sum<T>) / sizeof(T);  // vectors that one cache line fills
            for (int v = 0; v < std::min<int>(LENGTH, LINES_AHEAD * A_LINE); v += A_LINE) __builtin_prefetch(next + at(v));
            const T* row = input + sources[e] * width;
            if constexpr (SCALED) {
                const Sum<T> factor = factor_of(e);
                for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + at(v)) * factor;
            } else {
                for (int v = 0; v < LENGTH; ++v) sum[v] += load(row + at(v));
            }
        }
        if constexpr (SCALED) {
            if (const OwnTerm<T> own = own_term(sums, i); own.row)
                for (int v = 0; v < LENGTH; ++v) sum[v] += load(own.row + tile.column + at(v)) * own.factor;
        } else {
            if (const Sum<T> divisor = divisor_of(sums, i); divisor != 0)
                for (int v = 0; v < LENGTH; ++v) sum[v] /= divisor;
        }
        if constexpr (sizeof(T) == sizeof(Sum<T>)) {
            if (past) {
                for (int v = 0; v < LENGTH; ++v) store_past(out + at(v), sum[v]);
                continue;
            }
        }
        for (int v = 0; v < LENGTH; ++v) store(out + at(v), sum[v]);
    }
}

template <class T>
using SumTile = void (*)(const Sums<T>&, const Tile<T>&, bool past);

// By the number of vectors less 1.
template <class T, bool SCALED, int... SHORTER>
SumTile<T> sum_tile_of(int64_t length, std::integer_sequence<int, SHORTER...>) {
    static constexpr SumTile<T> TILES[] = {sum_tile<T, SCALED, SHORTER + 1>...};
    return TILES[length - 1];
}

// Rows narrower than a vector: the same operations in the same order.
template <class T>
void sum_narrow(const Sums<T>& sums, int64_t i) {
    const Factors<T> factor_of(sums);
    Sum<T> sum[LANES<T>] = {};
    for (int64_t e = sums.begins[i]; e < sums.ends[i]; ++e) {
        const T* row = sums.input + sums.sources[e] * sums.width;
        if (factor_of.given()) {
            const Sum<T> factor = factor_of(e);
            for (int64_t c = 0; c < sums.width; ++c) sum[c] += widen(row[c]) * factor;
        } else {
            for (int64_t c = 0; c < sums.width; ++c) sum[c] += widen(row[c]);
        }
    }
    const OwnTerm<T> own = own_term(sums, i);
    const Sum<T> divisor = divisor_of(sums, i);
    for (int64_t c = 0; c < sums.width; ++c) {
        if (divisor != 0) sum[c] /= divisor;
        if (own.row) sum[c] += widen(own.row[c]) * own.factor;
        sums.output[i * sums.width + c] = narrow<T>(sum[c]);
    }
}

}  // namespace

template <class T>
void sum_rows(const Sums<T>& sums, const Piece& piece) {
    const int64_t width = sums.width;
    if (width < LANES<T>) {
        for (int64_t i = piece.from; i < piece.to; ++i) sum_narrow(sums, i);
        return;
    }
    const bool whole = piece.column_end - piece.column == width;
    RowStream<T> stream(sums.output, width, whole ? sums.num_rows * width * sizeof(T) : 0);
    const bool past = sizeof(T) == sizeof(Sum<T>) && stream.whole_lines();
    const bool scaled = Factors<T>(sums).given();
    constexpr std::make_integer_sequence<int, MOST_VECTORS> lengths;
    each_tile<T>(piece, stream, sums.output, past, [&](const Tile<T>& tile) {
        (scaled ? sum_tile_of<T, true>(tile.length, lengths) : sum_tile_of<T, false>(tile.length, lengths))(sums, tile, past);
    });
}

template decltype(sum_rows<float>) sum_rows<float>;
template decltype(sum_rows<double>) sum_rows<double>;
template decltype(sum_rows<Half>) sum_rows<Half>;
template decltype(sum_rows<BFloat>) sum_rows<BFloat>;

}  // namespace graphmill
