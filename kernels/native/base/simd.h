// Vectors of columns: loaded from rows of any float type, computed with in float32 or float64, stored with one rounding.
//
// A vector is 64 bytes of numbers whatever the machine has; the compiler cuts it up where registers are shorter. So the order of
// all additions, and with it every bit of a result, is the same on each of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/half.h"
#include "base/nontemporal.h"

namespace graphmill {

// What sums of a type are kept in.
template <class T>
struct Summed {
    using Type = T;
};
template <>
struct Summed<Half> {
    using Type = float;
};
template <>
struct Summed<BFloat> {
    using Type = float;
};
template <class T>
using Sum = typename Summed<T>::Type;

template <class S>
struct Wide {
    // Rows start anywhere: widths are arbitrary, so vectors are aligned like their elements.
    typedef S Vector __attribute__((vector_size(64), aligned(alignof(S)), may_alias));
    using Int = std::conditional_t<sizeof(S) == 4, int32_t, int64_t>;
    typedef Int Index __attribute__((vector_size(64), aligned(alignof(S)), may_alias));
    static constexpr int64_t LANES = 64 / sizeof(S);
};

template <class T>
using Vector = typename Wide<Sum<T>>::Vector;
template <class T>
constexpr int64_t LANES = Wide<Sum<T>>::LANES;

// Vectors that fit the registers beside what else a loop needs.
#ifdef __AVX512F__
constexpr int MOST_VECTORS = 16;
#else
constexpr int MOST_VECTORS = 4;
#endif

typedef uint16_t Shorts __attribute__((vector_size(32), aligned(2), may_alias));
typedef uint32_t Words __attribute__((vector_size(64), aligned(4), may_alias));

template <class T>
inline Vector<T> load(const T* from) {
    return *reinterpret_cast<const Vector<T>*>(from);
}
template <class T>
inline void store(T* to, Vector<T> value) {
    *reinterpret_cast<Vector<T>*>(to) = value;
}

// As store, past the caches: `to` begins a cache line, which a vector of T fills.
template <class T>
inline void store_past(T* to, Vector<T> value) {
    static_assert(sizeof(T) == sizeof(Sum<T>));
    stream_line(to, &value);
}

template <>
inline Vector<BFloat> load<BFloat>(const BFloat* from) {
#if defined(__AVX512F__)
    // In one instruction, where the compiler would convert halves of the vector and join them.
    const auto wide = (Words)_mm512_maskz_cvtepu16_epi32(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
    const Words wide = __builtin_convertvector(*reinterpret_cast<const Shorts*>(from), Words);
#endif
    return reinterpret_cast<Vector<BFloat>>(wide << 16);
}
template <>
inline void store<BFloat>(BFloat* to, Vector<BFloat> value) {
    const Words in = reinterpret_cast<Words>(value);
    const Words rounded = (in + 0x7FFFu + (in >> 16 & 1u)) >> 16;
    const Words out = (in & 0x7FFFFFFFu) > 0x7F800000u ? (in >> 16 | 0x40u) : rounded;
    *reinterpret_cast<Shorts*>(to) = __builtin_convertvector(out, Shorts);
}

template <>
inline Vector<Half> load<Half>(const Half* from) {
#if defined(__AVX512F__)
    return (Vector<Half>)_mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#else
    Vector<Half> value;
    for (int lane = 0; lane < 16; lane += 8) {
#ifdef __F16C__
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + lane));
        _mm256_storeu_ps(reinterpret_cast<float*>(&value) + lane, _mm256_cvtph_ps(halves));
#else
        for (int next = lane; next < lane + 8; ++next) value[next] = static_cast<float>(from[next]);
#endif
    }
    return value;
#endif
}
template <>
inline void store<Half>(Half* to, Vector<Half> value) {
#if defined(__AVX512F__)
    const __m256i halves = _mm512_maskz_cvtps_ph(0xFFFF, (__m512)value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
#else
    for (int lane = 0; lane < 16; lane += 8) {
#ifdef __F16C__
        const __m256 floats = _mm256_loadu_ps(reinterpret_cast<const float*>(&value) + lane);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + lane), _mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
#else
        for (int next = lane; next < lane + 8; ++next) to[next] = Half::from(value[next]);
#endif
    }
#endif
}

// One number, for rows that are narrower than a vector.
template <class T>
inline Sum<T> widen(T value) {
    return static_cast<Sum<T>>(value);
}
template <class T>
inline T narrow(Sum<T> value) {
    if constexpr (std::is_same_v<T, Sum<T>>) return value;
    else return T::from(value);
}

}  // namespace graphmill
