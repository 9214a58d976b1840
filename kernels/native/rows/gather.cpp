// Copies chosen rows of tables and converts them on the way; see kernels/rows/gather.py.
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/arrays.h"
#include "base/half.h"
#include "base/parallel.h"
#include "rows/row_prefetch.h"
#include "rows/row_stream.h"

namespace graphmill {
namespace {

constexpr int64_t STREAMED = 8 << 20;  // outputs from so many bytes on are written past the caches
constexpr int64_t JOINED = 512;        // shorter rows that end within a line are joined to whole lines first

// Rows that lie one stride apart.
struct Rows {
    const char* first = nullptr;
    int64_t stride = 0, count = -1;  // -1: there is no such tier

    Rows() = default;
    explicit Rows(const py::array& table)
        : first(static_cast<const char*>(table.data())), stride(table.strides(0)), count(table.shape(0)) {}
};

// kernels/rows/slots.py states what a slot means.
constexpr int ROW_BITS = 29;
constexpr int32_t ROW_MASK = (1 << ROW_BITS) - 1, NO_FEATURES = -1, ELSEWHERE = -2;
constexpr int PEER = 3;
constexpr const char* TIER_NAMES[] = {"device", "host", "staged", "peer"};

struct Tiers {
    std::array<Rows, 3> own;
    std::vector<Rows> peers;
    int64_t peer_stride = 1;

    // The row of a valid slot; nullptr where the node has no features.
    const char* operator()(int32_t slot) const {
        if (slot < 0) return nullptr;
        const int tier = slot >> ROW_BITS;
        int64_t row = slot & ROW_MASK;
        const Rows* rows = &own[0] + tier;
        if (tier == PEER) {
            rows = &peers[row / peer_stride];
            row %= peer_stride;
        }
        return rows->first + row * rows->stride;
    }

    bool holds(int32_t slot) const {
        if (slot < 0) return slot == NO_FEATURES;
        const int64_t row = slot & ROW_MASK;
        if (slot >> ROW_BITS != PEER) return row < own[slot >> ROW_BITS].count;
        const uint64_t peer = row / peer_stride;
        return peer < peers.size() && row % peer_stride < peers[peer].count;
    }

    void check(const int32_t* slots, int64_t count) const {
        bool sound = true;
        for (int64_t i = 0; i < count; ++i) sound &= holds(slots[i]);
        for (int64_t i = 0; !sound && i < count; ++i) {
            if (!holds(slots[i])) refuse(slots[i], i);
        }
    }

    [[noreturn]] void refuse(int32_t slot, int64_t position) const {
        const std::string where = "slot " + std::to_string(slot) + " at position " + std::to_string(position);
        if (slot == ELSEWHERE) {
            throw InputError(where + " says that the row is in none of the tiers",
                             "stage the batch before its rows are gathered");
        }
        if (slot < 0) throw InputError(where + " is no slot", "use -1, -2 or tier << 29 | row");
        const int tier = slot >> ROW_BITS;
        const std::string row =
            " is row " + std::to_string(slot & ROW_MASK) + " of the " + TIER_NAMES[tier] + " tier, ";
        if (tier == PEER) {
            throw InputError(where + row + "which the " + std::to_string(peers.size()) + " peers with stride " +
                                 std::to_string(peer_stride) + " do not have",
                             "gather from the peers that the slots were made for");
        }
        if (own[tier].count < 0) {
            throw InputError(where + row + "which is not given", "give the tiers that the slots were made for");
        }
        throw InputError(where + row + "which has " + std::to_string(own[tier].count) + " rows",
                         "gather from the tiers that the slots were made for");
    }
};

template <class Id>
void check_ids(const Id* ids, int64_t count, int64_t num_rows, const char* is_not = " is not a row of a table of ",
               const char* unit = " rows") {
    bool sound = true;
    for (int64_t i = 0; i < count; ++i) sound &= (ids[i] >= 0) & (ids[i] < num_rows);
    if (sound) return;
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] >= 0 && ids[i] < num_rows) continue;
        throw InputError("node id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                             is_not + std::to_string(num_rows) + unit,
                         "gather from the table of the graph that the ids belong to");
    }
}

// Rows that keep their type are copied as bytes.
struct SameBytes {
    static void copy(const char* row, char* out, int64_t row_bytes) { std::memcpy(out, row, row_bytes); }
};

// The same for an output that the caches could not hold.
struct StreamedBytes {
    static void copy(const char* row, char* out, int64_t row_bytes) { stream_bytes(out, row, row_bytes); }
};

