// The choice of one row; see choose.h.
#include "sampling/choose.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "sampling/sampling.h"

#if defined(__AVX512F__) && defined(__AVX512CD__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define GRAPHMILL_CHOOSE_WIDE 1
#include <immintrin.h>
#endif

namespace graphmill {
namespace {

#ifdef GRAPHMILL_CHOOSE_WIDE
// Choosing up to 32 positions in vector registers (AVX-512): the same rule, to the bit.
//
// Floyd's draws do not depend on each other, only their acceptance does. So all are drawn at once; a draw that repeats an
// earlier member is found by comparing lanes and replaced by its `last`, in order; a bitonic network (Batcher, Sorting
// networks and their applications, AFIPS 1968) sorts what is left. No branch depends on the draws but a repetition.

// GCC 12's own intrinsics trip its warning about uninitialised registers.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

constexpr int64_t WIDEST = 32;  // positions that are chosen in registers; `out` has space for as many

// Counter i of a row's key is at key + STEPS[i].
struct Steps {
    alignas(64) uint64_t of[WIDEST];
    constexpr Steps() : of() {
        for (int i = 0; i < WIDEST; ++i) of[i] = (static_cast<uint64_t>(i) + 1) * GOLDEN;
    }
};
constexpr Steps STEPS{};

// bounded(draw(key, first + lane), limit[lane]) for eight lanes; limits are below 2^32.
inline __m256i draw_eight(uint64_t key, int first, __m512i limit) {
    __m512i z = _mm512_add_epi64(_mm512_set1_epi64(key), _mm512_load_si512(STEPS.of + first));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 30));
    z = _mm512_mullo_epi64(z, _mm512_set1_epi64(0xBF58476D1CE4E5B9ull));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 27));
    z = _mm512_mullo_epi64(z, _mm512_set1_epi64(0x94D049BB133111EBull));
    z = _mm512_xor_si512(z, _mm512_srli_epi64(z, 31));
    // The product has 96 bits: its top 32 out of two products of 64.
    const __m512i low = _mm512_srli_epi64(_mm512_mul_epu32(z, limit), 32);
    const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(z, 32), limit);
    return _mm512_cvtepi64_epi32(_mm512_srli_epi64(_mm512_add_epi64(low, high), 32));
}

// Eight draws from counter FIRST on; without replacement counter i has the limit base + i + 1.
template <int FIRST>
inline __m256i draw_lanes(uint64_t key, uint32_t degree, uint32_t base, bool replace) {
    const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i growing = _mm512_add_epi64(lane, _mm512_set1_epi64(int64_t{base} + FIRST + 1));
    return draw_eight(key, FIRST, replace ? _mm512_set1_epi64(degree) : growing);
}

inline __m512i join(__m256i low, __m256i high) { return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1); }

// The lanes, one bit each, that hold the larger of a pair in the step (SPAN, APART) of a bitonic network.
template <int SPAN, int APART>
constexpr uint32_t upper_lanes() {
    uint32_t lanes = 0;
    for (int i = 0; i < 16; ++i) lanes |= uint32_t{((i & APART) != 0) != ((i & SPAN) != 0)} << i;
    return lanes;
}

template <int APART>
inline __m512i across(__m512i v) {
    if constexpr (APART == 1) return _mm512_shuffle_epi32(v, _MM_PERM_CDAB);
    if constexpr (APART == 2) return _mm512_shuffle_epi32(v, _MM_PERM_BADC);
    if constexpr (APART == 4) return _mm512_shuffle_i64x2(v, v, 0b10110001);
    return _mm512_shuffle_i64x2(v, v, 0b01001110);
}

template <int APART>
inline __m256i across(__m256i v) {
    if constexpr (APART == 1) return _mm256_shuffle_epi32(v, 0b10110001);
    if constexpr (APART == 2) return _mm256_shuffle_epi32(v, 0b01001110);
    return _mm256_permute2x128_si256(v, v, 1);
}

template <int SPAN, int APART>
inline __m512i exchange(__m512i v) {
    const __m512i other = across<APART>(v);
    return _mm512_mask_max_epu32(_mm512_min_epu32(v, other), upper_lanes<SPAN, APART>(), v, other);
}

