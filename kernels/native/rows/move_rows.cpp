// Rows that change their place; see kernels/rows/move_rows.py.
#include <cstring>
#include <optional>

#include "base/arrays.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 256;        // rows that a thread moves at once
constexpr int64_t AHEAD = 8;          // rows that are asked for before their turn
constexpr int64_t MOST_LINES = 8;     // of a row that are asked for; the rest follows by itself

// The rows of a list, in either type of ids; without a list all rows in order.
struct List {
    const int32_t* narrow = nullptr;
    const int64_t* wide = nullptr;
    int64_t operator[](int64_t k) const { return narrow ? narrow[k] : wide ? wide[k] : k; }
};

List list_of(const py::object& rows, int64_t num_rows, const char* what) {
    List list;
    if (rows.is_none()) return list;
    int64_t count = 0;
    if (py::isinstance<Array<int32_t>>(rows)) {
        const auto array = rows.cast<Array<int32_t>>();
        list.narrow = array.data();
        count = array.size();
    } else {
        const auto array = rows.cast<Array<int64_t>>();
        list.wide = array.data();
        count = array.size();
    }
    for (int64_t k = 0; k < count; ++k) {
        if (list[k] < 0 || list[k] >= num_rows) {
            throw InputError("row " + std::to_string(list[k]) + " at position " + std::to_string(k) + " is none of " +
                                 std::to_string(num_rows) + " rows of " + what,
                             "give the rows of the array that the list was made for");
        }
    }
    return list;
}

// Two sets of rows of one width, and which go where.
struct Move {
    char *from, *to;
    int64_t count, row_bytes;
    List from_rows, to_rows;

    Move(py::array source, const py::object& source_rows, py::array out, const py::object& out_rows)
        : from(const_cast<char*>(static_cast<const char*>(source.data()))),
          to(static_cast<char*>(out.mutable_data())),
          count(source_rows.is_none() ? source.shape(0) : py::len(source_rows)),
          row_bytes(source.shape(1) * source.itemsize()),
          from_rows(list_of(source_rows, source.shape(0), "the source")),
          to_rows(list_of(out_rows, out.shape(0), "out")) {}

    char* source(int64_t k) const { return from + from_rows[k] * row_bytes; }
    char* target(int64_t k) const { return to + to_rows[k] * row_bytes; }

    void ask_for(const char* row, int write) const {
        const int64_t lines = std::min(MOST_LINES, (row_bytes + 63) / 64);
        for (int64_t line = 0; line < lines; ++line) {
            if (write) __builtin_prefetch(row + 64 * line, 1);
            else __builtin_prefetch(row + 64 * line, 0);
        }
    }

    template <class Body>
    void each(int threads, Body body) const {
        parallel_for(count, PIECE, threads, [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) {
                if (k + AHEAD < end) {
                    ask_for(source(k + AHEAD), 0);
                    ask_for(target(k + AHEAD), 1);
                }
                body(source(k), target(k));
            }
        });
    }
};

void place_rows(py::array source, py::object source_rows, py::array out, py::object out_rows, int threads) {
    const Move move(source, source_rows, out, out_rows);
    py::gil_scoped_release unlocked;
    move.each(threads, [&](const char* from, char* to) { std::memcpy(to, from, move.row_bytes); });
}

template <class T>
void add_each(const Move& move, int threads) {
    const int64_t width = move.row_bytes / int64_t(sizeof(T));
    move.each(threads, [&](const char* from, char* to) {
        const T* values = reinterpret_cast<const T*>(from);
        T* sums = reinterpret_cast<T*>(to);
        for (int64_t c = 0; c < width; ++c) sums[c] += values[c];
    });
}

void add_rows(py::array source, py::object source_rows, py::array out, py::object out_rows, int threads) {
    const Move move(source, source_rows, out, out_rows);
    const bool wide = source.itemsize() == 8;
    py::gil_scoped_release unlocked;
    wide ? add_each<double>(move, threads) : add_each<float>(move, threads);
}

void take_rows(py::array source, py::object rows, py::array out, py::object, int threads) {
    source.mutable_data();  // refuses a read-only array
    const Move move(source, rows, out, py::none());
    py::gil_scoped_release unlocked;
    move.each(threads, [&](char* from, char* to) {
        std::memcpy(to, from, move.row_bytes);
        std::memset(from, 0, move.row_bytes);
    });
}

}  // namespace

void bind_move_rows(py::module_& m) {
    m.def("place_rows", &place_rows);
    m.def("add_rows", &add_rows);
    m.def("take_rows", &take_rows);
}

}  // namespace graphmill
