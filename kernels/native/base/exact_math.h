// log and exp of +, -, * and / alone: IEEE operations give the same bits on every machine, those of mathematical libraries do not.
#pragma once

#include <cmath>

namespace graphmill {

// -log(y) for y in (0, 1]. With y = m 2^e and m about 1: log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), |s| < 0.172.
inline double minus_log(double y) {
    int exponent;
    double m = std::frexp(y, &exponent);  // exact
    if (m < 0.70710678118654752) {
        m *= 2;
        --exponent;
    }
    const double s = (m - 1) / (m + 1), z = s * s;
    double series = 0;
    for (int odd = 21; odd >= 1; odd -= 2) series = series * z + 1.0 / odd;
    return -(2 * s * series + exponent * 0.69314718055994531);
}

// 1 - exp(-x) for x >= 0. With x = k log 2 + r: exp(-r) by its series, |r| < 0.35; small x keep their relative precision.
inline double one_minus_exp(double x) {
    if (x > 60) return 1;
    const double k = std::floor(x * 1.4426950408889634 + 0.5), r = k * 0.69314718055994531 - x;
    double series = 0;
    for (int n = 14; n >= 1; --n) series = (series + 1) * (r / n);
    return k == 0 ? -series : 1 - std::ldexp(1 + series, -static_cast<int>(k));
}

}  // namespace graphmill