template <int SPAN, int APART>
inline __m256i exchange(__m256i v) {
    const __m256i other = across<APART>(v);
    return _mm256_mask_max_epu32(_mm256_min_epu32(v, other), upper_lanes<SPAN, APART>() & 0xFF, v, other);
}

template <class Vector>
inline Vector sort_to_eight(Vector v) {
    v = exchange<2, 1>(v);
    v = exchange<4, 1>(exchange<4, 2>(v));
    return exchange<8, 1>(exchange<8, 2>(exchange<8, 4>(v)));
}

// Sorts lanes that rise and then fall, or the other way round.
inline __m512i merge_sixteen(__m512i v) {
    return exchange<16, 1>(exchange<16, 2>(exchange<16, 4>(exchange<16, 8>(v))));
}

inline __m512i sort_sixteen(__m512i v) { return merge_sixteen(sort_to_eight(v)); }

// Ascending choice of at most eight; lanes from `taken` on are above every position.
inline void choose_eight(uint64_t key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    const uint32_t base = static_cast<uint32_t>(degree - taken), lanes = (1u << taken) - 1;
    __m256i v = draw_lanes<0>(key, degree, base, replace);
    if (!replace) {
        uint32_t clash = _mm256_test_epi32_mask(_mm256_conflict_epi32(v), _mm256_set1_epi32(-1)) & lanes;
        for (; clash; clash &= clash - 1) {
            const int lane = __builtin_ctz(clash);
            const __m256i last = _mm256_set1_epi32(static_cast<int>(base + lane));
            clash |= _mm256_cmpeq_epi32_mask(v, last) & lanes & (~1u << lane);
            v = _mm256_mask_mov_epi32(v, 1u << lane, last);
        }
    }
    v = _mm256_mask_mov_epi32(_mm256_set1_epi32(-1), lanes, v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), sort_to_eight(v));
}

inline void choose_sixteen(uint64_t key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    const uint32_t base = static_cast<uint32_t>(degree - taken), lanes = (1u << taken) - 1;
    __m512i v = join(draw_lanes<0>(key, degree, base, replace), draw_lanes<8>(key, degree, base, replace));
    if (!replace) {
        uint32_t clash = _mm512_test_epi32_mask(_mm512_conflict_epi32(v), _mm512_set1_epi32(-1)) & lanes;
        for (; clash; clash &= clash - 1) {
            const int lane = __builtin_ctz(clash);
            const __m512i last = _mm512_set1_epi32(static_cast<int>(base + lane));
            clash |= _mm512_cmpeq_epi32_mask(v, last) & lanes & (~1u << lane);
            v = _mm512_mask_mov_epi32(v, 1u << lane, last);
        }
    }
    v = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), lanes, v);
    _mm512_storeu_si512(out, sort_sixteen(v));
}

// Lanes of the upper sixteen that repeat one of the lower; the masks of sixteen comparisons are joined.
inline uint32_t repeats_across(__m512i low, __m512i high) {
    alignas(64) uint32_t values[16];
    _mm512_store_si512(values, low);
    __mmask16 lanes = 0;
    for (int i = 0; i < 16; ++i) {
        lanes = _kor_mask16(lanes, _mm512_cmpeq_epi32_mask(high, _mm512_set1_epi32(static_cast<int>(values[i]))));
    }
    return _cvtmask16_u32(lanes);
}

