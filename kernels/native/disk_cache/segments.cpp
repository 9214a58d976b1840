// Segments of batches: pages touched, the split between cache and chunks, and gaps between uses of a row.
// See kernels/rows/pages.py, kernels/disk_cache/segments.py and kernels/disk_cache/segment_size.py.
#include "disk_cache/disk_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PAGE = 4096;
constexpr int64_t AHEAD = 24;     // ids between the prefetch of a state and its use
constexpr int64_t PIECE = 32768;  // ids a thread takes at once
constexpr int64_t GAPS_PIECE = 1 << 16;  // at least, where a team is made for each batch: for less it waits more than it works

template <class Id>
void check_range(const Id* ids, int64_t count, int64_t limit, const char* what) {
    bool sound = true;
    for (int64_t i = 0; i < count; ++i) sound &= (ids[i] >= 0) & (ids[i] < limit);
    if (sound) return;
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] >= 0 && ids[i] < limit) continue;
        throw InputError(std::string(what) + " " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                             " is not in 0.." + std::to_string(limit - 1),
                         "give ids that are in range");
    }
}

int32_t load(const int32_t* place) { return __atomic_load_n(place, __ATOMIC_RELAXED); }
void store(int32_t* place, int32_t value) { __atomic_store_n(place, value, __ATOMIC_RELAXED); }

void mark(std::vector<uint64_t>& bits, int64_t first, int64_t last) {
    for (int64_t page = first; page <= last; ++page) bits[page >> 6] |= uint64_t{1} << (page & 63);
}

// The ids whose count reached 2, ascending: a bitmap is set in parallel and read in order.
template <class Id>
std::vector<Id> shared_ids(const Id* ids, int64_t count, const int32_t* state, int64_t num_nodes, int threads) {
    std::vector<uint64_t> bits((num_nodes + 63) / 64);
    parallel_for(count, PIECE, threads, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
            if (i + AHEAD < last) __builtin_prefetch(state + ids[i + AHEAD]);
            if (state[ids[i]] < 2) continue;
            uint64_t* word = &bits[ids[i] >> 6];
            const uint64_t bit = uint64_t{1} << (ids[i] & 63);
            if (!(__atomic_load_n(word, __ATOMIC_RELAXED) & bit)) __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
        }
    });
    std::vector<Id> found;
    for (size_t w = 0; w < bits.size(); ++w)
        for (uint64_t word = bits[w]; word; word &= word - 1)
            found.push_back(static_cast<Id>(w * 64 + __builtin_ctzll(word)));
    return found;
}

// Keeps the `most` ids with the largest counts, equal ones by smaller id; the order stays ascending.
template <class Id>
void keep_hottest(std::vector<Id>& ids, const int32_t* state, int64_t most, int64_t num_batches) {
    if (most < 0 || most >= static_cast<int64_t>(ids.size())) return;
    std::vector<int64_t> with_count(num_batches + 2, 0);
    for (const Id v : ids) ++with_count[std::min<int64_t>(state[v], num_batches + 1)];
    int64_t threshold = num_batches + 1, left = most;
    while (left >= with_count[threshold]) left -= with_count[threshold--];
    size_t kept = 0;
    for (const Id v : ids)
        if (state[v] > threshold || (state[v] == threshold && left-- > 0)) ids[kept++] = v;
    ids.resize(kept);
}

}  // namespace

template <class Id>
void touched_pages(Array<const int64_t> ptr, Array<const Id> rows, int64_t num_rows, int64_t row_bytes, Array<int64_t> pages,
                   Array<int64_t> ranges, int threads) {
    const int64_t *begins = ptr.data(), num_batches = ptr.size() - 1;
    const Id* row = rows.data();
    int64_t *num_pages = pages.data(), *num_ranges = ranges.data();
    check_range(row, begins[num_batches], num_rows, "row");
    if (row_bytes == 0) return;
    const int64_t words = ((num_rows * row_bytes + PAGE - 1) / PAGE + 63) / 64;
    parallel_for(num_batches, 1, threads, [&](int64_t first, int64_t last) {
        std::vector<uint64_t> bits(words);
        for (int64_t b = first; b < last; ++b) {
            std::fill(bits.begin(), bits.end(), 0);
            for (int64_t i = begins[b]; i < begins[b + 1]; ++i) {
                const int64_t start = row[i] * row_bytes;
                mark(bits, start / PAGE, (start + row_bytes - 1) / PAGE);
            }
            uint64_t before = 0;  // the last page of the word before
            for (const uint64_t word : bits) {
                num_pages[b] += __builtin_popcountll(word);
                num_ranges[b] += __builtin_popcountll(word & ~(word << 1 | before));
                before = word >> 63;
            }
        }
    });
}

