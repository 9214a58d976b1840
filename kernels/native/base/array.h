// Arrays of the caller as kernels see them: plain pointers and counts. base/bind.h makes them from arrays of Python.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>

namespace graphmill {

// A C-contiguous array of exactly this type, of at most four dimensions. `const T` is only read, and may be read-only or mapped from a
// file. It does not own its memory: whoever calls a kernel keeps the array until the kernel returns.
template <class T>
class Array {
  public:
    static constexpr int MOST_DIMENSIONS = 4;

    Array() = default;
    Array(T* data, const int64_t* shape, int dimensions) : data_(data), dimensions_(dimensions) {
        for (int axis = 0; axis < dimensions; ++axis) size_ *= shape_[axis] = shape[axis];
    }
    Array(T* data, int64_t size) : Array(data, &size, 1) {}
    template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
    Array(const Array<U>& written) : Array(written.data(), written.shape(), written.dimensions()) {}

    T* data() const { return data_; }
    int64_t size() const { return size_; }
    int dimensions() const { return dimensions_; }
    const int64_t* shape() const { return shape_; }
    int64_t shape(int axis) const { return shape_[axis]; }
    T& operator[](int64_t index) const { return data_[index]; }

  private:
    T* data_ = nullptr;
    int64_t shape_[MOST_DIMENSIONS] = {};
    int64_t size_ = 1;
    int dimensions_ = 0;
};

// An array that the caller may leave out (None in Python).
template <class T>
using Optional = std::optional<Array<T>>;

// The first element, nullptr if the array was left out.
template <class T>
T* pointer(const Optional<T>& array) {
    return array ? array->data() : nullptr;
}

// Which number type the elements of a table have, named as NumPy does: its kind and the bytes of an element. Kind 'u' of 2 bytes is
// bfloat16, which NumPy does not have.
struct ElementType {
    char kind = 0;
    int64_t bytes = 0;
    bool operator==(const ElementType& other) const { return kind == other.kind && bytes == other.bytes; }
};

// A table whose type is known when the program runs. The elements of a row lie side by side, the rows one stride apart.
template <class Byte>
struct AnyTable {
    Byte* data = nullptr;
    ElementType type;
    int64_t num_rows = 0, width = 1;  // width: elements of a row, all dimensions but the first
    int64_t stride = 0;               // bytes from row to row
    int dimensions = 1;
};
using Table = AnyTable<const char>;
using WrittenTable = AnyTable<char>;

}  // namespace graphmill
