// Rows that are made one after the other, written past the caches where there are many of them.
//
// A plain store reads the line that it is about to overwrite. Where an output is larger than the caches that costs as much as the rows
// themselves: streamed, the gradient of a sum over 104 MB of rows took two thirds of the time. A streaming store wants whole
// lines, and rows begin anywhere, so a few rows at a time are made in a buffer that has the same place in its lines.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stream.h"

namespace graphmill {

constexpr int64_t STREAMED_BYTES = 4 << 20;      // outputs from here on are streamed; smaller ones may still be cached when they are read
constexpr int64_t WIDEST_BYTES = 16 * 1024;      // rows that are wider fill the caches by themselves and are written as they are made
constexpr int64_t GROUP_BYTES = 1024;            // of rows that are streamed at once: more lines at a time hold up the reads behind them

// Rows of an output. Several threads may write different ones, each through a RowStream of its own.
template <class T>
class RowStream {
  public:
    // `output_bytes` is the size of the whole output, or 0 where rows are not written whole.
    RowStream(T* output, int64_t width, int64_t output_bytes)
        : output_(output),
          width_(width),
          streamed_(output_bytes >= STREAMED_BYTES && width * int64_t(sizeof(T)) <= WIDEST_BYTES) {}
    // Other threads see what was streamed.
    ~RowStream() {
        if (streamed_) publish_streamed();
    }

    int64_t width() const { return width_; }
    // Rows that are made before they are written.
    int64_t group() const { return std::max<int64_t>(1, GROUP_BYTES / std::max<int64_t>(1, width_ * int64_t(sizeof(T)))); }

    // Where rows from..to are to be made: at most group() of them.
    T* make(int64_t from) {
        T* const target = output_ + from * width_;
        return streamed_ ? reinterpret_cast<T*>(buffer_ + (reinterpret_cast<uintptr_t>(target) & 63)) : target;
    }
    // Rows from..to are made.
    void write(int64_t from, int64_t to) {
        if (streamed_)
            stream_bytes(reinterpret_cast<char*>(output_ + from * width_), reinterpret_cast<const char*>(make(from)),
                         (to - from) * width_ * int64_t(sizeof(T)));
    }

  private:
    T* output_;
    int64_t width_;
    bool streamed_;
    alignas(64) char buffer_[WIDEST_BYTES + 64];
};

}  // namespace graphmill
