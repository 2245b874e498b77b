// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "qk/formats/floating.hpp"
#include "qk/graph/files/atomic_file.hpp"
#include "qk/graph/files/file.hpp"
#include "qk/graph/files/npy.hpp"
#include "qk/graph/files/zip.hpp"

namespace qk::graph {
namespace detail {

static_assert(std::endian::native == std::endian::little, "NumPy files are written in this machine's order");

struct npy_type {
    std::string_view code;  ///< without the byte order
    data_type type;
};
inline constexpr npy_type npy_types[] = {
    {"b1", data_type::boolean},   {"i1", data_type::int8},        {"u1", data_type::uint8},   {"i2", data_type::int16},
    {"u2", data_type::uint16},    {"i4", data_type::int32},       {"u4", data_type::uint32},  {"i8", data_type::int64},
    {"u8", data_type::uint64},    {"f2", data_type::float16},     {"f4", data_type::float32}, {"f8", data_type::float64},
    {"c8", data_type::complex64}, {"c16", data_type::complex128},
};

/// The header is a Python dictionary literal with exactly the keys descr, fortran_order and shape.
struct npy_header {
    std::string descr;
    bool fortran = false;
    dims shape;
};

class npy_header_parser {
  public:
    npy_header_parser(std::string_view text, const std::string& label) : text_(text), label_(&label) {}

    npy_header parse() {
        npy_header h;
        bool descr = false, order = false, shape = false;
        expect('{');
        while (!accept('}')) {
            const std::string key = quoted();
            expect(':');
            if (key == "descr") {
                if (peek() == '[') fail("structured arrays are not supported; save one array a file");
                h.descr = quoted(), descr = true;
            } else if (key == "fortran_order") {
                h.fortran = boolean(), order = true;
            } else if (key == "shape") {
                h.shape = tuple(), shape = true;
            } else {
                fail("unknown key '" + key + "' in the header");
            }
            if (!accept(',') && peek() != '}') fail("malformed header");
        }
        if (peek() != '\0') fail("malformed header");
        if (!descr || !order || !shape) fail("the header lacks descr, fortran_order or shape");
        return h;
    }

  private:
    [[noreturn]] void fail(const std::string& what) const { throw error(*label_ + ": " + what); }
    char peek() {
        while (at_ < text_.size() && std::strchr(" \t\r\n", text_[at_]) && text_[at_] != '\0') ++at_;
        return at_ < text_.size() ? text_[at_] : '\0';
    }
    bool accept(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail("malformed header");
    }
    std::string quoted() {
        const char quote = peek();
        if (quote != '\'' && quote != '"') fail("malformed header");
        const std::size_t end = text_.find(quote, at_ + 1);
        if (end == std::string_view::npos) fail("malformed header");
        std::string s(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        return s;
    }
    bool boolean() {
        peek();
        for (const std::string_view word : {"True", "False"}) {
            if (text_.substr(at_, word.size()) != word) continue;
            at_ += word.size();
            return word == "True";
        }
        fail("malformed header");
    }
    dims tuple() {
        dims shape;
        expect('(');
        while (!accept(')')) {
            peek();
            std::int64_t d = 0;
            const auto [end, status] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), d);
            if (status != std::errc()) fail("the shape in the header is not a tuple of integers");
            at_ = static_cast<std::size_t>(end - text_.data());
            accept('L');  // Python 2 wrote long integers with an L
            shape.push_back(d);
            if (shape.size() > 64) fail("more than 64 dimensions");
            if (!accept(',') && peek() != ')') fail("malformed header");
        }
        return shape;
    }

