// How arrays enter and leave the native module, and how it reports a mistake of the user's.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/half.h"

// NumPy has no bfloat16: uint16 holds its bits, and the two types that fill 16 bits stay apart by their kinds 'f' and 'u'.
namespace pybind11::detail {
template <>
struct npy_format_descriptor<graphmill::Half> {
    static constexpr auto name = const_name("numpy.float16");
    static pybind11::dtype dtype() { return pybind11::dtype("float16"); }
};
template <>
struct npy_format_descriptor<graphmill::BFloat> {
    static constexpr auto name = const_name("numpy.uint16");
    static pybind11::dtype dtype() { return pybind11::dtype("uint16"); }
};
}  // namespace pybind11::detail

namespace graphmill {

namespace py = pybind11;

// A C-contiguous array of exactly this type; read-only and memory-mapped ones are welcome. Bind it with noconvert().
template <class T>
using Array = py::array_t<T, py::array::c_style>;

// Becomes kernels.errors.InputError in Python (module.cpp translates).
struct InputError : std::runtime_error {
    std::string remedy;
    InputError(const std::string& problem, std::string what_to_do)
        : std::runtime_error(problem), remedy(std::move(what_to_do)) {}
};

// Uninitialised memory that is filled without the GIL and then handed to NumPy without a copy.
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

    // Hands the memory to a NumPy array (needs the GIL); None when the buffer was never made.
    py::object release() {
        if (!data_) return py::none();
        T* data = std::exchange(data_, nullptr);
        py::capsule owner(data, [](void* memory) { std::free(memory); });
        return py::array_t<T>({std::exchange(size_, 0)}, {static_cast<py::ssize_t>(sizeof(T))}, data, owner);
    }

  private:
    T* data_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace graphmill
