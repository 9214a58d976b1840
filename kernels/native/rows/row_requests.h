// Which ranges of pages hold the rows that are asked for, and where the rows' bytes go, or come from, when a range has arrived.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace graphmill {

constexpr int64_t PAGE_BYTES = 4096;

inline int64_t page_floor(int64_t byte) { return byte & ~(PAGE_BYTES - 1); }
inline int64_t page_ceil(int64_t byte) { return page_floor(byte + PAGE_BYTES - 1); }

// One read of whole pages: bytes begin .. end of the file, of which those before `needed` must arrive.
struct Request {
    int64_t begin, end, needed;
    int64_t first;  // place of the first row, in sorted order, that has bytes in it
    char* memory;
    int64_t done = 0, stalls = 0;
    bool dense = false;      // its bytes are those of wanted rows, one after the other, and nothing else
    char* landed = nullptr;  // that memory, when it is the rows' own and nothing is left to deliver
    bool writes = false;     // whether its bytes go back to the file
};

// Cuts the wanted rows of one table into requests, in file order (or, unmerged, one request a row in the asked order).
class RowRequests {
  public:
    struct Row {
        int64_t id, position;
        bool operator<(const Row& other) const { return id < other.id; }
    };

    template <class Id>
    RowRequests(const Id* ids, int64_t count, int64_t row_bytes, int64_t offset, int64_t range_bytes, bool merge)
        : row_bytes_(row_bytes), offset_(offset), range_bytes_(range_bytes), merge_(merge), rows_(count) {
        bool sorted = true;
        for (int64_t i = 0; i < count; ++i) {
            rows_[i] = {static_cast<int64_t>(ids[i]), i};
            sorted &= i == 0 || ids[i - 1] <= ids[i];
        }
        // Where equal rows land does not depend on their order, so the sort need not be stable.
        if (merge_ && !sorted) std::sort(rows_.begin(), rows_.end());
    }

    // Makes the next request; false when there is none left.
    bool next(Request* request) {
        const int64_t count = rows_.size();
        if (cursor_ >= range_end_) {
            if (row_ >= count) return false;
            first_ = row_;
            cursor_ = page_floor(begin_of(row_));
            range_end_ = page_ceil(begin_of(row_) + row_bytes_);
            for (++row_; merge_ && row_ < count && page_floor(begin_of(row_)) <= range_end_; ++row_) {
                range_end_ = std::max(range_end_, page_ceil(begin_of(row_) + row_bytes_));
            }
        }
        request->begin = cursor_;
        request->end = cursor_ = std::min(range_end_, cursor_ + range_bytes_);
        request->first = first_;
        request->dense = begin_of(first_) <= request->begin;
        int64_t last = first_;  // rows are equally long, so the last that begins in the request also ends last
        for (; last + 1 < row_ && begin_of(last + 1) < request->end; ++last) request->dense &= follows(last);
        request->dense &= begin_of(last) + row_bytes_ >= request->end;
        request->needed = std::min(request->end, begin_of(last) + row_bytes_);
        first_ = begin_of(last) + row_bytes_ > request->end ? first_across(request->end, last) : last + 1;
        request->done = request->stalls = 0;
        request->writes = false;
        ++num_requests;
        moved_bytes += request->end - request->begin;
        return true;
    }

    // Where a request may be read to at once instead of being delivered, or nullptr: what it brings are rows that lie in the
    // output as they do in the file, at an address that may be read to.
    char* landing(const Request& request, char* out, int64_t stride, int64_t alignment) const {
        if (!request.dense || stride != row_bytes_) return nullptr;
        char* memory = out + rows_[request.first].position * stride + (request.begin - begin_of(request.first));
        return reinterpret_cast<uintptr_t>(memory) % alignment ? nullptr : memory;
    }

    // Copies the rows' bytes out of a request that has arrived, neighbours at once. stride: bytes between the output rows.
    void deliver(const Request& request, char* out, int64_t stride) const {
        each_piece(request, stride, [&](char* memory, int64_t at, int64_t bytes) { std::memcpy(out + at, memory, bytes); });
    }

    // Copies the bytes of rows into a request that has arrived, for it to be written.
    void replace(const Request& request, const char* rows, int64_t stride) const {
        each_piece(request, stride, [&](char* memory, int64_t at, int64_t bytes) { std::memcpy(memory, rows + at, bytes); });
    }

    int64_t num_requests = 0, moved_bytes = 0;

  private:
    // Calls copy(memory, byte of the rows outside, bytes) for each piece of rows in a request.
    template <class Copy>
    void each_piece(const Request& request, int64_t stride, Copy copy) const {
        const int64_t count = merge_ ? static_cast<int64_t>(rows_.size()) : request.first + 1;
        for (int64_t i = request.first; i < count && begin_of(i) < request.end;) {
            const int64_t begin = begin_of(i), position = rows_[i].position;
            while (i + 1 < count && stride == row_bytes_ && begin_of(i + 1) < request.end && follows(i)) ++i;
            const int64_t from = std::max(begin, request.begin), to = std::min(begin_of(i) + row_bytes_, request.end);
            copy(request.memory + (from - request.begin), position * stride + (from - begin), to - from);
            ++i;
        }
    }

    int64_t begin_of(int64_t i) const { return offset_ + rows_[i].id * row_bytes_; }

    // Whether row i + 1 comes directly after row i, in the file and in the output.
    bool follows(int64_t i) const {
        return rows_[i + 1].id == rows_[i].id + 1 && rows_[i + 1].position == rows_[i].position + 1;
    }

    // The first row with bytes at or after `byte`, given that row `last` has some: only its copies can come before it.
    int64_t first_across(int64_t byte, int64_t last) const {
        while (merge_ && last > 0 && begin_of(last - 1) + row_bytes_ > byte) --last;
        return last;
    }

    int64_t row_bytes_, offset_, range_bytes_;
    bool merge_;
    std::vector<Row> rows_;
    int64_t row_ = 0;                     // first row after the present range
    int64_t first_ = 0;                   // first row with bytes in the rest of the range
    int64_t cursor_ = 0, range_end_ = 0;  // the rest of the present range
};

}  // namespace graphmill
