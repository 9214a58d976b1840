// Columns of numbers from lines of text; see kernels/graph/text_columns.py.
#include "graph/graph.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"

namespace graphmill {
namespace {

// How lines are written. A separator of 0 stands for any number of blanks and tabs.
struct Form {
    char separator;
    char comment;  // 0 = there are none
    bool carriage;
    int64_t num_fields;
};

// Where a field of a line goes: at most one of the two is set.
struct Target {
    int64_t* whole = nullptr;
    float* real = nullptr;
};

// Reads lines one after the other. Every function returns false for what is not plain, and then nothing else counts.
class Lines {
  public:
    Lines(const Form& form, const std::vector<Target>& targets, const char* at) : form_(form), targets_(targets), at_(at) {
        for (int byte = 0; byte < 256; ++byte) plain_[byte] = byte >= ' ' && byte < 127 && byte != '"';
        plain_[static_cast<uint8_t>('\t')] = true;
        if (form.separator) {
            plain_[static_cast<uint8_t>(form.separator)] = false;
        } else {
            plain_[static_cast<uint8_t>(' ')] = plain_[static_cast<uint8_t>('\t')] = false;
        }
    }

    bool parse(const char* end, int64_t row) {
        for (; at_ < end; ++row) {
            if (!line(row)) return false;
        }
        return true;
    }

  private:
    bool blank() const { return (*at_ == ' ' || *at_ == '\t') && *at_ != form_.separator; }

    bool line(int64_t row) {
        if (!form_.separator || form_.comment) {
            const char* first = at_;
            while (*first == ' ' || *first == '\t') ++first;
            if (form_.comment && *first == form_.comment) return false;
            if (!form_.separator) at_ = first;
        }
        for (int64_t place = 0; place < form_.num_fields; ++place) {
            const Target& target = targets_[place];
            if (target.whole) {
                if (!whole(target.whole[row])) return false;
            } else if (target.real) {
                if (!real(target.real[row])) return false;
            } else {
                const char* begin = at_;
                while (plain_[static_cast<uint8_t>(*at_)]) ++at_;
                if (!form_.separator && at_ == begin) return false;  // a line of blanks
            }
            if (place + 1 < form_.num_fields && !separated()) return false;
        }
        return ended();
    }

    bool separated() {
        if (form_.separator) return *at_++ == form_.separator;
        if (!blank()) return false;
        while (blank()) ++at_;
        return true;
    }

    bool ended() {
        if (!form_.separator) {
            while (blank()) ++at_;
        }
        if (form_.carriage && *at_++ != '\r') return false;
        return *at_++ == '\n';
    }

    // A whole number as this project writes it: no sign but a minus, no leading zero, 64 bits. Blanks around it do not count.
    bool whole(int64_t& value) {
        while (blank()) ++at_;
        const bool negative = *at_ == '-';
        at_ += negative;
        const char* begin = at_;
        uint64_t sum = 0;
        for (unsigned digit; (digit = static_cast<unsigned>(*at_) - '0') <= 9; ++at_) sum = 10 * sum + digit;
        const int64_t digits = at_ - begin;
        if (digits == 0 || digits > 19 || (*begin == '0' && (digits > 1 || negative))) return false;
        if (sum > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
        value = negative ? -static_cast<int64_t>(sum) : static_cast<int64_t>(sum);
        if (form_.separator) {
            while (blank()) ++at_;
        }
        return true;
    }

    // A decimal number without blanks, -1.5e-3, rounded once to the nearest float; a subnormal one is not plain.
    bool real(float& value) {
        const char* end = at_ + (*at_ == '-');
        bool zero = true;
        if (!digits(end, zero) || (*end == '.' && !digits(++end, zero))) return false;
        if (*end == 'e' || *end == 'E') {
            ++end;
            end += *end == '-' || *end == '+';
            bool any = true;
            if (!digits(end, any)) return false;
        }
        const auto [stop, error] = std::from_chars(at_, end, value);
        if (stop != end || error != std::errc()) return false;
        at_ = end;
        return zero || std::fabs(value) >= std::numeric_limits<float>::min();
    }

    // Passes digits, of which there must be one; `zero` stays true if all of them are 0.
    static bool digits(const char*& at, bool& zero) {
        const char* begin = at;
        for (; *at >= '0' && *at <= '9'; ++at) zero &= *at == '0';
        return at > begin;
    }

    const Form& form_;
    const std::vector<Target>& targets_;
    const char* at_;
    bool plain_[256];
};

int64_t count_lines(const char* at, const char* end) {
    int64_t lines = 0;
    for (; at < end; ++at) lines += *at == '\n';
    return lines;
}

}  // namespace

std::optional<std::vector<TextColumn>> text_columns(const char* text, int64_t size, int separator, int comment, bool carriage,
                                                    int64_t num_fields, const std::vector<std::pair<int64_t, bool>>& columns,
                                                    int threads) {
    const Form form{static_cast<char>(separator), static_cast<char>(comment), carriage, num_fields};
    // Each piece begins behind the end of a line.
    const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(threads, size >> 16));
    std::vector<const char*> starts(pieces + 1, text + size);
    starts[0] = text;
    for (int64_t piece = 1; piece < pieces; ++piece) {
        const char* from = std::max(text + size * piece / pieces, starts[piece - 1]);
        starts[piece] = from < text + size ? static_cast<const char*>(std::memchr(from, '\n', text + size - from)) + 1 : from;
    }
    std::vector<int64_t> rows(pieces + 1, 0);
    parallel_for(pieces, 1, threads, [&](int64_t low, int64_t high) {
        for (int64_t piece = low; piece < high; ++piece) rows[piece + 1] = count_lines(starts[piece], starts[piece + 1]);
    });
    for (int64_t piece = 0; piece < pieces; ++piece) rows[piece + 1] += rows[piece];
    std::vector<TextColumn> found(columns.size());
    std::vector<Target> targets(num_fields);
    for (size_t number = 0; number < columns.size(); ++number) {
        Target& target = targets[columns[number].first];
        if (columns[number].second) {
            found[number].real = Buffer<float>(rows[pieces]);
            target.real = found[number].real.data();
        } else {
            found[number].whole = Buffer<int64_t>(rows[pieces]);
            target.whole = found[number].whole.data();
        }
    }
    std::atomic<bool> plain{true};
    parallel_for(pieces, 1, threads, [&](int64_t low, int64_t high) {
        for (int64_t piece = low; piece < high; ++piece) {
            if (!Lines(form, targets, starts[piece]).parse(starts[piece + 1], rows[piece])) plain = false;
        }
    });
    if (!plain) return std::nullopt;
    return found;
}

}  // namespace graphmill
