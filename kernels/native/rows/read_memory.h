// The memory that direct reads land in: the reader's own, and what a file asks of the caller's.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/zeroed_array.h"
#include "rows/row_requests.h"

namespace graphmill {

// Memory that is known to the kernel by its address and is not copied into forked children. It asks for large pages: a read
// that lands in small ones is handed to the device as a list of 4 KiB pieces (docs/log.md has what that costs).
class Staging {
  public:
    explicit Staging(size_t bytes) : memory_(static_cast<int64_t>(bytes)), bytes_(bytes) {
        madvise(memory_.data(), bytes_, MADV_DONTFORK);
    }
    char* data() { return memory_.data(); }
    size_t size() const { return bytes_; }

  private:
    ZeroedArray<char> memory_;
    size_t bytes_;
};

// What the addresses that a read of `file` lands at must be a multiple of: 1 through the page cache; past it what the kernel
// says (Linux 6.1 on), else a page.
inline int64_t landing_alignment(int file) {
    const int flags = fcntl(file, F_GETFL);
    if (flags >= 0 && !(flags & O_DIRECT)) return 1;
#ifdef STATX_DIOALIGN
    struct statx found {};
    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 && (found.stx_mask & STATX_DIOALIGN) &&
        found.stx_dio_mem_align) {
        return std::min<int64_t>(PAGE_BYTES, found.stx_dio_mem_align);
    }
#endif
    return PAGE_BYTES;
}

}  // namespace graphmill
