// Reads past the page cache: ranges of pages and large pieces, through io_uring or pread; see kernels/rows/direct_io.py.
#include <sched.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "rows/page_digest.h"
#include "rows/read_memory.h"
#include "rows/ring.h"
#include "rows/row_requests.h"

namespace graphmill {
namespace {

// What a failing file looks like, for tests: the kernel is asked wrongly, its answers are its own.
struct Faults {
    int64_t shorten_every = 0, shorten_to = 0;  // each n-th request asks for so few bytes at first
    int64_t break_at = -1;                      // the request of this number goes to no file at all
};

class Reader {
  public:
    Reader(int64_t depth, int64_t range_bytes, int64_t window_bytes, bool ring, std::array<int64_t, 3> faults)
        : depth_(depth), range_bytes_(range_bytes), window_bytes_(window_bytes),
          staging_(ring ? depth * range_bytes : range_bytes), owner_(getpid()), faults_{faults[0], faults[1], faults[2]},
          requests_(ring ? depth : 1) {
        if (!ring) return;
        ring_ = std::make_unique<Ring>();
        ring_errno_ = ring_->open(static_cast<unsigned>(depth));
        if (ring_errno_ == 0) registered_ = ring_->register_buffer(staging_.data(), staging_.size()) == 0;
    }

    py::tuple state() const {
        return py::make_tuple(ring_errno_, registered_, num_resubmitted_, most_flying_bytes_, landed_bytes_);
    }

    // digests: of the pages from `offset` on, which is the start of one; None compares nothing. A page that the file ends in is
    // compared as if zeros followed.
    template <class Id>
    py::tuple read_rows(int file, const std::string& path, Array<Id> ids, int64_t row_bytes, int64_t offset, bool merge,
                        py::array_t<uint8_t> out, std::optional<Array<uint64_t>> digests) {
        char* rows = reinterpret_cast<char*>(out.mutable_data());
        const uint64_t* words = digests ? digests->data() : nullptr;
        const int64_t num_pages = digests ? digests->size() : 0;
        const int64_t stride = out.shape(0) ? out.strides(0) : 0, count = ids.size();
        const Id* id = ids.data();
        py::gil_scoped_release unlocked;
        const Turn turn(*this);
        const int64_t file_bytes = check_rows(file, path, id, count, row_bytes, offset);
        RowRequests wanted(id, count, row_bytes, offset, range_bytes_, merge);
        const int64_t alignment = landing_alignment(file);
        const auto next = [&](int64_t slot, Request* request) {
            if (!wanted.next(request)) return false;
            request->landed = wanted.landing(*request, rows, stride, alignment);
            if (request->landed) landed_bytes_ += request->end - request->begin;
            request->memory = request->landed ? request->landed : staging_.data() + slot * range_bytes_;
            if (words) request->needed = std::min(request->end, file_bytes);  // part of a page has no digest
            return true;
        };
        const auto arrived = [&](const Request& request) {
            // Such a page is in the reader's own memory: what lands in the output are whole pages of rows.
            if (words && request.end > file_bytes) {
                std::memset(request.memory + (file_bytes - request.begin), 0, request.end - file_bytes);
            }
            if (words) check_pages(path, request, offset, words, num_pages);
            if (!request.landed) wanted.deliver(request, rows, stride);
        };
        transfer(file, path, registered_, next, arrived);
        py::gil_scoped_acquire locked;
        return py::make_tuple(wanted.num_requests, count * row_bytes, wanted.moved_bytes);
    }

    // Reads whole pages begin .. end to `memory`, in pieces; the bytes before `needed` must arrive. The digest of each page
    // goes to `digests` while its piece is still in the processor's cache; None computes none.
    int64_t read_pages(int file, const std::string& path, int64_t begin, int64_t end, int64_t needed,
                       int64_t piece_bytes, Array<uint8_t> memory, std::optional<Array<uint64_t>> digests) {
        char* out = reinterpret_cast<char*>(memory.mutable_data());
        uint64_t* words = digests ? digests->mutable_data() : nullptr;
        py::gil_scoped_release unlocked;
        const Turn turn(*this);
        int64_t cursor = begin, pieces = 0;
        const auto next = [&](int64_t, Request* request) {
            if (cursor >= end) return false;
            const int64_t stop = std::min(end, cursor + piece_bytes);
            *request = {cursor, stop, std::min(stop, needed), 0, out + (cursor - begin)};
            cursor = stop;
            ++pieces;
            return true;
        };
        const auto arrived = [&](const Request& request) {
            if (words) digest_pages(request.memory, request.end - request.begin, words + (request.begin - begin) / PAGE_BYTES);
        };
        transfer(file, path, false, next, arrived);
        return pieces;
    }