    std::string_view text_;
    std::size_t at_ = 0;
    const std::string* label_;
};

/// Copies column-major `in` to row-major `out`: walks the output in order, carrying the input's offset.
inline void transpose_fortran(const std::byte* in, std::byte* out, const dims& shape, std::size_t item, std::size_t count) {
    std::vector<std::size_t> stride(shape.size()), index(shape.size(), 0);
    std::size_t step = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) stride[i] = step, step *= static_cast<std::size_t>(shape[i]);
    std::size_t from = 0;
    for (std::size_t n = 0; n < count; ++n) {
        std::memcpy(out + n * item, in + from * item, item);
        for (std::size_t i = shape.size(); i-- > 0;) {
            from += stride[i];
            if (++index[i] < static_cast<std::size_t>(shape[i])) break;
            from -= stride[i] * index[i];
            index[i] = 0;
        }
    }
}

inline void swap_bytes(std::byte* data, std::size_t size, std::size_t width) {
    for (std::size_t i = 0; i + width <= size; i += width) std::reverse(data + i, data + i + width);
}

/// Returns the value of a code of a floating format of up to 8 bits, by its definition.
inline float value_of_code(unsigned code, floating f) {
    if (f == e8m0) return code == 0xff ? std::nanf("") : static_cast<float>(std::ldexp(1.0, static_cast<int>(code) - 127));
    const unsigned mantissa = code & ((1u << f.mantissa_bits) - 1), exponent = code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
    const bool negative = code >> (f.mantissa_bits + f.exponent_bits) & 1, ones = exponent + 1 == 1u << f.exponent_bits;
    if (f.specials == specials::fnuz && negative && mantissa == 0 && exponent == 0) return std::nanf("");
    if (f.specials == specials::fn && ones && mantissa + 1 == 1u << f.mantissa_bits) return std::nanf("");
    double v = exponent == 0 ? std::ldexp(mantissa, min_exponent(f) - f.mantissa_bits)
                             : std::ldexp((1u << f.mantissa_bits) + mantissa, static_cast<int>(exponent) - f.bias - f.mantissa_bits);
    if (f.specials == specials::ieee && ones) v = mantissa ? std::nan("") : HUGE_VAL;
    return static_cast<float>(negative ? -v : v);
}

/// Returns the same values in a type that NumPy has.
inline tensor as_numpy_type(const tensor& t) {
    const auto floats = [&](const auto& value_at) {
        tensor r(data_type::float32, t.shape());
        for (std::size_t i = 0; i < t.size(); ++i) r.as<float>()[i] = value_at(i);
        return r;
    };
    const auto decode = [&](floating f) { return floats([&](std::size_t i) { return value_of_code(t.as<std::uint8_t>()[i], f); }); };
    const auto rename = [&](data_type type) { return tensor(type, t.shape(), t.buffer()); };
    switch (t.type()) {
        case data_type::bfloat16:
            return floats([&](std::size_t i) { return std::bit_cast<float>(std::uint32_t{t.as<brain>()[i].bits} << 16); });
        case data_type::float8e4m3fn: return decode(fp8_e4m3fn);
        case data_type::float8e4m3fnuz: return decode(fp8_e4m3fnuz);
        case data_type::float8e5m2: return decode(fp8_e5m2);
        case data_type::float8e5m2fnuz: return decode(fp8_e5m2fnuz);
        case data_type::float8e8m0: return decode(e8m0);
        case data_type::float4e2m1: return decode(fp4_e2m1);
        case data_type::int4:
        case data_type::int2: return rename(data_type::int8);
        case data_type::uint4:
        case data_type::uint2: return rename(data_type::uint8);
        default: return t;
    }
}

}  // namespace detail

