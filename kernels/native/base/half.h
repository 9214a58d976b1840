// float16 and bfloat16 as they lie in memory: exact conversions to float32, rounding to nearest even on the way back.
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

    static Half from(float value) {
#ifdef __F16C__
        return {static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT))};
#else
        uint32_t in;
        std::memcpy(&in, &value, sizeof in);
        const uint16_t sign = static_cast<uint16_t>(in >> 16 & 0x8000u);
        const uint32_t magnitude = in & 0x7FFFFFFFu;
        uint32_t out;
        if (magnitude > 0x7F800000u) {  // NaN, quiet
            out = 0x7E00u | (magnitude >> 13 & 0x3FFu);
        } else if (magnitude >= 0x47800000u) {  // 65,536 and more
            out = 0x7C00u;
        } else if (magnitude >= 0x38800000u) {  // a carry out of the mantissa raises the exponent, up to infinity
            out = (magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
        } else {  // a multiple of 2^-24: adding 0.5 leaves it, rounded, in the low bits
            float small;
            std::memcpy(&small, &magnitude, sizeof small);
            small += 0.5f;
            std::memcpy(&out, &small, sizeof out);
            out -= 0x3F000000u;
        }
        return {static_cast<uint16_t>(sign | out)};
#endif
    }
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

    static BFloat from(float value) {
        uint32_t in;
        std::memcpy(&in, &value, sizeof in);
        const bool nan = (in & 0x7FFFFFFFu) > 0x7F800000u;
        const uint32_t out = nan ? in >> 16 | 0x40u : (in + 0x7FFFu + (in >> 16 & 1u)) >> 16;
        return {static_cast<uint16_t>(out)};
    }
};

}  // namespace graphmill
