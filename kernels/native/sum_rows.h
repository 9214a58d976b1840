// The inner loop of the aggregation: one output row as the sum of rows that a list of edges names.
#pragma once

#include <cstdint>
#include <type_traits>

namespace graphmill {

template <class T>
struct Wide {
    // Rows start anywhere: widths are arbitrary, so vectors are aligned like their elements.
    typedef T Vector __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
    static constexpr int64_t LANES = 64 / sizeof(T);
};

constexpr int64_t EDGES_AHEAD = 8;  // edges between the prefetch of a row and its use

struct Unscaled {};  // every edge counts once

// What happens to a sum before it is written: a division (mean) or one more scaled row (the self term).
template <class T>
struct Finish {
    T divisor = 0;  // 0: none
    const T* own = nullptr;
    T own_factor = 0;
};

// LENGTH vectors of columns stay in registers while the edges [begin, end) go by; prefetching may look on to `last`.
template <int LENGTH, class T, class Source, class Scale>
inline void sum_tile(const T* input, int64_t width, int64_t begin, int64_t end, int64_t last, const Source& source,
                     const Scale& scale, Finish<T> finish, int64_t column, T* out) {
    using Vector = typename Wide<T>::Vector;
    Vector sum[LENGTH];
    for (int v = 0; v < LENGTH; ++v) sum[v] = Vector{};
    for (int64_t e = begin; e < end; ++e) {
        if (e + EDGES_AHEAD < last) {
            const T* next = input + int64_t{source(e + EDGES_AHEAD)} * width + column;
            for (int v = 0; v < LENGTH; ++v) __builtin_prefetch(next + v * Wide<T>::LANES);
        }
        const Vector* row = reinterpret_cast<const Vector*>(input + int64_t{source(e)} * width + column);
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int v = 0; v < LENGTH; ++v) sum[v] += row[v];
        } else {
            const T factor = scale(e);
            for (int v = 0; v < LENGTH; ++v) sum[v] += row[v] * factor;
        }
    }
    if (finish.divisor != 0) {
        for (int v = 0; v < LENGTH; ++v) sum[v] /= finish.divisor;
    }
    if (finish.own) {
        const Vector* own = reinterpret_cast<const Vector*>(finish.own + column);
        for (int v = 0; v < LENGTH; ++v) sum[v] += own[v] * finish.own_factor;
    }
    Vector* result = reinterpret_cast<Vector*>(out + column);
    for (int v = 0; v < LENGTH; ++v) result[v] = sum[v];
}

// The columns that do not fill a vector: the same operations in the same order.
template <class T, class Source, class Scale>
inline void sum_rest(const T* input, int64_t width, int64_t begin, int64_t end, const Source& source,
                     const Scale& scale, Finish<T> finish, int64_t column, T* out) {
    T sum[Wide<T>::LANES] = {};
    const int64_t rest = width - column;
    for (int64_t e = begin; e < end; ++e) {
        const T* row = input + int64_t{source(e)} * width + column;
        if constexpr (std::is_same_v<Scale, Unscaled>) {
            for (int64_t c = 0; c < rest; ++c) sum[c] += row[c];
        } else {
            const T factor = scale(e);
            for (int64_t c = 0; c < rest; ++c) sum[c] += row[c] * factor;
        }
    }
    for (int64_t c = 0; c < rest; ++c) {
        if (finish.divisor != 0) sum[c] /= finish.divisor;
        if (finish.own) sum[c] += finish.own[column + c] * finish.own_factor;
        out[column + c] = sum[c];
    }
}

template <class T, class Source, class Scale>
inline void sum_row(const T* input, int64_t width, int64_t begin, int64_t end, int64_t last, const Source& source,
                    const Scale& scale, Finish<T> finish, T* out) {
    constexpr int64_t lanes = Wide<T>::LANES;
    int64_t column = 0;
    for (; column + 8 * lanes <= width; column += 8 * lanes)
        sum_tile<8>(input, width, begin, end, last, source, scale, finish, column, out);
    if (column + 4 * lanes <= width) {
        sum_tile<4>(input, width, begin, end, last, source, scale, finish, column, out);
        column += 4 * lanes;
    }
    if (column + 2 * lanes <= width) {
        sum_tile<2>(input, width, begin, end, last, source, scale, finish, column, out);
        column += 2 * lanes;
    }
    if (column + lanes <= width) {
        sum_tile<1>(input, width, begin, end, last, source, scale, finish, column, out);
        column += lanes;
    }
    if (column < width) sum_rest(input, width, begin, end, source, scale, finish, column, out);
}

}  // namespace graphmill
