// The part of CUDA's header that kernels use: bfloat16 bits and their conversion to and from float32.
#pragma once

struct __nv_bfloat16 {
    unsigned short bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline float __bfloat162float(__nv_bfloat16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

// To nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<unsigned short>(0x7FFFu)};
    return {static_cast<unsigned short>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}
