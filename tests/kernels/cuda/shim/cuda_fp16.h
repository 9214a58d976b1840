// The part of CUDA's header that kernels use: float16 bits and their conversion to and from float32.
#pragma once

#include "base/half.h"

struct __half {
    unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
SHIM_UNCHECKED inline float __half2float(__half value) { return static_cast<float>(graphmill::Half{value.bits}); }

// To nearest, ties to even.
SHIM_UNCHECKED inline __half __float2half(float value) {
    const unsigned bits = static_cast<unsigned>(shim::to_bits(value)), sign = bits >> 16 & 0x8000u;
    const unsigned magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return {static_cast<unsigned short>(0x7FFFu)};
    if (magnitude >= 0x47800000u) return {static_cast<unsigned short>(sign | 0x7C00u)};  // 65536 and above
    if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
        const float steps = shim::from_bits<float>(magnitude) * 0x1p24f;
        return {static_cast<unsigned short>(sign | static_cast<unsigned>(std::nearbyint(steps)))};
    }
    const unsigned rounded = magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u);
    return {static_cast<unsigned short>(sign | rounded >> 13)};
}
