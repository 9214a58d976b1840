// Loops over the heads of an edge, a few at a time in one short vector.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/simd.h"

namespace graphmill {

template <class S, int COUNT>
struct HeadLanes {
    typedef S Vector __attribute__((vector_size(COUNT * sizeof(S)), aligned(alignof(S)), may_alias));
};
template <class S>
struct HeadLanes<S, 1> {
    using Vector = S;
};
// One number for each of COUNT heads that stand side by side.
template <class S, int COUNT>
using HeadVector = typename HeadLanes<S, COUNT>::Vector;

template <int COUNT, class T>
inline HeadVector<Sum<T>, COUNT> load_heads(const T* from) {
    using Vector = HeadVector<Sum<T>, COUNT>;
    if constexpr (COUNT == 1) {
        return widen(*from);
    } else if constexpr (std::is_same_v<T, Sum<T>>) {
        return *reinterpret_cast<const Vector*>(from);
    } else {
        Vector value;
        for (int k = 0; k < COUNT; ++k) value[k] = widen(from[k]);
        return value;
    }
}

template <int COUNT, class T>
inline void store_heads(T* to, HeadVector<Sum<T>, COUNT> value) {
    if constexpr (COUNT == 1) {
        *to = narrow<T>(value);
    } else if constexpr (std::is_same_v<T, Sum<T>>) {
        *reinterpret_cast<HeadVector<Sum<T>, COUNT>*>(to) = value;
    } else {
        for (int k = 0; k < COUNT; ++k) to[k] = narrow<T>(value[k]);
    }
}

// What dropout leaves of the weights of an edge: 0 or `scale`, from one byte a head.
template <int COUNT, class S>
inline HeadVector<S, COUNT> load_mask(const uint8_t* kept, S scale) {
    if constexpr (COUNT == 1) {
        return kept[0] * scale;
    } else {
        HeadVector<S, COUNT> value;
        for (int k = 0; k < COUNT; ++k) value[k] = kept[k] * scale;
        return value;
    }
}

// Calls body(how many as a constant, the first of them) until all heads are covered: by eights, and then what is left.
template <class Body>
inline void each_heads(int64_t heads, const Body& body) {
    int64_t h = 0;
    for (; h + 8 <= heads; h += 8) body(std::integral_constant<int, 8>{}, h);
    const auto rest = [&](auto count) {
        if (heads - h < count.value) return;
        body(count, h);
        h += count.value;
    };
    rest(std::integral_constant<int, 4>{});
    rest(std::integral_constant<int, 2>{});
    rest(std::integral_constant<int, 1>{});
}

}  // namespace graphmill
