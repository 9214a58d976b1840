// Deals a range of feature rows to the regions of a file that want them; see kernels/pack.py.
#include <atomic>
#include <cstring>
#include <optional>

#include "arrays.h"
#include "parallel.h"

namespace graphmill {

constexpr int64_t AHEAD = 4;          // rows between the prefetch of a row and its copy
constexpr int64_t PREFETCHED = 1024;  // bytes of a row that are asked for; the hardware follows up

// The range that is in memory, and the file.
struct Range {
    const char* rows;
    int64_t first, count, row_bytes;
    char* out;
    int64_t out_bytes;

    const char* row(int64_t id) const { return rows + (id - first) * row_bytes; }
    void prefetch(int64_t id) const {
        for (int64_t byte = 0; byte < std::min(row_bytes, PREFETCHED); byte += 64) __builtin_prefetch(row(id) + byte);
    }
};

template <class Id>
struct List {
    const Id* ids;
    const int32_t* places;
    int64_t begin, end, offset;  // the list's entries, and the first byte of its region
};

[[noreturn]] static void refuse(int64_t id, const std::string& what) {
    throw InputError("row " + std::to_string(id) + " " + what,
                     "give ascending lists inside the file, and every range of the table in order");
}

// Copies the entries from `cursor` on that lie in the range; returns the cursor behind them.
template <class Id>
static int64_t deal(const Range& range, const List<Id>& list, int64_t cursor) {
    const int64_t last = range.first + range.count;
    int64_t before = cursor > list.begin ? list.ids[cursor - 1] : -1;
    for (; cursor < list.end && list.ids[cursor] < last; ++cursor) {
        const int64_t id = list.ids[cursor];
        if (id < range.first || id <= before) {
            refuse(id, "of a list comes too late: the list is not ascending, or a range is missing");
        }
        before = id;
        if (cursor + AHEAD < list.end && list.ids[cursor + AHEAD] < last && list.ids[cursor + AHEAD] >= range.first) {
            range.prefetch(list.ids[cursor + AHEAD]);
        }
        const int64_t place = list.places ? list.places[cursor] : cursor - list.begin;
        const int64_t start = list.offset + place * range.row_bytes;
        const bool inside = place >= 0 && place < list.end - list.begin && start >= 0;
        if (!inside || start + range.row_bytes > range.out_bytes) {
            refuse(id, "has a place outside its region or the file");
        }
        std::memcpy(range.out + start, range.row(id), range.row_bytes);
    }
    return cursor;
}

template <class Id>
static int64_t pack_range(Array<uint8_t> rows, int64_t first, Array<int64_t> ptr, Array<Id> ids, Array<int64_t> offsets,
                          std::optional<Array<int32_t>> places, Array<int64_t> cursor, Array<uint8_t> out, int threads) {
    const Range range{reinterpret_cast<const char*>(rows.data()), first, rows.shape(0), rows.shape(1),
                      reinterpret_cast<char*>(out.mutable_data()), out.size()};
    const int64_t *bounds = ptr.data(), *starts = offsets.data();
    const Id* nodes = ids.data();
    const int32_t* place = places ? places->data() : nullptr;
    int64_t* at = cursor.mutable_data();
    const int64_t num_lists = offsets.size();
    py::gil_scoped_release unlocked;
    std::atomic<int64_t> written{0};
    parallel_for(num_lists, 1, threads, [&](int64_t begin, int64_t end) {
        for (int64_t l = begin; l < end; ++l) {
            const int64_t before = at[l];
            at[l] = deal(range, List<Id>{nodes, place, bounds[l], bounds[l + 1], starts[l]}, before);
            written += at[l] - before;
        }
    });
    return written;
}

template <class Id>
static void bind(py::module_& m) {
    using py::arg;
    m.def("pack_range", &pack_range<Id>, arg("rows").noconvert(), arg("first_row"), arg("ptr").noconvert(),
          arg("ids").noconvert(), arg("offsets").noconvert(), arg("places").noconvert(), arg("cursor").noconvert(),
          arg("out").noconvert(), arg("threads"));
}

void bind_pack(py::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace graphmill
