// The digest of one page of a file: XXH64 with seed 0, the algorithm that Python's xxhash.xxh64 is.
#pragma once

#include <cstdint>
#include <cstring>

#include "rows/row_requests.h"

namespace graphmill {

namespace xxh64 {
constexpr uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9, P4 = 0x85EBCA77C2B2AE63;

inline uint64_t rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }
inline uint64_t add(uint64_t lane, uint64_t word) { return rotate(lane + word * P2, 31) * P1; }
inline uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ add(0, lane)) * P1 + P4; }
}  // namespace xxh64

// A page is a whole number of stripes of 32 bytes, so the algorithm's cases for a rest do not occur.
inline uint64_t page_digest(const char* page) {
    using namespace xxh64;
    uint64_t lanes[4] = {P1 + P2, P2, 0, 0 - P1}, words[4];
    for (int64_t at = 0; at < PAGE_BYTES; at += sizeof words) {
        // The processor's own prefetching begins anew at every page, so the next one is fetched meanwhile.
        if (at % 64 == 0) __builtin_prefetch(page + PAGE_BYTES + at);
        std::memcpy(words, page + at, sizeof words);
        for (int lane = 0; lane < 4; ++lane) lanes[lane] = add(lanes[lane], words[lane]);
    }
    uint64_t hash = rotate(lanes[0], 1) + rotate(lanes[1], 7) + rotate(lanes[2], 12) + rotate(lanes[3], 18);
    for (const uint64_t lane : lanes) hash = merge(hash, lane);
    hash += PAGE_BYTES;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

// words[i] = the digest of page i.
inline void digest_pages(const char* pages, int64_t num_bytes, uint64_t* words) {
    for (int64_t i = 0; i < num_bytes / PAGE_BYTES; ++i) words[i] = page_digest(pages + i * PAGE_BYTES);
}

}  // namespace graphmill
