// Zeroed memory that is read and written at random, or by devices: pages come from the system when they are first touched, and
// large ones (Linux, where it allows them) spare most misses of the address translation, and lists of small pieces of a transfer.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace graphmill {

template <class T>
class ZeroPages {
  public:
    explicit ZeroPages(int64_t size) : bytes_((static_cast<size_t>(size) * sizeof(T) / LARGE + 2) * LARGE) {
        void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        mapped_ = mapped;
        data_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(mapped) + LARGE - 1) / LARGE * LARGE);
#ifdef MADV_HUGEPAGE
        madvise(data_, static_cast<size_t>(size) * sizeof(T), MADV_HUGEPAGE);  // a wish; refusing it costs speed only
#endif
    }
    ~ZeroPages() { munmap(mapped_, bytes_); }
    ZeroPages(const ZeroPages&) = delete;
    ZeroPages& operator=(const ZeroPages&) = delete;

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](int64_t index) { return data_[index]; }

  private:
    static constexpr size_t LARGE = size_t{1} << 21;
    size_t bytes_;
    void* mapped_;
    T* data_;
};

}  // namespace graphmill
