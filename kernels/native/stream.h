// Stores that go past the caches: a line that is written whole need not be read from memory first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace graphmill {

// Copies bytes; whole lines of the target are streamed. It is fastest where both sides have the same place in their lines.
inline void stream_bytes(char* to, const char* from, int64_t bytes) {
#ifdef __SSE2__
    int64_t at = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63));
    std::memcpy(to, from, at);
    for (; at + 64 <= bytes; at += 64) {
#if defined(__AVX512F__)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(from + at));
#elif defined(__AVX2__)
        for (int64_t part = at; part < at + 64; part += 32)
            _mm256_stream_si256(reinterpret_cast<__m256i*>(to + part),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + part)));
#else
        for (int64_t part = at; part < at + 64; part += 16)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + part),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part)));
#endif
    }
    std::memcpy(to + at, from + at, bytes - at);
#else
    std::memcpy(to, from, bytes);
#endif
}

// Streamed stores reach other threads only after this.
inline void publish_streamed() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

}  // namespace graphmill
