// float16 and bfloat16 as they lie in memory, and their exact conversions.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace graphmill {

struct Half {
    uint16_t bits;

    explicit operator float() const {
#ifdef __F16C__
        return _cvtsh_ss(bits);
#else
        const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
        uint32_t out;
        if (magnitude >= 0x7C00u) {  // infinity, NaN (made quiet, as the hardware does)
            out = 0x7F800000u | (magnitude & 0x3FFu) << 13 | (magnitude > 0x7C00u ? 0x400000u : 0u);
        } else if (magnitude >= 0x0400u) {
            out = (magnitude << 13) + ((127u - 15u) << 23);
        } else {  // a multiple of 2^-24, exact in float32
            const float small = static_cast<float>(magnitude) * 0x1p-24f;
            std::memcpy(&out, &small, sizeof out);
        }
        out |= sign;
        float value;
        std::memcpy(&value, &out, sizeof value);
        return value;
#endif
    }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

struct BFloat {
    uint16_t bits;  // the upper half of a float32

    explicit operator float() const {
        const uint32_t wide = uint32_t(bits) << 16;
        float value;
        std::memcpy(&value, &wide, sizeof value);
        return value;
    }
    explicit operator double() const { return static_cast<double>(static_cast<float>(*this)); }
};

}  // namespace graphmill
