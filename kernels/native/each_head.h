// Loops over heads whose number is known when they are compiled.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace graphmill {

// Numbers of heads that loops are compiled for; 0 stands for any. Loops over 4 heads are worth unrolling, loops over 20 are not.
template <class Body>
inline void with_heads(int64_t heads, const Body& body) {
    if (heads == 1) body(std::integral_constant<int, 1>{});
    else if (heads == 2) body(std::integral_constant<int, 2>{});
    else if (heads == 4) body(std::integral_constant<int, 4>{});
    else if (heads == 8) body(std::integral_constant<int, 8>{});
    else body(std::integral_constant<int, 0>{});
}

// One number a head, on the stack where their number is compiled in.
template <class S, int FIXED>
struct EachHead {
    std::conditional_t<FIXED == 0, std::vector<S>, std::array<S, FIXED>> values;
    explicit EachHead(int64_t heads) {
        if constexpr (FIXED == 0) values.resize(heads);
    }
    void fill(S value) { std::fill(values.begin(), values.end(), value); }
    S& operator[](int64_t h) { return values[h]; }
};

}  // namespace graphmill
