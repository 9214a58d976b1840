// What Python passes to kernels and gets from them; only the bind.cpp of a room sees this.
//
// An array argument has exactly the declared type, C order, and is never converted: a copy would be read, or written, in place of the
// array that the caller means. nb::ndarray holds it to that. The arguments of a call outlive it, so kernels get plain pointers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "base/array.h"
#include "base/buffer.h"
#include "base/half.h"

namespace graphmill {

namespace nb = nanobind;
using namespace nanobind::literals;

// A kernel runs without the lock of Python's interpreter; what it returns becomes an object of Python once the lock is held again.
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

// Kinds of number types by the names of NumPy.
constexpr std::pair<nb::dlpack::dtype_code, char> KINDS[] = {
    {nb::dlpack::dtype_code::Int, 'i'}, {nb::dlpack::dtype_code::UInt, 'u'}, {nb::dlpack::dtype_code::Float, 'f'},
    {nb::dlpack::dtype_code::Complex, 'c'}, {nb::dlpack::dtype_code::Bool, 'b'},
};

inline ElementType element_type(nb::dlpack::dtype type) {
    for (const auto& [code, kind] : KINDS) {
        if (uint8_t(code) == type.code) return {kind, type.bits / 8};
    }
    return {'?', type.bits / 8};
}

inline nb::dlpack::dtype dtype_of(ElementType type) {
    for (const auto& [code, kind] : KINDS) {
        if (kind == type.kind) return {uint8_t(code), uint8_t(8 * type.bytes), 1};
    }
    throw nb::type_error("NumPy has no such number type");
}

// NumPy calls the 64-bit integers of this platform by C's `long`, nanobind by `long long`: their elements would not be instances of
// numpy.int64. Takes an array and returns it, of integers of 64 bits a view under NumPy's name; no object if there is no memory for it.
inline nb::handle with_name_of_numpy(nb::handle array, nb::dlpack::dtype type) noexcept {
    const bool with_sign = type.code == uint8_t(nb::dlpack::dtype_code::Int), without_sign = type.code == uint8_t(nb::dlpack::dtype_code::UInt);
    if (!array.is_valid() || type.bits != 64 || !(with_sign || without_sign)) return array;
    const nb::handle view = PyObject_CallMethod(array.ptr(), "view", "s", with_sign ? "l" : "L");
    array.dec_ref();
    return view;
}

// Hands a buffer to NumPy without a copy: an array of this shape, whose elements may have another type than those of the buffer.
// A buffer that was never made becomes None.
template <class T>
nb::object owned(Buffer<T>&& buffer, std::initializer_list<size_t> shape, nb::dlpack::dtype type = nb::dtype<T>()) {
    T* data = buffer.release();
    if (!data) return nb::none();
    const nb::capsule owner(data, [](void* memory) noexcept { std::free(memory); });
    nb::object array = nb::cast(nb::ndarray<nb::numpy, nb::device::cpu>(data, shape, owner, {}, type), nb::rv_policy::reference);
    const nb::handle named = with_name_of_numpy(array.release(), type);
    if (!named.is_valid()) throw nb::python_error();
    return nb::steal(named);
}

}  // namespace graphmill

namespace nanobind::detail {

// NumPy has no bfloat16: uint16 holds its bits, so the two types of 16 bits stay apart.
template <>
struct dtype_traits<graphmill::Half> {
    static constexpr dlpack::dtype value{static_cast<uint8_t>(dlpack::dtype_code::Float), 16, 1};
    static constexpr auto name = const_name("float16");
};
template <>
struct dtype_traits<graphmill::BFloat> {
    static constexpr dlpack::dtype value{static_cast<uint8_t>(dlpack::dtype_code::UInt), 16, 1};
    static constexpr auto name = const_name("uint16");
};

template <class T>
struct type_caster<graphmill::Array<T>> {
    using Declared = ndarray<T, c_contig, device::cpu>;
    NB_TYPE_CASTER(graphmill::Array<T>, make_caster<Declared>::Name)

    bool from_python(handle given, uint32_t flags, cleanup_list* cleanup) noexcept {
        make_caster<Declared> array;
        if (given.is_none() || !array.from_python(given, flags & ~uint32_t(cast_flags::convert), cleanup)) return false;
        const Declared& found = array.value;
        if (found.ndim() > size_t(graphmill::Array<T>::MOST_DIMENSIONS)) return false;
        value = {found.data(), found.shape_ptr(), int(found.ndim())};
        return true;
    }
};

// A table of any number type; `Byte` is const if it is only read. The elements of a row lie side by side.
template <class Byte>
struct type_caster<graphmill::AnyTable<Byte>> {
    using Declared = std::conditional_t<std::is_const_v<Byte>, ndarray<ro, device::cpu>, ndarray<device::cpu>>;
    NB_TYPE_CASTER(graphmill::AnyTable<Byte>, make_caster<Declared>::Name)

    bool from_python(handle given, uint32_t flags, cleanup_list* cleanup) noexcept {
        make_caster<Declared> array;
        if (given.is_none() || !array.from_python(given, flags & ~uint32_t(cast_flags::convert), cleanup)) return false;
        const Declared& found = array.value;
        if (found.ndim() < 1) return false;
        value.data = static_cast<Byte*>(found.data());
        value.type = graphmill::element_type(found.dtype());
        value.num_rows = found.shape(0);
        value.dimensions = int(found.ndim());
        value.stride = found.stride(0) * value.type.bytes;
        value.width = 1;
        for (size_t axis = found.ndim(); --axis > 0;) {
            if (found.shape(axis) > 1 && found.stride(axis) != value.width && found.size() > 0) return false;
            value.width *= found.shape(axis);
        }
        return true;
    }
};

template <class T>
struct type_caster<graphmill::Buffer<T>> {
    using Owned = ndarray<numpy, T, ndim<1>, c_contig, device::cpu>;
    static constexpr auto Name = make_caster<Owned>::Name;
    template <class>
    using Cast = graphmill::Buffer<T>;

    static handle from_cpp(graphmill::Buffer<T>& buffer, rv_policy policy, cleanup_list* cleanup) noexcept {
        return from_cpp(std::move(buffer), policy, cleanup);
    }
    static handle from_cpp(graphmill::Buffer<T>&& buffer, rv_policy, cleanup_list* cleanup) noexcept {
        const size_t size = static_cast<size_t>(buffer.size());
        T* data = buffer.release();
        if (!data) return none().release();
        capsule owner(data, [](void* memory) noexcept { std::free(memory); });
        return graphmill::with_name_of_numpy(make_caster<Owned>::from_cpp(Owned(data, {size}, owner), rv_policy::reference, cleanup), dtype<T>());
    }
};

}  // namespace nanobind::detail