  private:
    // One call at a time, in the process that made the reader.
    struct Turn {
        explicit Turn(Reader& reader) : busy(reader.busy_) {
            if (reader.owner_ != getpid()) {
                throw InputError("this reader was made before a fork", "make one in each process");
            }
            if (busy.exchange(true)) {
                throw InputError("two threads use one PageReader at once", "make one for each thread");
            }
        }
        ~Turn() { busy = false; }
        std::atomic<bool>& busy;
    };

    // Returns the bytes of the file.
    template <class Id>
    static int64_t check_rows(int file, const std::string& path, const Id* ids, int64_t count, int64_t row_bytes,
                           int64_t offset) {
        struct stat status;
        if (fstat(file, &status) != 0) fail(path, offset, offset, std::strerror(errno));
        const int64_t num_rows = std::max<int64_t>(0, status.st_size - offset) / row_bytes;
        for (int64_t i = 0; i < count; ++i) {
            if (ids[i] >= 0 && ids[i] < num_rows) continue;
            throw InputError("row " + std::to_string(ids[i]) + " at position " + std::to_string(i) + " is not in " + path +
                                 ": " + std::to_string(status.st_size) + " bytes hold " + std::to_string(num_rows) +
                                 " rows of " + std::to_string(row_bytes) + " bytes from byte " + std::to_string(offset),
                             "give rows of this table; if it should have them, the file was cut short: build it again");
        }
        return status.st_size;
    }

    [[noreturn]] static void fail(const std::string& path, int64_t begin, int64_t end, const std::string& why) {
        throw InputError(path + ": bytes " + std::to_string(begin) + " to " + std::to_string(end) +
                             " could not be read: " + why,
                         "check the disk and `graphmill verify`; build the file again if it is damaged");
    }

    static void check_pages(const std::string& path, const Request& request, int64_t offset, const uint64_t* words,
                            int64_t num_pages) {
        std::array<uint64_t, 64> found;
        const int64_t most = found.size() * PAGE_BYTES;
        for (int64_t first = request.begin; first < request.end; first += most) {
            const int64_t end = std::min(request.end, first + most);
            digest_pages(request.memory + (first - request.begin), end - first, found.data());
            for (int64_t byte = first; byte < end; byte += PAGE_BYTES) {
                const int64_t page = (byte - offset) / PAGE_BYTES;
                if (page < num_pages && found[(byte - first) / PAGE_BYTES] == words[page]) continue;
                throw InputError(path + ": the page at byte " + std::to_string(byte) +
                                     (page < num_pages ? " does not match its digest" : " has no digest"),
                                 "build the file again");
            }
        }
    }

    // Books the result of one read. Returns whether the request is complete; otherwise its rest must be asked for again.
    bool book(const std::string& path, Request& request, int64_t result) {
        if (result < 0 && result != -EINTR && result != -EAGAIN) {
            fail(path, request.begin + request.done, request.end, std::strerror(static_cast<int>(-result)));
        }
        const int64_t reached = request.begin + request.done + std::max<int64_t>(0, result);
        if (reached >= request.needed) return true;
        if (result == 0) fail(path, reached, request.needed, "the file ends at byte " + std::to_string(reached));
        const int64_t before = request.done;
        request.done = page_floor(reached - request.begin);  // an offset inside a page cannot be asked for
        request.stalls = request.done > before ? 0 : request.stalls + 1;
        if (request.stalls > MOST_STALLS) {
            fail(path, reached, request.needed, "no read got beyond byte " + std::to_string(reached));
        }
        ++num_resubmitted_;
        return false;
    }

    // How many bytes to ask for, and from which descriptor: the true ones, unless a test wants a failure.
    std::pair<int64_t, int> ask(const Request& request, int file) {
        const int64_t bytes = request.end - request.begin - request.done;
        if (request.done || request.stalls) return {bytes, file};
        const int64_t number = num_asked_++;
        if (number == faults_.break_at) return {bytes, -1};
        const bool shorten = faults_.shorten_every && number % faults_.shorten_every == 0;
        return {shorten ? std::min(bytes, faults_.shorten_to) : bytes, file};
    }

    template <class Next, class Arrived>
    void transfer(int file, const std::string& path, bool registered, Next next, Arrived arrived) {
        if (ring_) {
            // Requests of a lost ring may still write to the memory of this reader.
            if (ring_errno_) throw InputError("this reader's io_uring was lost", LOST);
            return transfer_by_ring(file, path, registered, next, arrived);
        }
        for (Request& request = requests_[0]; next(0, &request); arrived(request)) {
            int64_t result;
            do {
                const auto [bytes, descriptor] = ask(request, file);
                result = pread(descriptor, request.memory + request.done, bytes, request.begin + request.done);
                if (result < 0) result = -errno;
            } while (!book(path, request, result));
        }
    }

