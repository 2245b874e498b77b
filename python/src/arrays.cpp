// SPDX-License-Identifier: Apache-2.0
// fake_quantize, encode and decode on the memory of arrays. Python (qk/_arrays.py) brings every array into one of three kinds, in C order;
// here tensors of 16-bit floats are rounded piece by piece, and pieces go to threads.
#include "arrays.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>

#include "interpreter_lock.hpp"
#include "qk/dispatch.hpp"
#include "qk/formats/check.hpp"
#include "qk/formats/facts.hpp"
#include "qk/formats/parse.hpp"
#include "qk/graph/base/error.hpp"
#include "qk/kernels/choose.hpp"
#include "qk/option_names.hpp"
#include "qk/storage.hpp"

namespace qk::python {
namespace {

using compare::conversion;

template <class T>
T checked(const parsed<T>& p) {
    if (!p) throw nb::value_error(std::string(p.error.view()).c_str());
    return p.value;
}

[[noreturn]] void refuse(const std::string& sentence) { throw nb::value_error(sentence.c_str()); }

qk::format checked_format(const std::string& name) {
    const auto parsed = parse_rounded_format(name);
    std::string small = name;
    for (char& c : small)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (!parsed && small != name && parse_rounded_format(small)) refuse("unknown format '" + name + "'; did you mean " + small + "?");
    return checked(parsed);
}

spec parse_spec(const std::string& format, const std::string& semantics, const std::optional<std::string>& rounding,
                const std::optional<std::string>& scale_rule, const std::optional<std::string>& integer_mode,
                const std::optional<std::string>& overflow, std::uint64_t seed, const std::optional<int>& random_bits,
                const std::vector<std::string>& flags) {
    const std::size_t at = format.find('@');  // mxfp4@even
    spec s{checked_format(format.substr(0, at)), checked(parse_semantics(semantics)), {}, true};
    if (at != std::string::npos) {
        if (scale_rule) refuse("format " + format + " names a scale rule; leave scale_rule out");
        s.how.scale_rule = checked(parse_scale_rule(format.substr(at + 1)));
        if (!has_scale_rule(s.format, s.how.scale_rule))
            refuse("format " + format + ": only MX formats have a scale rule (NVFP4 has two: search and four_over_six); leave " +
                   format.substr(at) + " out");
    }
    if (rounding) s.how.rounding = checked(parse_rounding(*rounding));
    if (scale_rule) s.how.scale_rule = checked(parse_scale_rule(*scale_rule));
    if (integer_mode) s.how.integer_mode = checked(parse_integer_mode(*integer_mode));
    if (overflow) s.how.overflow = checked(parse_overflow(*overflow));
    s.how.seed = seed;
    if (random_bits) {
        if (*random_bits < 1 || *random_bits > 32) refuse("random_bits is " + std::to_string(*random_bits) + "; it must be 1 to 32");
        s.how.stochastic_bits = *random_bits;
    }
    for (const std::string& f : flags)
        (f == "zero_point_before" ? s.how.zero_point_before
         : f == "mxint_lowest"    ? s.how.mxint_uses_lowest
         : f == "flush_inputs"    ? s.how.flush_inputs
                                  : s.how.flush_outputs) = true;
    s.text = std::string(to_text(s.format).view());
    const auto* g = std::get_if<integer>(&s.format);
    s.is_plain = g == nullptr || !g->symmetric || g->is_signed;
    return s;
}

std::string in_words(std::span<const std::int64_t> shape) {
    std::string text;
    for (const std::int64_t d : shape) text += (text.empty() ? "" : ", ") + std::to_string(d);
    return "(" + text + (shape.size() == 1 ? ",)" : ")");
}

/// Has a conversion of n values round by the caller's words; returns what holds them.
std::unique_ptr<buffer> take_words(conversion& c, nb::handle words, std::size_t n) {
    if (words.is_none()) return nullptr;
    auto held = std::make_unique<buffer>(words, false);
    if (!is_stochastic(c.how.rounding)) refuse("random_words is for rounding stochastic, stochastic-b or stochastic-c");
    if (held->size() != n)
        refuse("random_words has " + std::to_string(held->size()) + " words, and x " + std::to_string(n) + " values; give one for each");
    c.how.random_words = held->as<const std::uint32_t>();
    return held;
}

void check_scales(const spec& s, const conversion& c) {
    const auto where = [&](const char* what, std::size_t i) {
        return c.scale.size() == 1 ? std::string(what) + ": " : std::string(what) + ", entry " + std::to_string(i) + ": ";
    };
    const auto* g = std::get_if<integer>(&s.format);
    for (std::size_t i = 0; i < c.scale.size(); ++i) {
        if (const message m = check_scale(c.scale[i]); !m.empty()) refuse(where("scale", i) + std::string(m.view()));
        int exponent = 0;
        if (g != nullptr && g->pow2 && std::frexp(c.scale[i], &exponent) != 0.5f)
            refuse(where("scale", i) + std::to_string(c.scale[i]) + " is not a power of two, and format " + s.text +
                   " has power-of-two scales; give 2^k or drop pow2");
    }
    if (c.zero_point.empty()) return;
    if (g == nullptr) refuse("zero_point is for integer formats; " + s.text + " has none");
    if (c.zero_point.size() != c.scale.size())
        refuse("zero_point has " + std::to_string(c.zero_point.size()) + " entries for the " + std::to_string(c.scale.size()) +
               " of scale");
    const std::int64_t middle = g->is_signed ? 0 : std::int64_t{1} << (g->bits - 1);
    for (std::size_t i = 0; i < c.zero_point.size(); ++i) {
        if (const message m = check_zero_point(*g, c.zero_point[i]); !m.empty()) refuse(where("zero_point", i) + std::string(m.view()));
        if (g->symmetric && c.zero_point[i] != middle)
            refuse(where("zero_point", i) + "format " + s.text + " is symmetric, its zero point is " + std::to_string(middle));
    }
}

/// Throws unless there is a scale for each index along the axis, or for each block: what Python packed may come back from a file.
void check_counts(const conversion& c) {
    const along_axis a = c.scale_blocks;
    const bool channels = c.given == conversion::granularity::channel;
    const std::size_t wanted = channels ? a.length : a.outer * ((a.length + c.scale_block - 1) / c.scale_block) * a.inner;
    if (c.scale.size() != wanted)
        refuse("scale has " + std::to_string(c.scale.size()) + " entries for " + std::to_string(wanted) +
               (channels ? " channels" : " blocks"));
}

/// A part of an array that lies in one piece of memory and is rounded by itself: [outers][length][inner] from value `first` on.
struct piece {
    std::size_t outer, outers, begin, length, first, size;
};

/// How an array is cut: along which axis, and in multiples of how many indices.
struct cutting {
    along_axis axis;
    std::size_t unit = 1;
};
cutting cutting_of(const conversion& c, std::size_t n) {
    if (is_block_format(c.format)) return {c.blocks, static_cast<std::size_t>(block_size(c.format))};
    if (c.given == conversion::granularity::channel) return {c.scale_blocks, 1};
    if (c.given == conversion::granularity::block) return {c.scale_blocks, c.scale_block};
    return {{1, n, 1}, 1};
}

/// Cuts an array into pieces of about `wanted` values.
std::vector<piece> cut(const cutting& how, std::size_t wanted) {
    const along_axis a = how.axis;
    const std::size_t slice = a.length * a.inner;
    std::vector<piece> pieces;
    if (slice == 0 || a.outer == 0) return pieces;
    if (slice <= wanted) {
        const std::size_t each = std::max<std::size_t>(wanted / slice, 1);
        for (std::size_t o = 0; o < a.outer; o += each) {
            const std::size_t n = std::min(each, a.outer - o);
            pieces.push_back({o, n, 0, a.length, o * slice, n * slice});
        }
        return pieces;
    }
    const std::size_t each = std::max<std::size_t>(wanted / a.inner / how.unit, 1) * how.unit;
    for (std::size_t o = 0; o < a.outer; ++o)
        for (std::size_t l = 0; l < a.length; l += each) {
            const std::size_t n = std::min(each, a.length - l);
            pieces.push_back({o, 1, l, n, (o * a.length + l) * a.inner, n * a.inner});
        }
    return pieces;
}

/// Returns the conversion of one piece: its own blocks and scales, and the random bits that belong to it.
conversion of_piece(const conversion& c, const piece& p) {
    conversion own;
    own.format = c.format;
    own.how = from_element(c.how, p.first);
    own.axis = c.axis;
    own.given = c.given;
    own.blocks = is_block_format(c.format) ? along_axis{p.outers, p.length, c.blocks.inner} : along_axis{1, p.size, 1};
    if (c.given == conversion::granularity::tensor) {
        own.scale = c.scale;
        own.zero_point = c.zero_point;
    }
    if (c.given != conversion::granularity::channel && c.given != conversion::granularity::block) return own;
    const along_axis a = c.scale_blocks;
    own.scale_blocks = {p.outers, p.length, a.inner};
    own.scale_block = c.scale_block;
    std::size_t from = p.begin, count = p.length;
    if (c.given == conversion::granularity::block) {
        const std::size_t all = (a.length + c.scale_block - 1) / c.scale_block, part = (p.length + c.scale_block - 1) / c.scale_block;
        from = (p.outer * all + p.begin / c.scale_block) * a.inner;
        count = p.outers * part * a.inner;
    }
    const auto take = [&](const auto& all, auto& some) {
        if (!all.empty())
            some.assign(all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(from + count));
    };
    take(c.scale, own.scale);
    take(c.zero_point, own.zero_point);
    return own;
}

/// Fixes the scale that NVFP4 takes from the whole tensor, so that pieces may be rounded by themselves.
void settle_tensor_scale(conversion& c, values_in x) {
    if (!has_floating_scales(c.format) || c.given == conversion::granularity::tensor) return;
    float most = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const float v = std::fabs(x[i]);
        if (v <= std::numeric_limits<float>::max() && v > most) most = v;
    }
    const float scale = kernels::tensor_scale_of(c.format, most, c.how);
    if (scale == 0) return;
    c.given = conversion::granularity::tensor;
    c.scale = {scale};
}

void round_piece(const conversion& whole, const piece& p, const buffer& x, const buffer& y) {
    thread_local std::vector<float> from, to;
    const conversion c = of_piece(whole, p);
    std::span<const float> in;
    if (x.kind() == number::float32) {
        in = x.as<const float>().subspan(p.first, p.size);
    } else {
        from.resize(p.size);
        if (x.kind() == number::float16)
            std::ranges::transform(x.as<const float16>().subspan(p.first, p.size), from.begin(), [](float16 v) { return widen(v); });
        else std::ranges::transform(x.as<const bfloat16>().subspan(p.first, p.size), from.begin(), [](bfloat16 v) { return widen(v); });
        in = from;
    }
    if (y.kind() == number::float32) return compare::fake_quantize(c, in, y.as<float>().subspan(p.first, p.size));
    to.resize(p.size);
    compare::fake_quantize(c, in, to);
    if (y.kind() == number::float16)
        std::ranges::transform(to, y.as<float16>().begin() + static_cast<std::ptrdiff_t>(p.first),
                               [](float v) { return narrow<float16>(v); });
    else
        std::ranges::transform(to, y.as<bfloat16>().begin() + static_cast<std::ptrdiff_t>(p.first),
                               [](float v) { return narrow<bfloat16>(v); });
}

/// Calls work(i) for each i < n on so many threads; the first exception ends all and is thrown again.
template <class Work>
void on_threads(std::size_t n, int threads, const Work& work) {
    const auto count = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), n);
    if (count <= 1) {
        for (std::size_t i = 0; i < n; ++i) work(i);
        return;
    }
    std::atomic<std::size_t> next = 0;
    std::exception_ptr failed;
    std::atomic_flag failing;
    const auto run = [&] {
        try {
            for (std::size_t i = next++; i < n; i = next++) work(i);
        } catch (...) {
            if (!failing.test_and_set()) failed = std::current_exception();
            next = n;
        }
    };
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < count; ++t) others.emplace_back(run);
    run();
    others.clear();
    if (failed) std::rethrow_exception(failed);
}

