// A zeroed array that is read and written at random, or by devices. The system gives its memory when it is first touched, and in large
// pieces where it can (Linux): these spare most misses of the address translation, and long lists of small pieces in a transfer.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace graphmill {

template <class T>
class ZeroedArray {
  public:
    explicit ZeroedArray(int64_t size) : bytes_((static_cast<size_t>(size) * sizeof(T) / LARGE + 2) * LARGE) {
        void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) throw std::bad_alloc();
        mapped_ = mapped;
        data_ = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(mapped) + LARGE - 1) / LARGE * LARGE);
#ifdef MADV_HUGEPAGE
        madvise(data_, static_cast<size_t>(size) * sizeof(T), MADV_HUGEPAGE);  // a wish; refusing it costs speed only
#endif
    }
    ~ZeroedArray() { munmap(mapped_, bytes_); }
    ZeroedArray(const ZeroedArray&) = delete;
    ZeroedArray& operator=(const ZeroedArray&) = delete;

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