    template <class Next, class Arrived>
    void transfer_by_ring(int file, const std::string& path, bool registered, Next next, Arrived arrived) {
        std::vector<int64_t> idle(std::min<int64_t>(depth_, ring_->entries()));
        for (size_t i = 0; i < idle.size(); ++i) idle[i] = idle.size() - 1 - i;
        int64_t flying = 0, flying_bytes = 0;
        std::exception_ptr failure;
        const auto submit = [&](int64_t slot) {
            Request& request = requests_[slot];
            const auto [bytes, descriptor] = ask(request, file);
            ring_->read(descriptor, request.memory + request.done, static_cast<uint32_t>(bytes),
                        request.begin + request.done, slot, registered && !request.landed);
            ++flying;
            flying_bytes += request.end - request.begin;
            most_flying_bytes_ = std::max(most_flying_bytes_, flying_bytes);
        };
        const auto settle = [&](int64_t slot, int64_t result) {
            if (!failure) {
                try {
                    if (!book(path, requests_[slot], result)) return submit(slot);
                    arrived(requests_[slot]);
                } catch (...) {
                    failure = std::current_exception();
                }
            }
            idle.push_back(slot);
        };
        for (;;) {
            while (!failure && !idle.empty() && flying_bytes < window_bytes_ &&
                   next(idle.back(), &requests_[idle.back()])) {
                submit(idle.back());
                idle.pop_back();
            }
            // After a failure as well: the kernel writes to the buffers until the last request has come back.
            if (flying == 0) break;
            const int error = ring_->enter();
            if (error == EAGAIN || error == EBUSY) sched_yield();
            else if (error) lose_ring(path, error);
            uint64_t slot;
            int32_t result;
            while (ring_->reap(&slot, &result)) {
                --flying;
                flying_bytes -= requests_[slot].end - requests_[slot].begin;
                settle(static_cast<int64_t>(slot), result);
            }
        }
        if (failure) std::rethrow_exception(failure);
    }

    // The kernel refuses the ring itself: nothing can be asked of it any more, in flight or new.
    [[noreturn]] void lose_ring(const std::string& path, int error) {
        ring_->close();
        ring_errno_ = error;
        throw InputError(path + ": io_uring_enter failed: " + std::strerror(error), LOST);
    }

    static constexpr int64_t MOST_STALLS = 64;
    static constexpr const char* LOST = "open a new reader; method = \"pread\" does without io_uring";

    int64_t depth_, range_bytes_, window_bytes_;
    Staging staging_;  // goes after the ring, which may still write to it
    pid_t owner_;
    Faults faults_;
    std::vector<Request> requests_;
    std::unique_ptr<Ring> ring_;
    int ring_errno_ = 0;
    bool registered_ = false;
    int64_t num_resubmitted_ = 0, num_asked_ = 0, most_flying_bytes_ = 0, landed_bytes_ = 0;
    std::atomic<bool> busy_{false};
};

// Returns 0, or the errno that says why this process can have no io_uring.
int ring_errno() {
    Ring ring;
    return ring.open(1);
}

void page_digests(Array<uint8_t> pages, Array<uint64_t> out) {
    const char* bytes = reinterpret_cast<const char*>(pages.data());
    uint64_t* words = out.mutable_data();
    const int64_t num_bytes = pages.size();
    py::gil_scoped_release unlocked;
    digest_pages(bytes, num_bytes, words);
}

}  // namespace

void bind_direct_io(py::module_& m) {
    using py::arg;
    m.def("ring_errno", &ring_errno);
    m.def("page_digests", &page_digests, arg("pages").noconvert(), arg("out").noconvert());
    py::class_<Reader> reader(m, "PageReader");
    reader.def(py::init<int64_t, int64_t, int64_t, bool, std::array<int64_t, 3>>(), arg("depth"), arg("range_bytes"),
               arg("window_bytes"), arg("ring"), arg("faults"));
    reader.def("state", &Reader::state);
    const auto define = [&](auto function) {
        reader.def("read_rows", function, arg("file"), arg("path"), arg("row_ids").noconvert(), arg("row_bytes"),
                   arg("offset"), arg("merge"), arg("out").noconvert(), arg("digests").noconvert());
    };
    define(&Reader::read_rows<int32_t>);
    define(&Reader::read_rows<int64_t>);
    reader.def("read_pages", &Reader::read_pages, arg("file"), arg("path"), arg("begin"), arg("end"), arg("needed"),
               arg("piece_bytes"), arg("memory").noconvert(), arg("digests").noconvert());
}

}  // namespace graphmill