template <class From, class To>
struct Convert {
    static void copy(const char* row, char* out, int64_t row_bytes) {
        const From* from = reinterpret_cast<const From*>(row);
        To* to = reinterpret_cast<To*>(out);
        for (int64_t c = 0; c < row_bytes / int64_t(sizeof(From)); ++c) to[c] = static_cast<To>(from[c]);
    }
};

#ifdef __F16C__
// Eight at a time: the compiler does not vectorise the scalar intrinsic.
template <>
inline void Convert<Half, float>::copy(const char* row, char* out, int64_t row_bytes) {
    const Half* from = reinterpret_cast<const Half*>(row);
    float* to = reinterpret_cast<float*>(out);
    const int64_t width = row_bytes / 2;
    int64_t c = 0;
    for (; c + 8 <= width; c += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + c));
        _mm256_storeu_ps(to + c, _mm256_cvtph_ps(halves));
    }
    for (; c < width; ++c) to[c] = static_cast<float>(from[c]);
}
#endif

// Where the rows go, and their bytes on both sides.
struct Target {
    char* out;
    int64_t count, row_bytes, out_row_bytes;
    int threads;
    int64_t bytes() const { return count * out_row_bytes; }
};

// find(i) is the row of output row i, or nullptr for zeros. Every output row is written once; where `joined` is set, past the caches, whole
// lines of several rows at a time.
template <class Copy, class Find>
void copy_rows(const Find& find, const Target& to, bool joined = false) {
    const int64_t piece = std::max<int64_t>(16, 65536 / std::max<int64_t>(1, to.out_row_bytes));
    parallel_for(to.count, piece, to.threads, [&](int64_t begin, int64_t end) {
        RowStream<char> rows(to.out, to.out_row_bytes, joined ? to.bytes() : 0);
        for (int64_t i = begin; i < end; ++i) {
            if (i + ROWS_AHEAD < end) {
                if (const char* next = find(i + ROWS_AHEAD)) prefetch_row(next, to.row_bytes);
            }
            const char* row = find(i);
            char* out = rows.make(i);
            if (row) Copy::copy(row, out, to.row_bytes);
            else std::memset(out, 0, to.out_row_bytes);
            rows.write(i, i + 1);
        }
        publish_streamed();
    });
}

// `kind` and item size name a dtype as NumPy does; 'u' of 2 bytes is bfloat16. The front doors have checked the pairs.
template <class To, class Find>
void copy_converted(char kind, int64_t size, const Find& find, const Target& to) {
    if (kind == 'f' && size == 4) copy_rows<Convert<float, To>>(find, to);
    else if (kind == 'f' && size == 2) copy_rows<Convert<Half, To>>(find, to);
    else if (kind == 'f' && size == 8) copy_rows<Convert<double, To>>(find, to);
    else if (kind == 'u' && size == 2) copy_rows<Convert<BFloat, To>>(find, to);
    else if (kind == 'i' && size == 1) copy_rows<Convert<int8_t, To>>(find, to);
    else if (kind == 'u' && size == 1) copy_rows<Convert<uint8_t, To>>(find, to);
    else throw InputError("this table dtype cannot be gathered", "use a dtype that kernels.rows.gather names");
}

// The dtypes on both sides, read while the GIL is held.
struct Types {
    char kind, out_kind;
    int64_t size, out_size;
    Types(const py::dtype& from, const py::dtype& to)
        : kind(from.kind()), out_kind(to.kind()), size(from.itemsize()), out_size(to.itemsize()) {}
};

template <class Find>
void copy_any(const Types& types, const Find& find, const Target& to) {
    const bool same = types.kind == types.out_kind && types.size == types.out_size;
    const bool streamed = to.bytes() >= STREAMED, broken = (reinterpret_cast<uintptr_t>(to.out) | to.row_bytes) % 64 != 0;
    if (same && streamed && broken && to.row_bytes < JOINED) copy_rows<SameBytes>(find, to, true);
    else if (same && streamed) copy_rows<StreamedBytes>(find, to);
    else if (same) copy_rows<SameBytes>(find, to);
    else if (types.out_kind == 'f' && types.out_size == 4) copy_converted<float>(types.kind, types.size, find, to);
    else if (types.out_kind == 'f' && types.out_size == 8) copy_converted<double>(types.kind, types.size, find, to);
    else throw InputError("rows cannot be converted to this dtype", "gather into float32, float64 or the stored dtype");
}

Target target(const Types& types, py::array& out, int threads) {
    return {static_cast<char*>(out.mutable_data()), out.shape(0), out.shape(1) * types.size,
            out.shape(1) * types.out_size, threads};
}

