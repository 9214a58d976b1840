// Distributes a range of feature rows to the buffers of the lists that want them; see kernels/disk_cache/pack.py.
#include "disk_cache/disk_cache.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/input_error.h"
#include "rows/row_prefetch.h"

namespace graphmill {
namespace {

// The range that is in memory.
struct Range {
    const char* rows;
    int64_t first, count, row_bytes;

    int64_t last() const { return first + count; }
    const char* row(int64_t id) const { return rows + (id - first) * row_bytes; }
    void prefetch(int64_t id) const {
        if (id >= first && id < last()) prefetch_row(row(id), row_bytes);
    }
};

[[noreturn]] void refuse(int64_t id) {
    throw InputError("row " + std::to_string(id) + " of a list comes too late: the list is not ascending, or a range is missing",
                     "give ascending lists, and every range of the table in order");
}

// Copies what `ids` want of the range to out[used:space]; `done` counts the list's bytes. Returns the bytes in `out`.
template <class Id>
int64_t distribute(const Range& range, const Id* ids, int64_t count, char* out, int64_t used, int64_t space, int64_t& done) {
    int64_t entry = done / range.row_bytes, within = done % range.row_bytes;
    int64_t before = entry > 0 ? static_cast<int64_t>(ids[entry - 1]) : -1;
    while (entry < count && used < space && ids[entry] < range.last()) {
        const int64_t id = ids[entry];
        if (id < range.first || id <= before) refuse(id);
        if (entry + ROWS_AHEAD < count) range.prefetch(ids[entry + ROWS_AHEAD]);
        const int64_t bytes = std::min(range.row_bytes - within, space - used);
        std::memcpy(out + used, range.row(id) + within, bytes);
        used += bytes;
        done += bytes;
        within += bytes;
        if (within < range.row_bytes) break;  // the buffer is full in the middle of a row
        within = 0;
        before = id;
        ++entry;
    }
    return used;
}

}  // namespace

template <class Id>
bool pack_range(Array<const uint8_t> rows, int64_t first, Array<const int64_t> ptr, Array<const Id> ids, Array<int64_t> done,
                Array<uint8_t> memory, Array<const int64_t> starts, Array<int64_t> used, int64_t low, int64_t high) {
    const Range range{reinterpret_cast<const char*>(rows.data()), first, rows.shape(0), rows.shape(1)};
    const int64_t *bounds = ptr.data(), *start = starts.data();
    const Id* nodes = ids.data();
    char* buffers = reinterpret_cast<char*>(memory.data());
    int64_t *progress = done.data(), *filled = used.data();
    bool more = false;
    for (int64_t l = low; l < high; ++l) {
        const Id* list = nodes + bounds[l];
        const int64_t count = bounds[l + 1] - bounds[l], space = start[l + 1] - start[l];
        filled[l] = distribute(range, list, count, buffers + start[l], filled[l], space, progress[l]);
        const int64_t entry = progress[l] / range.row_bytes;
        more = more || (entry < count && list[entry] < range.last());
    }
    return more;
}

template decltype(pack_range<int32_t>) pack_range<int32_t>;
template decltype(pack_range<int64_t>) pack_range<int64_t>;

}  // namespace graphmill
