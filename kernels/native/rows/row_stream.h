// Rows that are made one after the other, written past the caches where there are many of them.
//
// A plain store reads the line that it is about to overwrite. Where an output is larger than the caches that costs as much as the rows
// themselves: streamed, the gradient of a sum over 104 MB of rows took two thirds of the time. A streaming store wants whole
// lines, and rows begin anywhere. So a few rows at a time are made in a buffer that has the same place in its lines, and the line that
// they end within waits there for the rows after them: one line in sixteen written in two parts halved the speed of all.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/nontemporal.h"

namespace graphmill {

constexpr int64_t STREAMED_BYTES = 4 << 20;      // outputs from here on are streamed; smaller ones may still be cached when they are read
constexpr int64_t WIDEST_BYTES = 16 * 1024;      // rows that are wider fill the caches by themselves and are written as they are made
constexpr int64_t BUNDLE_BYTES = 1024;           // bytes of rows streamed at once: more lines at a time hold up the reads behind them

// Rows of an output, each next to the one before it or anywhere. Several threads may write different ones, each through a RowStream of its
// own. All is written when it is destroyed.
template <class T>
class RowStream {
  public:
    // `output_bytes` is the size of the whole output, or 0 where rows are not written whole.
    RowStream(T* output, int64_t width, int64_t output_bytes)
        : output_(output),
          width_(width),
          streamed_(output_bytes >= STREAMED_BYTES && width * int64_t(sizeof(T)) <= WIDEST_BYTES) {}
    RowStream(const RowStream&) = delete;
    ~RowStream() {
        if (!streamed_) return;
        write_waiting();
        publish_streamed();  // other threads see it
    }

    int64_t width() const { return width_; }
    // Whether rows are whole lines: they may be streamed to their place without being made here first.
    bool whole_lines() const {
        return streamed_ && place(reinterpret_cast<const char*>(output_)) == 0 && width_ * int64_t(sizeof(T)) % LINE == 0;
    }
    // Rows that are made before they are written.
    int64_t bundle() const { return std::max<int64_t>(1, BUNDLE_BYTES / std::max<int64_t>(1, width_ * int64_t(sizeof(T)))); }

    // Where rows from..to are to be made: at most bundle() of them.
    T* make(int64_t from) {
        char* const target = reinterpret_cast<char*>(output_ + from * width_);
        if (!streamed_) return reinterpret_cast<T*>(target);
        if (target != next_) {
            write_waiting();
            next_ = target;
            first_ = place(target);
        }
        return reinterpret_cast<T*>(buffer_ + place(target));
    }
    // Rows from..to are made.
    void write(int64_t from, int64_t to) {
        if (!streamed_) return;
        char* const line = next_ - place(next_);
        const int64_t end = place(next_) + (to - from) * width_ * int64_t(sizeof(T)), whole = end & -LINE;
        next_ = line + end;
        if (whole == 0) return;
        stream_bytes(line + first_, buffer_ + first_, whole - first_);
        std::memcpy(buffer_, buffer_ + whole, LINE);
        first_ = 0;
    }

  private:
    static constexpr int64_t LINE = 64;
    static int64_t place(const char* address) { return reinterpret_cast<uintptr_t>(address) & (LINE - 1); }
    // Writes the line that is begun.
    void write_waiting() {
        if (next_) std::memcpy(next_ - place(next_) + first_, buffer_ + first_, place(next_) - first_);
    }

    T* output_;
    int64_t width_;
    bool streamed_;
    char* next_ = nullptr;  // where the next rows begin
    int64_t first_ = 0;     // the first byte of the line before it that is in the buffer and not yet written
    alignas(64) char buffer_[WIDEST_BYTES + 2 * LINE];
};

}  // namespace graphmill
