// Stores that go past the caches: a line that is written whole need not be read from memory first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace graphmill {

// Streams 64 bytes from anywhere to a cache line.
inline void stream_line(void* to, const void* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
    for (int part = 0; part < 2; ++part)
        _mm256_stream_si256(static_cast<__m256i*>(to) + part, _mm256_loadu_si256(static_cast<const __m256i*>(from) + part));
#elif defined(__SSE2__)
    for (int part = 0; part < 4; ++part)
        _mm_stream_si128(static_cast<__m128i*>(to) + part, _mm_loadu_si128(static_cast<const __m128i*>(from) + part));
#else
    std::memcpy(to, from, 64);
#endif
}

// Copies bytes; whole lines of the target are streamed. It is fastest where both sides have the same place in their lines.
inline void stream_bytes(char* to, const char* from, int64_t bytes) {
    int64_t at = std::min(bytes, static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63));
    std::memcpy(to, from, at);
    for (; at + 64 <= bytes; at += 64) stream_line(to + at, from + at);
    std::memcpy(to + at, from + at, bytes - at);
}

// Streamed stores reach other threads only after this.
inline void publish_streamed() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

}  // namespace graphmill