void fake_quantize(const spec& s, nb::handle x_object, nb::handle y_object, int axis, nb::handle scale, nb::handle zero_point,
                   int scale_axis, std::size_t scale_block, int threads, nb::handle random_words) {
    const buffer x(x_object, false), y(y_object, true);
    if (x.size() != y.size()) refuse("x has " + std::to_string(x.size()) + " values and out " + std::to_string(y.size()));
    conversion c = conversion_of(s, x.shape(), axis, {scale, zero_point, scale_axis, scale_block});
    const std::unique_ptr<buffer> words = take_words(c, random_words, x.size());
    const without_lock others_may_run;
    if (x.size() == 0) return;
    if (x.kind() == number::float32 && y.kind() == number::float32 && threads <= 1)
        return compare::fake_quantize(c, x.as<const float>(), y.as<float>());
    settle_tensor_scale(c, x.values());
    constexpr std::size_t in_cache = 1 << 14;  // values: what is widened is still near when it is rounded
    const std::vector<piece> pieces = cut(cutting_of(c, x.size()), in_cache);
    on_threads(pieces.size(), threads, [&](std::size_t i) { round_piece(c, pieces[i], x, y); });
}

/// The memory of an array whose type Python knows; it does not fit where it lies in another order than C's, or unaligned, or cannot be
/// written as asked.
class plain_memory {
  public:
    plain_memory(nb::handle object, bool written)
        : held_(PyObject_GetBuffer(object.ptr(), &view_, PyBUF_C_CONTIGUOUS | (written ? PyBUF_WRITABLE : 0)) == 0) {
        if (!held_) PyErr_Clear();
    }
    ~plain_memory() {
        if (held_) PyBuffer_Release(&view_);
    }
    plain_memory(const plain_memory&) = delete;
    plain_memory& operator=(const plain_memory&) = delete;

