// Numbers as rows store them, and as sums of them are kept: float32 for float16 and bfloat16, else the type itself.
//
// The operations are those of kernels/native/base/simd.h, one number at a time, so that sums in the same order have the same bits. Nothing is
// contracted to a fused multiply-add (kernels/cuda/device.py compiles without).
#pragma once

#include <cuda_fp16.h>

struct Half {
    unsigned short bits;
};

struct BFloat {
    unsigned short bits;
};

template <class E>
struct Summed {
    using Type = E;
};
template <>
struct Summed<Half> {
    using Type = float;
};
template <>
struct Summed<BFloat> {
    using Type = float;
};
template <class E>
using Sum = typename Summed<E>::Type;

__device__ inline float widen(float value) { return value; }
__device__ inline double widen(double value) { return value; }
__device__ inline float widen(Half value) { return __half2float(__ushort_as_half(value.bits)); }
__device__ inline float widen(BFloat value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

template <class E>
struct Narrowed {
    __device__ static E from(Sum<E> value) { return value; }
};
template <>
struct Narrowed<Half> {
    __device__ static Half from(float value) { return {__half_as_ushort(__float2half(value))}; }
};
template <>
struct Narrowed<BFloat> {
    __device__ static BFloat from(float value) {
        const unsigned in = __float_as_uint(value);
        const bool nan = (in & 0x7FFFFFFFu) > 0x7F800000u;
        return {static_cast<unsigned short>(nan ? in >> 16 | 0x40u : (in + 0x7FFFu + (in >> 16 & 1u)) >> 16)};
    }
};

// COUNT numbers that are loaded and stored at once.
template <class E, int COUNT>
struct alignas(COUNT * sizeof(E)) Pack {
    E element[COUNT];
};
