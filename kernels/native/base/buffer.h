// Memory that a kernel fills and then hands over.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

namespace graphmill {

// Uninitialised memory. base/bind.h hands it to NumPy without a copy; a buffer that was never made becomes None.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(int64_t size) : size_(size) {
        data_ = static_cast<T*>(std::malloc(size > 0 ? static_cast<size_t>(size) * sizeof(T) : 1));
        if (!data_) throw std::bad_alloc();
    }
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    int64_t size() const { return size_; }
    T& operator[](int64_t index) { return data_[index]; }
    const T& operator[](int64_t index) const { return data_[index]; }

    // Keeps the contents; the memory that is added is uninitialised.
    void grow(int64_t size) {
        if (size <= size_) return;
        size = size_ + size_ / 2 > size ? size_ + size_ / 2 : size;
        T* larger = static_cast<T*>(std::realloc(data_, static_cast<size_t>(size) * sizeof(T)));
        if (!larger) throw std::bad_alloc();
        data_ = larger;
        size_ = size;
    }

    // Forgets the last elements and gives their memory back.
    void shrink(int64_t size) {
        if (size >= size_) return;
        if (T* smaller = static_cast<T*>(std::realloc(data_, size > 0 ? static_cast<size_t>(size) * sizeof(T) : 1))) data_ = smaller;
        size_ = size;
    }

    // Leaves the buffer empty; the caller frees the memory with std::free. nullptr if it was never made.
    T* release() {
        size_ = 0;
        return std::exchange(data_, nullptr);
    }

  private:
    T* data_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace graphmill