    template <class T>
    bool fits() const {
        return held_ && view_.itemsize == sizeof(T) && reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(T) == 0;
    }
    template <class T>
    std::span<T> as() const {
        return {static_cast<T*>(view_.buf), static_cast<std::size_t>(view_.len) / sizeof(T)};
    }
    std::span<const Py_ssize_t> shape() const { return {view_.shape, static_cast<std::size_t>(view_.ndim)}; }

  private:
    Py_buffer view_{};
    bool held_;
};

/// Returns an array of this shape as seen along an axis; nothing for an axis that it has not, or that is no small whole number.
std::optional<along_axis> plain_axis(std::span<const Py_ssize_t> shape, nb::handle object) {
    if (!PyLong_CheckExact(object.ptr())) return std::nullopt;
    int beyond = 0;
    const long asked = PyLong_AsLongAndOverflow(object.ptr(), &beyond), rank = static_cast<long>(shape.size());
    if (beyond != 0 || asked < -rank || asked >= rank) return std::nullopt;
    const auto axis = static_cast<std::size_t>(asked < 0 ? asked + rank : asked);
    along_axis seen{1, 1, 1};
    for (std::size_t i = 0; i < shape.size(); ++i)
        (i < axis ? seen.outer : i == axis ? seen.length : seen.inner) *= static_cast<std::size_t>(shape[i]);
    return seen;
}

