// exp of a vector, for arguments of at most 0 as a softmax has them: within 2 units in the last place, the same bits everywhere.
//
// Cephes (Moshier): x = n ln 2 + r; exp(r) by a polynomial in float32, by a rational function in float64; times 2^n through the
// exponent's bits. Results below the least normal number are 0. NaN stays NaN.
#pragma once

#include <cstdint>

#include "base/simd.h"

namespace graphmill {

template <class S>
inline typename Wide<S>::Vector exp_of(typename Wide<S>::Vector x) {
    using Vector = typename Wide<S>::Vector;
    using Index = typename Wide<S>::Index;
    constexpr bool narrow = sizeof(S) == 4;
    constexpr int MANTISSA = narrow ? 23 : 52, BIAS = narrow ? 127 : 1023;
    // Adding and subtracting it rounds to an integer, which then stands in the low bits.
    constexpr S ROUND = narrow ? S(12582912.0) : S(6755399441055744.0);
    constexpr S LEAST = narrow ? S(-87.3) : S(-708.3);
    const Vector shifted = x * S(1.44269504088896340736) + ROUND;
    const Vector n = shifted - ROUND;
    const Index power = (Index)shifted - (Index)(Vector{} + ROUND);
    Vector y;
    if constexpr (narrow) {
        const Vector r = x - n * S(0.693359375) - n * S(-2.12194440e-4);
        y = r * S(1.9875691500e-4) + S(1.3981999507e-3);
        y = y * r + S(8.3334519073e-3);
        y = y * r + S(4.1665795894e-2);
        y = y * r + S(1.6666665459e-1);
        y = y * r + S(5.0000001201e-1);
        y = y * r * r + r + S(1);
    } else {
        const Vector r = x - n * S(6.93145751953125e-1) - n * S(1.42860682030941723212e-6), rr = r * r;
        const Vector p = r * ((rr * S(1.26177193074810590878e-4) + S(3.02994407707441961300e-2)) * rr +
                              S(9.99999999999999999910e-1));
        const Vector q = ((rr * S(3.00198505138664455042e-6) + S(2.52448340349684104192e-3)) * rr +
                          S(2.27265548208155028766e-1)) * rr + S(2);
        y = S(1) + S(2) * p / (q - p);
    }
    y = y * (Vector)((power + BIAS) << MANTISSA);
    return x < LEAST ? Vector{} : y;
}

}  // namespace graphmill