// While this works, the state is the count of an id, or -2 - place for a cached one.
template <class Id>
SplitSegment<Id> split_segment(Array<const int64_t> ptr, Array<const Id> node_ids, Array<int32_t> states, int64_t most_cached,
                               int threads) {
    const int64_t *begins = ptr.data(), num_batches = ptr.size() - 1, count = node_ids.size();
    const int64_t num_nodes = states.size();
    const Id* ids = node_ids.data();
    int32_t* state = states.data();
    Buffer<Id> cache, packed;
    Buffer<int32_t> members;
    Buffer<int64_t> packed_ptr(num_batches + 1), member_ptr(num_batches + 1);
    check_range(ids, count, num_nodes, "node id");
    const bool alone = threads == 1;
    if (num_batches > 1) {
        parallel_for(count, PIECE, threads, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i) {
                if (i + AHEAD < last) __builtin_prefetch(state + ids[i + AHEAD], 1);
                int32_t* place = state + ids[i];
                if (load(place) < 0) continue;
                if (alone) ++*place;
                else __atomic_fetch_add(place, 1, __ATOMIC_RELAXED);
            }
        });
        std::vector<Id> shared = shared_ids(ids, count, state, num_nodes, threads);
        keep_hottest(shared, state, most_cached, num_batches);
        cache = Buffer<Id>(shared.size());
        std::copy(shared.begin(), shared.end(), cache.data());
        for (size_t c = 0; c < shared.size(); ++c) state[shared[c]] = -2 - static_cast<int32_t>(c);
    } else {
        cache = Buffer<Id>(0);
    }
    parallel_for(num_batches, 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; ++b) {
            int64_t num_packed = 0, num_members = 0;
            for (int64_t i = begins[b]; i < begins[b + 1]; ++i) {
                if (i + AHEAD < begins[b + 1]) __builtin_prefetch(state + ids[i + AHEAD]);
                num_packed += state[ids[i]] >= 0;
                num_members += state[ids[i]] < -1;
            }
            packed_ptr[b + 1] = num_packed;
            member_ptr[b + 1] = num_members;
        }
    });
    packed_ptr[0] = member_ptr[0] = 0;
    for (int64_t b = 0; b < num_batches; ++b) {
        packed_ptr[b + 1] += packed_ptr[b];
        member_ptr[b + 1] += member_ptr[b];
    }
    packed = Buffer<Id>(packed_ptr[num_batches]);
    members = Buffer<int32_t>(member_ptr[num_batches]);
    parallel_for(num_batches, 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; ++b) {
            Id* own = packed.data() + packed_ptr[b];
            int32_t* member = members.data() + member_ptr[b];
            for (int64_t i = begins[b]; i < begins[b + 1]; ++i) {
                if (i + AHEAD < begins[b + 1]) __builtin_prefetch(state + ids[i + AHEAD]);
                const int32_t value = state[ids[i]];
                if (value >= 0) *own++ = ids[i];
                if (value < -1) *member++ = -2 - value;
            }
            std::sort(packed.data() + packed_ptr[b], own);
        }
    });
    if (num_batches > 1) {
        parallel_for(count, PIECE, threads, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; ++i)
                if (load(state + ids[i]) != -1) store(state + ids[i], 0);
        });
    }
    return {std::move(cache), std::move(packed_ptr), std::move(packed), std::move(member_ptr), std::move(members)};
}

template <class Id>
void count_gaps(int64_t first_batch, Array<const int64_t> ptr, Array<const Id> node_ids, Array<int32_t> lasts, Array<int32_t> gaps,
                int64_t unit_batches, Array<int32_t> far, Array<int64_t> uses, int threads) {
    const int64_t *begins = ptr.data(), num_batches = ptr.size() - 1, num_nodes = lasts.size();
    const int64_t band = gaps.shape(1), far_band = far.shape(1);
    const Id* ids = node_ids.data();
    int32_t *last_use = lasts.data(), *near_rows = gaps.data(), *far_rows = far.data();
    int64_t* num_uses = uses.data();
    check_range(ids, node_ids.size(), num_nodes, "node id");
    for (int64_t b = 0; b < num_batches; ++b) {
        const int64_t batch = first_batch + b, unit = batch / unit_batches;
        int32_t *near_row = near_rows + b * band, *far_row = far_rows + unit * far_band;
        std::atomic<int64_t> twice{-1};
        const int64_t count = begins[b + 1] - begins[b], piece = std::max(GAPS_PIECE, count / (2 * threads) + 1);
        parallel_for(count, piece, threads, [&](int64_t first, int64_t last) {
            // No branch depends on what a node did before: gaps that do not count go to the last place.
            std::vector<int32_t> near_own(band + 1), far_own(far_band + 1);
            int64_t fresh = 0, used = 0;
            const Id* id = ids + begins[b];
            for (int64_t i = first; i < last; ++i) {
                if (i + AHEAD < last) __builtin_prefetch(last_use + id[i + AHEAD], 1);
                const int32_t before = load(last_use + id[i]);
                store(last_use + id[i], before == -2 ? before : static_cast<int32_t>(batch));
                used += before != -2;
                fresh += before == -1;
                const int64_t gap = batch - before;
                if (gap == 0) twice = id[i];
                ++near_own[before < 0 ? band : std::min(gap, band)];
                if (far_band) ++far_own[before < 0 ? far_band : std::min(unit - before / unit_batches, far_band)];
            }
            for (int64_t g = 0; g < band; ++g)
                if (near_own[g]) __atomic_fetch_add(near_row + g, near_own[g], __ATOMIC_RELAXED);
            for (int64_t g = 0; g < far_band; ++g)
                if (far_own[g]) __atomic_fetch_add(far_row + g, far_own[g], __ATOMIC_RELAXED);
            __atomic_fetch_add(num_uses + 2 * b, fresh, __ATOMIC_RELAXED);
            __atomic_fetch_add(num_uses + 2 * b + 1, used, __ATOMIC_RELAXED);
        });
        if (twice >= 0)
            throw InputError("batch " + std::to_string(batch) + " has node " + std::to_string(twice) + " twice",
                             "give every node of a batch once");
    }
}

template decltype(touched_pages<int32_t>) touched_pages<int32_t>;
template decltype(touched_pages<int64_t>) touched_pages<int64_t>;
template decltype(split_segment<int32_t>) split_segment<int32_t>;
template decltype(split_segment<int64_t>) split_segment<int64_t>;
template decltype(count_gaps<int32_t>) count_gaps<int32_t>;
template decltype(count_gaps<int64_t>) count_gaps<int64_t>;

}  // namespace graphmill