/// Returns the one scale and zero point of a call; nothing where they are no plain numbers, or do not fit the format.
std::optional<affine> plain_scale(const spec& s, nb::handle scale, nb::handle zero_point) {
    affine a{.scale = has_floating_scales(s.format) ? 0.0f : 1.0f};
    if (scale.is_none() && zero_point.is_none()) return a;
    const auto* g = std::get_if<integer>(&s.format);
    if (is_block_format(s.format) || (!zero_point.is_none() && g == nullptr)) return std::nullopt;
    if (!scale.is_none()) {
        if (!PyFloat_CheckExact(scale.ptr())) return std::nullopt;
        a.scale = static_cast<float>(PyFloat_AsDouble(scale.ptr()));
        int exponent = 0;
        if (!check_scale(a.scale).empty() || (g != nullptr && g->pow2 && std::frexp(a.scale, &exponent) != 0.5f)) return std::nullopt;
    }
    if (!zero_point.is_none()) {
        int beyond = 0;
        if (!PyLong_CheckExact(zero_point.ptr())) return std::nullopt;
        a.zero_point = PyLong_AsLongLongAndOverflow(zero_point.ptr(), &beyond);
        if (beyond != 0 || !check_zero_point(*g, a.zero_point).empty() || (g->symmetric && a.zero_point != 0)) return std::nullopt;
    }
    return a;
}

