// A small io_uring on raw system calls: no library stands between, so nothing needs to be installed.
#pragma once

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace graphmill {

// One submission and one completion queue in memory that is shared with the kernel. Used by one thread at a time.
class Ring {
  public:
    Ring() = default;
    Ring(const Ring&) = delete;
    Ring& operator=(const Ring&) = delete;
    ~Ring() { close(); }

    // Returns 0, or the errno that says why there is no ring: ENOSYS, EPERM (seccomp, io_uring_disabled), ENOMEM, EMFILE.
    int open(unsigned depth) {
        io_uring_params params;
        // Work that finishes a request waits for our next system call instead of interrupting us (Linux 5.19 on).
        for (unsigned flags : {IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN, IORING_SETUP_CLAMP}) {
            std::memset(&params, 0, sizeof params);
            params.flags = flags;
            fd_ = static_cast<int>(syscall(__NR_io_uring_setup, depth, &params));
            if (fd_ >= 0 || errno != EINVAL) break;
        }
        if (fd_ < 0) return errno;
        if (!(params.features & IORING_FEAT_SINGLE_MMAP)) return fail(ENOSYS);  // Linux before 5.4
        entries_ = params.sq_entries;
        rings_bytes_ = params.sq_off.array + params.sq_entries * sizeof(unsigned);
        const size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
        if (completions > rings_bytes_) rings_bytes_ = completions;
        sqes_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
        rings_ = static_cast<char*>(map(rings_bytes_, IORING_OFF_SQ_RING));
        sqes_ = static_cast<io_uring_sqe*>(map(sqes_bytes_, IORING_OFF_SQES));
        if (!rings_ || !sqes_) return fail(ENOMEM);
        sq_tail_ = word(params.sq_off.tail);
        sq_mask_ = *word(params.sq_off.ring_mask);
        sq_array_ = word(params.sq_off.array);
        cq_head_ = word(params.cq_off.head);
        cq_tail_ = word(params.cq_off.tail);
        cq_mask_ = *word(params.cq_off.ring_mask);
        cqes_ = reinterpret_cast<io_uring_cqe*>(rings_ + params.cq_off.cqes);
        return 0;
    }

    // Pins the buffer once instead of at every request. Returns 0 or an errno (ENOMEM: the limit of locked memory).
    int register_buffer(void* memory, size_t bytes) {
        iovec piece{memory, bytes};
        const long result = syscall(__NR_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &piece, 1);
        return result < 0 ? errno : 0;
    }

    unsigned entries() const { return entries_; }

    // Queues a read, or a write; it starts at the next `enter`. At most `entries` requests may be queued and not yet entered.
    void move(bool writes, int file, void* memory, uint32_t bytes, int64_t offset, uint64_t user_data, bool registered) {
        const unsigned tail = *sq_tail_;
        io_uring_sqe& entry = sqes_[tail & sq_mask_];
        std::memset(&entry, 0, sizeof entry);
        const auto [pinned, plain] = writes ? std::pair{IORING_OP_WRITE_FIXED, IORING_OP_WRITE}
                                            : std::pair{IORING_OP_READ_FIXED, IORING_OP_READ};
        entry.opcode = static_cast<uint8_t>(registered ? pinned : plain);
        entry.fd = file;
        entry.addr = reinterpret_cast<uint64_t>(memory);
        entry.len = bytes;
        entry.off = static_cast<uint64_t>(offset);
        entry.user_data = user_data;
        sq_array_[tail & sq_mask_] = tail & sq_mask_;
        __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
        ++queued_;
    }

    // Hands queued requests to the kernel and waits for at least one completion. Returns 0 or an errno that is not
    // EINTR; EAGAIN and EBUSY mean that completions must be taken first.
    int enter() {
        for (;;) {
            const long taken = syscall(__NR_io_uring_enter, fd_, queued_, 1u, IORING_ENTER_GETEVENTS, nullptr, 0);
            if (taken >= 0) {
                queued_ -= static_cast<unsigned>(taken);
                return 0;
            }
            if (errno != EINTR) return errno;
        }
    }

    // Takes one completion, when there is one.
    bool reap(uint64_t* user_data, int32_t* result) {
        const unsigned head = *cq_head_;
        if (head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) return false;
        const io_uring_cqe& entry = cqes_[head & cq_mask_];
        *user_data = entry.user_data;
        *result = entry.res;
        __atomic_store_n(cq_head_, head + 1, __ATOMIC_RELEASE);
        return true;
    }

    void close() {
        if (rings_) munmap(std::exchange(rings_, nullptr), rings_bytes_);
        if (sqes_) munmap(std::exchange(sqes_, nullptr), sqes_bytes_);
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

  private:
    void* map(size_t bytes, uint64_t offset) const {
        void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_,
                            static_cast<off_t>(offset));
        return memory == MAP_FAILED ? nullptr : memory;
    }

    unsigned* word(unsigned offset) const { return reinterpret_cast<unsigned*>(rings_ + offset); }

    int fail(int error) {
        close();
        return error;
    }

    int fd_ = -1;
    char* rings_ = nullptr;
    io_uring_sqe* sqes_ = nullptr;
    io_uring_cqe* cqes_ = nullptr;
    unsigned *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
    size_t rings_bytes_ = 0, sqes_bytes_ = 0;
    unsigned sq_mask_ = 0, cq_mask_ = 0, entries_ = 0, queued_ = 0;
};

}  // namespace graphmill
