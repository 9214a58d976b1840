// Copies chosen rows of tables and converts them on the way; see kernels/rows/gather.py.
#include "rows/rows.h"

#include <cstring>
#include <string>

#include "base/half.h"
#include "base/input_error.h"
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
    explicit Rows(const Table& table) : first(table.data), stride(table.stride), count(table.num_rows) {}
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

// Where the rows of the output come from.
class Source {
  public:
    virtual ~Source() = default;
    // found[i] = the row of output row first + i, or nullptr for zeros.
    virtual void find(int64_t first, int64_t count, const char** found) const = 0;
};

// row_of(i) is the row of output row i.
template <class RowOf>
class Found final : public Source {
  public:
    explicit Found(RowOf row_of) : row_of_(row_of) {}
    void find(int64_t first, int64_t count, const char** found) const override {
        for (int64_t i = 0; i < count; ++i) found[i] = row_of_(first + i);
    }

  private:
    RowOf row_of_;
};

// Writes output rows begin to end - 1, each once; where `joined` is set, past the caches, whole lines of several rows at a time.
template <class Copy>
void copy_piece(const Source& source, const Target& to, bool joined, int64_t begin, int64_t end) {
    constexpr int64_t AT_ONCE = 256;  // rows that are found before they are copied
    const char* found[AT_ONCE + ROWS_AHEAD];
    RowStream<char> rows(to.out, to.out_row_bytes, joined ? to.bytes() : 0);
    for (int64_t first = begin; first < end; first += AT_ONCE) {
        const int64_t known = std::min(AT_ONCE + ROWS_AHEAD, end - first);
        source.find(first, known, found);
        for (int64_t i = 0; i < std::min(AT_ONCE, known); ++i) {
            if (i + ROWS_AHEAD < known && found[i + ROWS_AHEAD]) prefetch_row(found[i + ROWS_AHEAD], to.row_bytes);
            char* out = rows.make(first + i);
            if (found[i]) Copy::copy(found[i], out, to.row_bytes);
            else std::memset(out, 0, to.out_row_bytes);
            rows.write(first + i, first + i + 1);
        }
    }
    publish_streamed();
}
using CopyPiece = decltype(copy_piece<SameBytes>)*;

void copy_rows(CopyPiece copy, const Source& source, const Target& to, bool joined) {
    const int64_t piece = std::max<int64_t>(16, 65536 / std::max<int64_t>(1, to.out_row_bytes));
    parallel_for(to.count, piece, to.threads, [&](int64_t begin, int64_t end) { copy(source, to, joined, begin, end); });
}

// The front doors have checked the pairs.
template <class To>
CopyPiece converted(ElementType from) {
    if (from == ElementType{'f', 4}) return copy_piece<Convert<float, To>>;
    if (from == ElementType{'f', 2}) return copy_piece<Convert<Half, To>>;
    if (from == ElementType{'f', 8}) return copy_piece<Convert<double, To>>;
    if (from == ElementType{'u', 2}) return copy_piece<Convert<BFloat, To>>;
    if (from == ElementType{'i', 1}) return copy_piece<Convert<int8_t, To>>;
    if (from == ElementType{'u', 1}) return copy_piece<Convert<uint8_t, To>>;
    throw InputError("this table dtype cannot be gathered", "use a dtype that graphmill.kernels.rows.gather names");
}

CopyPiece converted(ElementType from, ElementType to) {
    if (to == ElementType{'f', 4}) return converted<float>(from);
    if (to == ElementType{'f', 8}) return converted<double>(from);
    throw InputError("rows cannot be converted to this dtype", "gather into float32, float64 or the stored dtype");
}

template <class RowOf>
void copy_any(ElementType stored, const WrittenTable& out, int threads, RowOf row_of) {
    const Found<RowOf> source(row_of);
    const Target to{out.data, out.num_rows, out.width * stored.bytes, out.width * out.type.bytes, threads};
    if (!(stored == out.type)) return copy_rows(converted(stored, out.type), source, to, false);
    const bool streamed = to.bytes() >= STREAMED, broken = (reinterpret_cast<uintptr_t>(to.out) | to.row_bytes) % 64 != 0;
    const bool joined = streamed && broken && to.row_bytes < JOINED;
    copy_rows(streamed && !joined ? copy_piece<StreamedBytes> : copy_piece<SameBytes>, source, to, joined);
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

// place[i]: where the row of output row i is, -1 for zeros.
void copy_placed(ElementType stored, const WrittenTable& out, int threads, const Rows& rows, const int64_t* place) {
    copy_any(stored, out, threads, [=](int64_t i) { return place[i] < 0 ? nullptr : rows.first + place[i] * rows.stride; });
}

}  // namespace

template <class Id>
void gather(Table table, Array<const Id> node_ids, WrittenTable out, int threads) {
    const Rows rows(table);
    const Id* node = node_ids.data();
    check_ids(node, out.num_rows, rows.count);
    copy_any(table.type, out, threads, [=](int64_t i) { return rows.first + node[i] * rows.stride; });
}

template <class Id, class Row>
void gather_by_row(Table table, Array<const Id> node_ids, Array<const Row> row_of, WrittenTable out, int threads) {
    const Rows rows(table);
    const int64_t count = out.num_rows;
    check_ids(node_ids.data(), count, row_of.size(), " is not one of ", " nodes");
    const std::vector<int64_t> place = rows_of(node_ids.data(), count, row_of.data(), rows.count, threads);
    copy_placed(table.type, out, threads, rows, place.data());
}

void gather_tiered(ElementType stored, std::optional<Table> device, std::optional<Table> host, std::optional<Table> staged,
                   const std::vector<Table>& peers, int64_t peer_stride, Array<const int32_t> slots, WrittenTable out, int threads) {
    Tiers tiers;
    if (device) tiers.own[0] = Rows(*device);
    if (host) tiers.own[1] = Rows(*host);
    if (staged) tiers.own[2] = Rows(*staged);
    for (const Table& peer : peers) tiers.peers.emplace_back(peer);
    tiers.peer_stride = std::max<int64_t>(1, peer_stride);
    const int32_t* slot = slots.data();
    tiers.check(slot, out.num_rows);
    copy_any(stored, out, threads, [&](int64_t i) { return tiers(slot[i]); });
}

void check_slots(Array<const int32_t> slots, std::array<int64_t, 3> counts, const std::vector<int64_t>& peer_counts,
                 int64_t peer_stride) {
    Tiers tiers;
    for (size_t t = 0; t < counts.size(); ++t) tiers.own[t].count = counts[t];
    tiers.peers.resize(peer_counts.size());
    for (size_t p = 0; p < peer_counts.size(); ++p) tiers.peers[p].count = peer_counts[p];
    tiers.peer_stride = std::max<int64_t>(1, peer_stride);
    tiers.check(slots.data(), slots.size());
}

template decltype(gather<int32_t>) gather<int32_t>;
template decltype(gather<int64_t>) gather<int64_t>;
template decltype(gather_by_row<int32_t, int32_t>) gather_by_row<int32_t, int32_t>;
template decltype(gather_by_row<int32_t, int64_t>) gather_by_row<int32_t, int64_t>;
template decltype(gather_by_row<int64_t, int32_t>) gather_by_row<int64_t, int32_t>;
template decltype(gather_by_row<int64_t, int64_t>) gather_by_row<int64_t, int64_t>;

}  // namespace graphmill
