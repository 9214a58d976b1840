// Rows that change their place; see kernels/rows/move_rows.py.
#include "rows/rows.h"

#include <cstring>
#include <string>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 256;        // rows that a thread moves at once
constexpr int64_t AHEAD = 8;          // rows that are asked for before their turn
constexpr int64_t MOST_LINES = 8;     // of a row that are asked for; the rest follows by itself

// The rows of a list, in either type of ids; without a list all rows in order.
class List {
  public:
    List(const std::optional<Table>& rows, int64_t num_rows, const char* what) {
        if (!rows) return;
        if (rows->type.bytes == 4) narrow_ = reinterpret_cast<const int32_t*>(rows->data);
        else wide_ = reinterpret_cast<const int64_t*>(rows->data);
        for (int64_t k = 0; k < rows->num_rows; ++k) {
            const int64_t row = (*this)[k];
            if (row >= 0 && row < num_rows) continue;
            throw InputError("row " + std::to_string(row) + " at position " + std::to_string(k) + " is none of " +
                                 std::to_string(num_rows) + " rows of " + what,
                             "give the rows of the array that the list was made for");
        }
    }

    int64_t operator[](int64_t k) const { return narrow_ ? narrow_[k] : wide_ ? wide_[k] : k; }

  private:
    const int32_t* narrow_ = nullptr;
    const int64_t* wide_ = nullptr;
};

// Two sets of rows of one width, and which go where.
template <class Byte>
struct Move {
    Byte* from;
    char* to;
    int64_t from_stride, to_stride, count, row_bytes;
    List from_rows, to_rows;

    Move(const AnyTable<Byte>& source, const std::optional<Table>& source_rows, const WrittenTable& out,
         const std::optional<Table>& out_rows)
        : from(source.data),
          to(out.data),
          from_stride(source.stride),
          to_stride(out.stride),
          count(source_rows ? source_rows->num_rows : source.num_rows),
          row_bytes(source.width * source.type.bytes),
          from_rows(source_rows, source.num_rows, "the source"),
          to_rows(out_rows, out.num_rows, "out") {}

    Byte* source(int64_t k) const { return from + from_rows[k] * from_stride; }
    char* target(int64_t k) const { return to + to_rows[k] * to_stride; }

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

template <class T>
void add_each(const Move<const char>& move, int threads) {
    const int64_t width = move.row_bytes / int64_t(sizeof(T));
    move.each(threads, [&](const char* from, char* to) {
        const T* values = reinterpret_cast<const T*>(from);
        T* sums = reinterpret_cast<T*>(to);
        for (int64_t c = 0; c < width; ++c) sums[c] += values[c];
    });
}

}  // namespace

void place_rows(Table source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads) {
    const Move<const char> move(source, source_rows, out, out_rows);
    move.each(threads, [&](const char* from, char* to) { std::memcpy(to, from, move.row_bytes); });
}

void add_rows(Table source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads) {
    const Move<const char> move(source, source_rows, out, out_rows);
    source.type.bytes == 8 ? add_each<double>(move, threads) : add_each<float>(move, threads);
}

void take_rows(WrittenTable source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads) {
    const Move<char> move(source, source_rows, out, out_rows);
    move.each(threads, [&](char* from, char* to) {
        std::memcpy(to, from, move.row_bytes);
        std::memset(from, 0, move.row_bytes);
    });
}

}  // namespace graphmill