template <class T>
bool round_plain(const spec& s, const plain_memory& x, const plain_memory& y, const along_axis& blocks, const affine& scale) {
    constexpr std::size_t short_work = 4096;  // values: giving the interpreter's lock away for less costs more than it brings
    if (!x.fits<const T>() || !y.fits<T>()) return false;
    const std::span<const T> from = x.as<const T>();
    const std::span<T> to = y.as<T>();
    const std::less<> before;
    if (from.data() != to.data() && before(from.data(), to.data() + to.size()) && before(to.data(), from.data() + from.size()))
        return false;
    const auto round = [&] {
        if constexpr (!std::is_same_v<T, float>)
            dispatch::fake_quantize(s.format, from, to,
                                    is_block_format(s.format) ? codec_parameters(blocks, scale) : codec_parameters(scale), s.how);
        else if (is_block_format(s.format)) dispatch::fake_quantize(s.format, from, to, blocks, scale, s.how);
        else dispatch::fake_quantize(s.format, from, to, scale, s.how);
    };
    if (from.size() > short_work) {
        const without_lock others_may_run;
        round();
    } else if (!from.empty()) {
        round();
    }
    return true;
}

/// fake_quantize for the arrays of most calls, where looking at them costs more than rounding: both of one type, in C order, with one scale
/// or none. Returns false, and has done nothing, for all that needs the long way, or its errors.
bool fake_quantize_plain(const spec& s, nb::handle x_object, nb::handle y_object, nb::handle axis, int kind, nb::handle scale,
                         nb::handle zero_point) {
    const plain_memory x(x_object, false), y(y_object, true);
    if (!s.is_plain || !std::ranges::equal(x.shape(), y.shape())) return false;
    const std::optional<along_axis> blocks = plain_axis(x.shape(), axis);
    const std::optional<affine> given = plain_scale(s, scale, zero_point);
    if (!blocks || !given) return false;
    switch (static_cast<number>(kind)) {
        case number::float32: return round_plain<float>(s, x, y, *blocks, *given);
        case number::float16: return round_plain<float16>(s, x, y, *blocks, *given);
        default: return round_plain<bfloat16>(s, x, y, *blocks, *given);
    }
}

/// Returns the planes of packed codes, each as (byte offset, codes, bits of a code); the bytes of all come first.
std::tuple<std::size_t, std::vector<std::tuple<std::size_t, std::size_t, int>>> planes(const spec& s,
                                                                                       const std::vector<std::int64_t>& shape, int axis) {
    const conversion c = conversion_of(s, shape, axis, {nb::none(), nb::none(), -1, 0});
    std::size_t n = 1;
    for (const std::int64_t d : shape) n *= static_cast<std::size_t>(d);
    const packed_layout l = layout_of(c, n);
    std::vector<std::tuple<std::size_t, std::size_t, int>> all;
    for (const plane& p : {l.elements, l.scales, l.shifts, l.tensor}) all.emplace_back(p.offset, p.count, p.bits);
    return {l.bytes(), all};
}

