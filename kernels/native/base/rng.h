// Counter-based random numbers: every draw is a pure function of a key and a counter, on any thread and any device.
// The mixing function is the finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
// Generators, OOPSLA 2014, with Stafford's variant 13). kernels/rng.py states the rule and holds the reference.
#pragma once

#ifndef __CUDACC_RTC__  // compiled at run time, CUDA has no headers of C++
#include <cstdint>
#endif

#ifdef __CUDACC__
#define GRAPHMILL_INLINE __host__ __device__ __forceinline__
#else
#define GRAPHMILL_INLINE inline
#endif

namespace graphmill {

#ifdef __CUDACC_RTC__
using uint64_t = unsigned long long;
using int32_t = int;
#endif

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

GRAPHMILL_INLINE uint64_t mix(uint64_t z) {
    z ^= z >> 30;
    z *= 0xBF58476D1CE4E5B9ull;
    z ^= z >> 27;
    z *= 0x94D049BB133111EBull;
    z ^= z >> 31;
    return z;
}

// The key that follows `key` when the word is appended to it.
GRAPHMILL_INLINE uint64_t absorb(uint64_t key, uint64_t word) { return mix((key ^ word) + GOLDEN); }

// The counter-th 64 random bits of a key.
GRAPHMILL_INLINE uint64_t draw(uint64_t key, uint64_t counter) { return mix(key + (counter + 1) * GOLDEN); }

// Maps 64 random bits to 0 .. limit-1. The bias is below limit / 2^64 and no draw is ever rejected.
GRAPHMILL_INLINE uint64_t bounded(uint64_t bits, uint64_t limit) {
#ifdef __CUDA_ARCH__
    return __umul64hi(bits, limit);
#else
    return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * limit) >> 64);
#endif
}

// Sum of the eight bytes: mean 1,020, variance 8 (256^2 - 1) / 12 = 43,690.
GRAPHMILL_INLINE int32_t byte_sum(uint64_t bits) {
    const uint64_t even = 0x00FF00FF00FF00FFull;
    const uint64_t pairs = (bits & even) + ((bits >> 8) & even);
    return static_cast<int32_t>((pairs * 0x0001000100010001ull) >> 48);
}

constexpr int32_t BYTE_SUM_MEAN = 1020;

}  // namespace graphmill
