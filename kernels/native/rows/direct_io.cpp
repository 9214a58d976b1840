// The reader of files; see page_reader.h.
#include "rows/page_reader.h"

#include <sched.h>
#include <sys/stat.h>

#include "base/input_error.h"
#include "rows/page_digest.h"
#include "rows/rows.h"

namespace graphmill {
namespace {

constexpr int64_t MOST_STALLS = 64;
constexpr const char* LOST = "open a new reader; method = \"pread\" does without io_uring";

[[noreturn]] void fail(const std::string& path, int64_t begin, int64_t end, const std::string& why, bool writes = false) {
    throw InputError(path + ": bytes " + std::to_string(begin) + " to " + std::to_string(end) + " could not be " +
                         (writes ? "written: " : "read: ") + why,
                     writes ? "free space, or check the disk"
                            : "check the disk and `graphmill verify`; build the file again if it is damaged");
}

// Begins to write a request that was read.
void send_back(Request& request) {
    request.writes = true;
    request.needed = request.end;
    request.done = request.stalls = 0;
}

// Returns the bytes of the file.
template <class Id>
int64_t check_rows(int file, const std::string& path, const Id* ids, int64_t count, int64_t row_bytes, int64_t offset) {
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

void check_pages(const std::string& path, const Request& request, int64_t offset, const uint64_t* words,
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

}  // namespace

PageReader::PageReader(int64_t depth, int64_t range_bytes, int64_t window_bytes, bool ring, std::array<int64_t, 3> faults)
    : depth_(depth), range_bytes_(range_bytes), window_bytes_(window_bytes), staging_(ring ? depth * range_bytes : range_bytes),
      owner_(getpid()), requests_(ring ? depth : 1), faults_{faults[0], faults[1], faults[2]} {
    if (!ring) return;
    ring_ = std::make_unique<Ring>();
    ring_errno_ = ring_->open(static_cast<unsigned>(depth));
}

std::tuple<int, int64_t, int64_t, int64_t> PageReader::state() const {
    return {ring_errno_, num_resubmitted_, most_flying_bytes_, landed_bytes_};
}

bool PageReader::pin_staging() {
    if (ring_ && !ring_errno_ && !registered_) registered_ = ring_->register_buffer(staging_.data(), staging_.size()) == 0;
    return registered_.value_or(false);
}

PageReader::Turn::Turn(PageReader& reader) : busy(reader.busy_) {
    if (reader.owner_ != getpid()) throw InputError("this reader was made before a fork", "make one in each process");
    if (busy.exchange(true)) throw InputError("two threads use one PageReader at once", "make one for each thread");
}

template <class Id>
PageReader::Moved PageReader::read_rows(int file, const std::string& path, Array<const Id> row_ids, int64_t row_bytes, int64_t offset,
                                        bool merge, WrittenTable out, Optional<const uint64_t> digests) {
    const Turn turn(*this);
    const int64_t file_bytes = check_rows(file, path, row_ids.data(), row_ids.size(), row_bytes, offset);
    RowRequests wanted(row_ids.data(), row_ids.size(), row_bytes, offset, range_bytes_, merge);
    read_wanted(file, path, file_bytes, offset, wanted, out, digests);
    return {wanted.num_requests, row_ids.size() * row_bytes, wanted.moved_bytes};
}

template PageReader::Moved PageReader::read_rows(int, const std::string&, Array<const int32_t>, int64_t, int64_t, bool, WrittenTable,
                                                 Optional<const uint64_t>);
template PageReader::Moved PageReader::read_rows(int, const std::string&, Array<const int64_t>, int64_t, int64_t, bool, WrittenTable,
                                                 Optional<const uint64_t>);

void PageReader::read_wanted(int file, const std::string& path, int64_t file_bytes, int64_t offset, RowRequests& wanted,
                             const WrittenTable& out, const Optional<const uint64_t>& digests) {
    const uint64_t* words = pointer(digests);
    const int64_t num_pages = digests ? digests->size() : 0, stride = out.stride, alignment = landing_alignment(file);
    char* rows = out.data;
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
        return false;
    };
    transfer(file, path, pin_staging(), next, arrived);
}

PageReader::Moved PageReader::write_rows(int file, const std::string& path, Array<const int64_t> row_ids, int64_t row_bytes, int64_t offset,
                                         Table rows) {
    const Turn turn(*this);
    if (const int64_t bytes = check_rows(file, path, row_ids.data(), row_ids.size(), row_bytes, offset); bytes % PAGE_BYTES) {
        throw InputError(path + " has " + std::to_string(bytes) + " bytes, which are not whole pages", "pad it to whole pages");
    }
    RowRequests wanted(row_ids.data(), row_ids.size(), row_bytes, offset, range_bytes_, true);
    const auto next = [&](int64_t slot, Request* request) {
        if (!wanted.next(request)) return false;
        request->memory = staging_.data() + slot * range_bytes_;
        request->landed = nullptr;
        request->needed = request->end;
        return true;
    };
    const auto arrived = [&](const Request& request) {
        wanted.replace(request, rows.data, rows.stride);
        return true;
    };
    transfer(file, path, pin_staging(), next, arrived);
    return {wanted.num_requests, row_ids.size() * row_bytes, 2 * wanted.moved_bytes};
}

int64_t PageReader::read_pages(int file, const std::string& path, int64_t begin, int64_t end, int64_t needed, int64_t piece_bytes,
                               Array<uint8_t> memory, Optional<uint64_t> digests) {
    char* out = reinterpret_cast<char*>(memory.data());
    uint64_t* words = pointer(digests);
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
        return false;
    };
    transfer(file, path, false, next, arrived);
    return pieces;
}

bool PageReader::book(const std::string& path, Request& request, int64_t result) {
    if (result < 0 && result != -EINTR && result != -EAGAIN) {
        fail(path, request.begin + request.done, request.end, std::strerror(static_cast<int>(-result)), request.writes);
    }
    const int64_t reached = request.begin + request.done + std::max<int64_t>(0, result);
    if (reached >= request.needed) return true;
    if (result == 0 && request.writes) fail(path, reached, request.needed, "the file takes no more bytes", true);
    if (result == 0) fail(path, reached, request.needed, "the file ends at byte " + std::to_string(reached));
    const int64_t before = request.done;
    request.done = page_floor(reached - request.begin);  // an offset inside a page cannot be asked for
    request.stalls = request.done > before ? 0 : request.stalls + 1;
    if (request.stalls > MOST_STALLS) {
        fail(path, reached, request.needed, "no request got beyond byte " + std::to_string(reached), request.writes);
    }
    ++num_resubmitted_;
    return false;
}

std::pair<int64_t, int> PageReader::ask(const Request& request, int file) {
    const int64_t bytes = request.end - request.begin - request.done;
    if (request.done || request.stalls) return {bytes, file};
    const int64_t number = num_asked_++;
    if (number == faults_.break_at) return {bytes, -1};
    const bool shorten = faults_.shorten_every && number % faults_.shorten_every == 0;
    return {shorten ? std::min(bytes, faults_.shorten_to) : bytes, file};
}

template <class Next, class Arrived>
void PageReader::transfer(int file, const std::string& path, bool registered, Next next, Arrived arrived) {
    if (ring_) {
        // Requests of a lost ring may still write to the memory of this reader.
        if (ring_errno_) throw InputError("this reader's io_uring was lost", LOST);
        return transfer_by_ring(file, path, registered, next, arrived);
    }
    const auto move = [&](Request& request) {
        int64_t result;
        do {
            const auto [bytes, descriptor] = ask(request, file);
            char* memory = request.memory + request.done;
            const int64_t begin = request.begin + request.done;
            result = request.writes ? pwrite(descriptor, memory, bytes, begin) : pread(descriptor, memory, bytes, begin);
            if (result < 0) result = -errno;
        } while (!book(path, request, result));
    };
    for (Request& request = requests_[0]; next(0, &request);) {
        move(request);
        if (!arrived(request)) continue;
        send_back(request);
        move(request);
    }
}

template <class Next, class Arrived>
void PageReader::transfer_by_ring(int file, const std::string& path, bool registered, Next next, Arrived arrived) {
    std::vector<int64_t> idle(std::min<int64_t>(depth_, ring_->entries()));
    for (size_t i = 0; i < idle.size(); ++i) idle[i] = idle.size() - 1 - i;
    int64_t flying = 0, flying_bytes = 0;
    std::exception_ptr failure;
    const auto submit = [&](int64_t slot) {
        Request& request = requests_[slot];
        const auto [bytes, descriptor] = ask(request, file);
        ring_->move(request.writes, descriptor, request.memory + request.done, static_cast<uint32_t>(bytes),
                    request.begin + request.done, slot, registered && !request.landed);
        ++flying;
        flying_bytes += request.end - request.begin;
        most_flying_bytes_ = std::max(most_flying_bytes_, flying_bytes);
    };
    const auto settle = [&](int64_t slot, int64_t result) {
        if (!failure) {
            try {
                Request& request = requests_[slot];
                if (!book(path, request, result)) return submit(slot);
                if (!request.writes && arrived(request)) {
                    send_back(request);
                    return submit(slot);
                }
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

void PageReader::lose_ring(const std::string& path, int error) {
    ring_->close();
    ring_errno_ = error;
    throw InputError(path + ": io_uring_enter failed: " + std::strerror(error), LOST);
}

int ring_errno() {
    Ring ring;
    return ring.open(1);
}

void page_digests(Array<const uint8_t> pages, Array<uint64_t> out) {
    digest_pages(reinterpret_cast<const char*>(pages.data()), pages.size(), out.data());
}

}  // namespace graphmill