// Ascending choice of 17 to 32.
inline void choose_thirty_two(uint64_t key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    const uint32_t base = static_cast<uint32_t>(degree - taken);
    const uint32_t lanes = taken == WIDEST ? ~0u : (1u << taken) - 1;
    __m512i low = join(draw_lanes<0>(key, degree, base, replace), draw_lanes<8>(key, degree, base, replace));
    __m512i high = join(draw_lanes<16>(key, degree, base, replace), draw_lanes<24>(key, degree, base, replace));
    if (!replace) {
        const __m512i all = _mm512_set1_epi32(-1);
        uint32_t clash = _mm512_test_epi32_mask(_mm512_conflict_epi32(high), all) | repeats_across(low, high);
        clash = (clash << 16 | _mm512_test_epi32_mask(_mm512_conflict_epi32(low), all)) & lanes;
        for (; clash; clash &= clash - 1) {
            const int lane = __builtin_ctz(clash);
            const __m512i last = _mm512_set1_epi32(static_cast<int>(base + lane));
            const uint32_t equal = uint32_t{_mm512_cmpeq_epi32_mask(high, last)} << 16 | _mm512_cmpeq_epi32_mask(low, last);
            clash |= equal & lanes & (~1u << lane);
            low = _mm512_mask_mov_epi32(low, static_cast<__mmask16>(1u << lane), last);
            high = _mm512_mask_mov_epi32(high, static_cast<__mmask16>(uint64_t{1} << lane >> 16), last);
        }
    }
    high = _mm512_mask_mov_epi32(_mm512_set1_epi32(-1), static_cast<__mmask16>(lanes >> 16), high);
    const __m512i reverse = _mm512_set_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    low = sort_sixteen(low);
    high = _mm512_permutexvar_epi32(reverse, sort_sixteen(high));
    _mm512_storeu_si512(out, merge_sixteen(_mm512_min_epu32(low, high)));
    _mm512_storeu_si512(out + 16, merge_sixteen(_mm512_max_epu32(low, high)));
}

// Writes `taken` <= WIDEST ascending positions and, behind them, up to WIDEST in all that mean nothing.
inline void choose_wide(uint64_t key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    if (taken <= 8) return choose_eight(key, degree, taken, replace, out);
    if (taken <= 16) return choose_sixteen(key, degree, taken, replace, out);
    choose_thirty_two(key, degree, taken, replace, out);
}

#pragma GCC diagnostic pop
#endif

constexpr int64_t SMALL = 64;

// Floyd's algorithm (Bentley and Floyd, A sample of brilliance, CACM 1987). The set is kept sorted: counting the
// members up to the draw is one vector loop and gives membership and place at once.
void floyd_sorted(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
    for (int64_t i = 0; i < taken; ++i) {
        const uint32_t last = static_cast<uint32_t>(degree - taken + i);
        const uint32_t drawn = static_cast<uint32_t>(bounded(draw(row_key, i), uint64_t{last} + 1));
        uint32_t below = 0;
        for (int64_t j = 0; j < i; ++j) below += out[j] <= drawn;
        if (below > 0 && out[below - 1] == drawn) {
            out[i] = last;  // every earlier choice is smaller
            continue;
        }
        std::memmove(out + below + 1, out + below, (i - below) * sizeof(uint32_t));
        out[below] = drawn;
    }
}

}  // namespace

void Chooser::operator()(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
#ifdef GRAPHMILL_CHOOSE_WIDE
    if (taken <= WIDEST) return choose_wide(row_key, degree, taken, replace, out);
#endif
    anywhere(row_key, degree, taken, replace, out);
}

void Chooser::anywhere(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    if (replace) {
        for (int64_t i = 0; i < taken; ++i) out[i] = static_cast<uint32_t>(bounded(draw(row_key, i), degree));
        std::sort(out, out + taken);
    } else if (taken <= SMALL) {
        floyd_sorted(row_key, degree, taken, out);
    } else {
        floyd_hashed(row_key, degree, taken, out);
    }
}

// The same choice as floyd_sorted with a table instead of a scan: O(taken) draws, then one sort.
void Chooser::floyd_hashed(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
    set_.clear(taken);
    for (int64_t i = 0; i < taken; ++i) {
        const uint32_t last = static_cast<uint32_t>(degree - taken + i);
        const uint32_t drawn = static_cast<uint32_t>(bounded(draw(row_key, i), uint64_t{last} + 1));
        out[i] = set_.insert(drawn) ? drawn : last;
        if (out[i] == last) set_.insert(last);
    }
    std::sort(out, out + taken);
}

Buffer<uint32_t> choose(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, bool anywhere) {
    Buffer<uint32_t> out(taken + Chooser::SPACE);
    Chooser chooser;
    if (anywhere) {
        chooser.anywhere(row_key, degree, taken, replace, out.data());
    } else {
        chooser(row_key, degree, taken, replace, out.data());
    }
    out.shrink(taken);
    return out;
}

}  // namespace graphmill