void encode(const spec& s, nb::handle x_object, nb::handle packed_object, int axis, nb::handle scale, nb::handle zero_point, int scale_axis,
            std::size_t scale_block, nb::handle random_words) {
    const buffer x(x_object, false), packed(packed_object, true);
    conversion c = conversion_of(s, x.shape(), axis, {scale, zero_point, scale_axis, scale_block});
    const std::unique_ptr<buffer> words = take_words(c, random_words, x.size());
    encode_status status = encode_status::done;
    {
        const without_lock others_may_run;
        if (x.size() == 0) return;
        status = dispatch::encode(c.format, x.values(), packed.as<std::byte>(), parameters_of(c), c.how);
    }
    if (status == encode_status::no_code)
        throw graph::error("format " + s.text +
                           " has no code for what this semantics gives (NaN or Inf passed through, a scale beyond E8M0, or -0); use "
                           "fake_quantize, or semantics=\"ocp\"");
    if (status == encode_status::too_small) refuse("the buffer for the codes is too small");
}

void decode(const spec& s, nb::handle packed_object, nb::handle y_object, int axis, nb::handle scale, nb::handle zero_point, int scale_axis,
            std::size_t scale_block) {
    const buffer packed(packed_object, false), y(y_object, true);
    const conversion c = conversion_of(s, y.shape(), axis, {scale, zero_point, scale_axis, scale_block});
    if (packed.size() < layout_of(c, y.size()).bytes())
        refuse(std::to_string(packed.size()) + " bytes of codes; format " + s.text + " of shape " + in_words(y.shape()) + " needs " +
               std::to_string(layout_of(c, y.size()).bytes()));
    const without_lock others_may_run;
    if (y.size() != 0) dispatch::decode(c.format, packed.as<const std::byte>(), y.places(), parameters_of(c));
}

nb::dict facts_of(const spec& s) {
    const format_facts k = facts(s.format);
    const named_format* entry = find_format(s.format);
    nb::dict d;
    d["name"] = s.text;
    d["family"] = family_name(s.format);
    d["bits_per_value"] = bits_per_value(s.format);
    d["largest"] = k.largest;
    d["lowest"] = k.lowest;
    d["smallest_normal"] = k.smallest_normal;
    d["smallest_subnormal"] = k.smallest;
    d["infinity"] = k.infinity;
    d["nan"] = k.nan;
    d["negative_zero"] = k.negative_zero;
    d["block_size"] = block_size(s.format);
    d["source"] = entry != nullptr ? std::string(entry->source) : "by its textual form";
    return d;
}

template <class Table>
std::vector<std::string> names_of(const Table& table) {
    std::vector<std::string> names;
    for (const auto& entry : table) names.emplace_back(entry.name);
    return names;
}

}  // namespace

buffer::buffer(nb::handle object, bool written) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
    const char kind = view_.format == nullptr ? 'B' : view_.format[0];
    if (std::string_view("<>!=^@").find(kind) != std::string_view::npos) {  // a sign before the type: unaligned, or the other byte order
        PyBuffer_Release(&view_);
        throw nb::type_error("an array lies unaligned in memory or in another byte order; give x.copy()");
    }
    kind_ = kind == 'f'                  ? number::float32
            : kind == 'e'                ? number::float16
            : kind == 'H'                ? number::bfloat16
            : kind == 'q' || kind == 'l' ? number::int64
                                         : number::byte;
    size_ = view_.itemsize == 0 ? 0 : static_cast<std::size_t>(view_.len) / static_cast<std::size_t>(view_.itemsize);
}

values_in buffer::values() const {
    if (kind_ == number::float16) return as<const float16>();
    if (kind_ == number::bfloat16) return as<const bfloat16>();
    return as<const float>();
}

values_out buffer::places() const {
    if (kind_ == number::float16) return as<float16>();
    if (kind_ == number::bfloat16) return as<bfloat16>();
    return as<float>();
}

