// Reads past the page cache: ranges of pages and large pieces, through io_uring or pread; and rows that are written as pages. See
// kernels/rows/direct_io.py.
#pragma once

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/array.h"
#include "rows/read_memory.h"
#include "rows/ring.h"
#include "rows/row_requests.h"

namespace graphmill {

class PageReader {
  public:
    using Moved = std::tuple<int64_t, int64_t, int64_t>;  // requests, bytes of the rows, bytes that were moved

    PageReader(int64_t depth, int64_t range_bytes, int64_t window_bytes, bool ring, std::array<int64_t, 3> faults);

    // Returns the errno of the ring, requests that were sent again, the most bytes in flight, and bytes that were read to their place in
    // the output at once.
    std::tuple<int, int64_t, int64_t, int64_t> state() const;

    // digests: of the pages from `offset` on, which is the start of one; without them nothing is compared. A page that the file ends in is
    // compared as if zeros followed.
    template <class Id>
    Moved read_rows(int file, const std::string& path, Array<const Id> row_ids, int64_t row_bytes, int64_t offset, bool merge,
                    WrittenTable out, Optional<const uint64_t> digests);

    // Replaces distinct rows of a file of whole pages: reads their pages, and writes each back as it arrives.
    Moved write_rows(int file, const std::string& path, Array<const int64_t> row_ids, int64_t row_bytes, int64_t offset, Table rows);

    // Reads whole pages begin .. end to `memory`, in pieces; the bytes before `needed` must arrive. The digest of each page
    // goes to `digests`, if there is one, while its piece is still in the processor's cache. Returns the number of pieces.
    int64_t read_pages(int file, const std::string& path, int64_t begin, int64_t end, int64_t needed, int64_t piece_bytes,
                       Array<uint8_t> memory, Optional<uint64_t> digests);

  private:
    // What a failing file looks like, for tests: the kernel is asked wrongly, its answers are its own.
    struct Faults {
        int64_t shorten_every = 0, shorten_to = 0;  // each n-th request asks for so few bytes at first
        int64_t break_at = -1;                      // the request of this number goes to no file at all
    };

    // One call at a time, in the process that made the reader.
    struct Turn {
        explicit Turn(PageReader& reader);
        ~Turn() { busy = false; }
        std::atomic<bool>& busy;
    };

    void read_wanted(int file, const std::string& path, int64_t file_bytes, int64_t offset, RowRequests& wanted, const WrittenTable& out,
                     const Optional<const uint64_t>& digests);

    // Books the result of one read or write. Returns whether the request is complete; otherwise its rest must be asked for again.
    bool book(const std::string& path, Request& request, int64_t result);

    // Pins the reader's own memory and returns whether that worked. Not before its first use: pinned memory is taken, and a reader of whole
    // pieces needs none.
    bool pin_staging();

    // How many bytes to ask for, and from which descriptor: the true ones, unless a test wants a failure.
    std::pair<int64_t, int> ask(const Request& request, int file);

    // Reads all requests that next(slot, request) makes, until it returns false, and calls arrived(request) for each. One for which that
    // returns true is written as its memory then is, and does not arrive again.
    template <class Next, class Arrived>
    void transfer(int file, const std::string& path, bool registered, Next next, Arrived arrived);
    template <class Next, class Arrived>
    void transfer_by_ring(int file, const std::string& path, bool registered, Next next, Arrived arrived);

    // The kernel refuses the ring itself: nothing can be asked of it any more, in flight or new.
    [[noreturn]] void lose_ring(const std::string& path, int error);

    int64_t depth_, range_bytes_, window_bytes_;
    Staging staging_;  // goes after the ring, which may still write to it
    pid_t owner_;
    std::vector<Request> requests_;
    Faults faults_;
    std::unique_ptr<Ring> ring_;
    int ring_errno_ = 0;
    std::optional<bool> registered_;  // whether the kernel has pinned `staging_`; none before that was tried
    int64_t num_resubmitted_ = 0, num_asked_ = 0, most_flying_bytes_ = 0, landed_bytes_ = 0;
    std::atomic<bool> busy_{false};
};

}  // namespace graphmill