template <class Id>
void gather(py::array table, Array<Id> ids, py::array out, int threads) {
    const Rows rows(table);
    const Types types(table.dtype(), out.dtype());
    const Target to = target(types, out, threads);
    const Id* node = ids.data();
    py::gil_scoped_release unlocked;
    check_ids(node, to.count, rows.count);
    copy_any(types, [=](int64_t i) { return rows.first + node[i] * rows.stride; }, to);
}

// The row of each node, -1 for one without features. Looked up once, so that copying reads them one after the other.
template <class Id, class Row>
std::vector<int64_t> rows_of(const Id* node, int64_t count, const Row* row_of, int64_t num_rows, int threads) {
    std::vector<int64_t> found(count);
    parallel_for(count, 65536, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) found[i] = row_of[node[i]];
    });
    bool sound = true;
    for (const int64_t row : found) sound &= (row >= -1) & (row < num_rows);
    for (int64_t i = 0; !sound && i < count; ++i) {
        if (found[i] >= -1 && found[i] < num_rows) continue;
        throw InputError("node " + std::to_string(node[i]) + " has row " + std::to_string(found[i]) + " of a table of " +
                             std::to_string(num_rows) + " rows",
                         "gather from the table that row_of belongs to");
    }
    return found;
}

template <class Id, class Row>
void gather_by_row(py::array table, Array<Id> ids, Array<Row> row_of, py::array out, int threads) {
    const Rows rows(table);
    const Types types(table.dtype(), out.dtype());
    const Target to = target(types, out, threads);
    const Id* node = ids.data();
    const Row* row = row_of.data();
    const int64_t num_nodes = row_of.size();
    py::gil_scoped_release unlocked;
    check_ids(node, to.count, num_nodes, " is not one of ", " nodes");
    const std::vector<int64_t> place = rows_of(node, to.count, row, rows.count, threads);
    copy_any(types, [&](int64_t i) { return place[i] < 0 ? nullptr : rows.first + place[i] * rows.stride; }, to);
}

using Maybe = std::optional<py::array>;

void gather_tiered(py::dtype dtype, Maybe device, Maybe host, Maybe staged, std::vector<py::array> peers,
                   int64_t peer_stride, Array<int32_t> slots, py::array out, int threads) {
    Tiers tiers;
    const std::array<Maybe*, 3> own{&device, &host, &staged};
    for (size_t t = 0; t < own.size(); ++t) {
        if (*own[t]) tiers.own[t] = Rows(**own[t]);
    }
    for (const py::array& peer : peers) tiers.peers.emplace_back(peer);
    tiers.peer_stride = std::max<int64_t>(1, peer_stride);
    const Types types(dtype, out.dtype());
    const Target to = target(types, out, threads);
    const int32_t* slot = slots.data();
    py::gil_scoped_release unlocked;
    tiers.check(slot, to.count);
    copy_any(types, [&](int64_t i) { return tiers(slot[i]); }, to);
}

// The same check for slots that another kernel will follow. counts: rows of the three tiers, -1 for an absent one.
void check_slots(Array<int32_t> slots, std::array<int64_t, 3> counts, std::vector<int64_t> peer_counts,
                 int64_t peer_stride) {
    Tiers tiers;
    for (size_t t = 0; t < counts.size(); ++t) tiers.own[t].count = counts[t];
    tiers.peers.resize(peer_counts.size());
    for (size_t p = 0; p < peer_counts.size(); ++p) tiers.peers[p].count = peer_counts[p];
    tiers.peer_stride = std::max<int64_t>(1, peer_stride);
    const int32_t* slot = slots.data();
    const int64_t count = slots.size();
    py::gil_scoped_release unlocked;
    tiers.check(slot, count);
}

template <class Id>
void bind(py::module_& m) {
    using py::arg;
    m.def("gather", &gather<Id>, arg("table"), arg("node_ids").noconvert(), arg("out").noconvert(), arg("threads"));
    m.def("gather_by_row", &gather_by_row<Id, int32_t>, arg("table"), arg("node_ids").noconvert(),
          arg("row_of").noconvert(), arg("out").noconvert(), arg("threads"));
    m.def("gather_by_row", &gather_by_row<Id, int64_t>, arg("table"), arg("node_ids").noconvert(),
          arg("row_of").noconvert(), arg("out").noconvert(), arg("threads"));
}

}  // namespace

void bind_gather(py::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    m.def("gather_tiered", &gather_tiered, py::arg("dtype"), py::arg("device"), py::arg("host"), py::arg("staged"),
          py::arg("peers"), py::arg("peer_stride"), py::arg("slots").noconvert(), py::arg("out").noconvert(),
          py::arg("threads"));
    m.def("check_slots", &check_slots, py::arg("slots").noconvert(), py::arg("counts"), py::arg("peer_counts"),
          py::arg("peer_stride"));
}

}  // namespace graphmill