tensor parse_npy(std::string_view bytes, const std::string& label) {
    const auto fail = [&](const std::string& what) { throw error(label + ": " + what); };
    if (bytes.size() < 10 || bytes.substr(0, 6) != std::string_view("\x93NUMPY", 6)) fail("not a .npy file");
    const int version = bytes[6];
    if (version < 1 || version > 3) fail("unknown .npy version " + std::to_string(version));
    const std::size_t prefix = version == 1 ? 10 : 12;
    if (bytes.size() < prefix) fail("truncated header");
    std::size_t length = 0;
    for (std::size_t i = prefix; i-- > 8;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
    if (length > bytes.size() - prefix) fail("truncated header");
    const detail::npy_header h = detail::npy_header_parser(bytes.substr(prefix, length), label).parse();

    const char order = h.descr.empty() ? '\0' : h.descr[0];
    data_type type = data_type::undefined;
    for (const detail::npy_type& t : detail::npy_types)
        if (h.descr.size() > 1 && t.code == std::string_view(h.descr).substr(1)) type = t.type;
    if (type == data_type::undefined || !std::strchr("<>|=", order))
        fail("element type '" + h.descr + "' is not supported; save booleans, integers, float16/32/64 or complex64/128");

    const std::size_t item = size_of(type);
    std::size_t count = 0;
    try {
        count = element_count(h.shape);
    } catch (const error& e) {
        fail(e.what());
    }
    const std::string_view data = bytes.substr(prefix + length);
    if (data.size() / item < count || data.size() != count * item)
        fail("holds " + std::to_string(data.size()) + " bytes of data where its shape " + to_string(h.shape) + " needs " +
             std::to_string(count * item));

    tensor t(type, h.shape);
    const auto* in = reinterpret_cast<const std::byte*>(data.data());
    if (h.fortran && h.shape.size() > 1) detail::transpose_fortran(in, t.bytes(), h.shape, item, count);
    else if (count > 0) std::memcpy(t.bytes(), in, count * item);
    const bool complex = type == data_type::complex64 || type == data_type::complex128;
    if (order == '>') detail::swap_bytes(t.bytes(), t.size_bytes(), complex ? item / 2 : item);
    if (type == data_type::boolean)
        for (std::size_t i = 0; i < count; ++i) t.bytes()[i] = std::byte{t.bytes()[i] != std::byte{0}};
    return t;
}

tensor read_npy(const std::filesystem::path& file) { return parse_npy(read_file(file), file.string()); }

std::string to_npy(const tensor& value) {
    const tensor t = detail::as_numpy_type(value);
    std::string descr;
    for (const detail::npy_type& e : detail::npy_types)
        if (e.type == t.type()) descr = (size_of(e.type) == 1 ? "|" : "<") + std::string(e.code);
    if (descr.empty()) throw error(std::string("a tensor of type ") + name_of(t.type()) + " cannot be written as .npy");
    std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (";
    for (std::size_t i = 0; i < t.rank(); ++i) header += (i ? ", " : "") + std::to_string(t.dim(i));
    header += t.rank() == 1 ? ",), }" : "), }";
    header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');  // data begins at a multiple of 64
    std::string out("\x93NUMPY\x01\x00", 8);
    out.push_back(static_cast<char>(header.size()));
    out.push_back(static_cast<char>(header.size() >> 8));
    out += header;
    if (t.size() > 0) out.append(reinterpret_cast<const char*>(t.bytes()), t.size_bytes());
    return out;
}

void write_npy(const std::filesystem::path& file, const tensor& value) { write_file(file, to_npy(value)); }

std::vector<named_tensor> read_npz(const std::filesystem::path& file) {
    std::vector<named_tensor> arrays;
    for (const zip_entry& e : unzip(read_file(file), file.string())) {
        if (e.name.ends_with("/")) continue;
        const std::string name = e.name.ends_with(".npy") ? e.name.substr(0, e.name.size() - 4) : e.name;
        arrays.push_back({name, parse_npy(e.bytes, file.string() + ": array '" + name + "'")});
    }
    if (arrays.empty()) throw error(file.string() + ": no arrays in it");
    return arrays;
}

void write_npz(const std::filesystem::path& file, const std::vector<named_tensor>& arrays) {
    std::vector<zip_entry> entries;
    for (const named_tensor& a : arrays) entries.push_back({a.name + ".npy", to_npy(a.value)});
    write_file(file, zip(entries, file.string()));
}

}  // namespace qk::graph