conversion conversion_of(const spec& s, std::span<const std::int64_t> shape, int axis, const scales& given) {
    conversion c;
    c.format = s.format;
    c.how = s.how;
    const int rank = static_cast<int>(shape.size());
    if (rank > 0 || axis != -1) {
        if (axis < -rank || axis >= rank)
            refuse("axis " + std::to_string(axis) + " is out of range: " +
                   (rank == 0 ? std::string("the array has no axis")
                              : "the array has shape " + in_words(shape) + ", so it must be " + std::to_string(-rank) + " to " +
                                    std::to_string(rank - 1)));
        c.axis = axis < 0 ? axis + rank : axis;
    }
    c.blocks = compare::seen_along(shape, c.axis);
    const auto* g = std::get_if<integer>(&c.format);
    if (!given.zero_point.is_none()) {
        const buffer zero(given.zero_point, false);
        if (zero.kind() != number::int64) throw nb::type_error("zero_point is not int64");
        const auto values = zero.as<const std::int64_t>();
        c.zero_point.assign(values.begin(), values.end());
    }
    if (!given.scale.is_none()) {
        if (is_block_format(c.format) && (given.axis >= 0 || !has_floating_scales(c.format)))
            refuse("format " + s.text + " takes its scales from the data; leave scale and zero_point out");
        const buffer scale(given.scale, false);
        if (scale.kind() != number::float32) throw nb::type_error("scale is not float32");
        const auto values = scale.as<const float>();
        c.scale.assign(values.begin(), values.end());
    } else if (!c.zero_point.empty()) {
        if (g == nullptr) refuse("zero_point is for integer formats; " + s.text + " has none");
        c.scale = {1.0f};
    } else if (g != nullptr && g->symmetric && !g->is_signed) {
        c.scale = {1.0f};
        c.zero_point = {std::int64_t{1} << (g->bits - 1)};
    }
    if (c.scale.empty()) return c;
    using granularity = conversion::granularity;
    c.given = given.axis < 0 ? granularity::tensor : given.block == 0 ? granularity::channel : granularity::block;
    if (given.axis >= 0) {
        if (given.axis >= rank)
            refuse("scale_axis " + std::to_string(given.axis) + " is out of range: the array has " + std::to_string(rank) + " axes");
        c.scale_axis = given.axis;
        c.scale_blocks = compare::seen_along(shape, given.axis);
        c.scale_block = given.block;
        check_counts(c);
    } else if (c.scale.size() != 1) {
        refuse("scale has " + std::to_string(c.scale.size()) + " entries; without scale_axis there is one");
    }
    if (given.axis >= 0 && c.zero_point.empty() && g != nullptr && g->symmetric && !g->is_signed)
        c.zero_point.assign(c.scale.size(), std::int64_t{1} << (g->bits - 1));
    check_scales(s, c);
    return c;
}

void add_arrays(nb::module_& m) {
    nb::class_<spec>(m, "Spec")
        .def(nb::new_(&parse_spec))
        .def_ro("text", &spec::text)
        .def_prop_ro("is_block", [](const spec& s) { return is_block_format(s.format); })
        .def_prop_ro("is_integer", [](const spec& s) { return is_integer_format(s.format); })
        .def_prop_ro("is_stochastic", [](const spec& s) { return is_stochastic(s.how.rounding); })
        .def_prop_ro("facts", &facts_of);
    m.def("catalogue", [] { return names_of(catalogue); });
    m.def("semantics_names", [] { return names_of(semantics_names); });
    m.def("rounding_names", [] { return names_of(rounding_names); });
    m.def("architecture", &dispatch::architecture);
    m.def("fake_quantize", &fake_quantize, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(),
          nb::arg(), nb::arg(), nb::arg().none());
    m.def("fake_quantize_plain", &fake_quantize_plain, nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(),
          nb::arg().none());
    m.def("planes", &planes);
    m.def("encode", &encode, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
          nb::arg().none());
    m.def("decode", &decode, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg());
}

}  // namespace qk::python
