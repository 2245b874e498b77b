// SPDX-License-Identifier: Apache-2.0
// Definitions of encodings.hpp. In version 1.0.0 blocks stand channel by channel; which axes these are, only the model says.
#include "qk/graph/quantize/encodings.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "graph/plan/operand_tables.hpp"
#include "qk/graph/base/format_text.hpp"
#include "qk/graph/plan/layers.hpp"

namespace qk::graph {

namespace detail {
namespace {

// Axes of quantizers that place_encodings() has yet to find.
constexpr int not_placed = std::numeric_limits<int>::min();
constexpr int lpbq_not_placed = not_placed + 1;  ///< `scale` has those of the channels, then the integers of the blocks

void check_scales(const json_cursor& at, const std::vector<float>& scales) {
    for (const float s : scales)
        if (!(s > 0) || !std::isfinite(s)) at.fail("scales are finite and above 0");
}

/// Reads the bits of LPBQ, low-power blockwise quantization: a block's scale is that of its channel times an integer.
void read_lpbq(quantizer& q, const json_cursor& e) {
    const int bits = static_cast<int>(e.at("compressed_bw").integer(1, 16)), whole = static_cast<int>(e.at("bw").integer(1, 32));
    if (whole <= bits || whole - bits > 16)
        e.at("bw").fail("LPBQ has more bits after decompression than \"compressed_bw\", which is " + std::to_string(bits));
    if (e.has("is_sym") && !e.at("is_sym").boolean()) e.at("is_sym").fail("LPBQ encodings are symmetric");
    q.format = integer{.bits = bits, .is_signed = true, .symmetric = true};
    q.block_size = static_cast<int>(e.at("block_size").integer(1, 1 << 24));
    q.scale = e.at("scale").floats();
    check_scales(e.at("scale"), q.scale);
    const json_cursor blocks = e.at("per_block_int_scale");
    const std::vector<std::int64_t> integers = blocks.integers();
    if (q.scale.empty() || integers.empty() || integers.size() % q.scale.size() != 0)
        blocks.fail("there are " + std::to_string(integers.size()) + " integers for the blocks of " + std::to_string(q.scale.size()) +
                    " channels");
    for (const std::int64_t i : integers)
        if (i < 1 || i > std::int64_t{1} << (whole - bits))
            blocks.fail("integer " + std::to_string(i) + " is outside of 1 to " + std::to_string(1 << (whole - bits)) + ", which \"bw\" " +
                        std::to_string(whole) + " and \"compressed_bw\" " + std::to_string(bits) + " leave");
    if (const auto offset = e.find("offset"))
        for (const std::int64_t o : offset->integers())
            if (o != -(std::int64_t{1} << (whole - 1)))
                offset->fail("LPBQ offsets are " + std::to_string(-(std::int64_t{1} << (whole - 1))) + ", not " + std::to_string(o));
    for (const std::int64_t i : integers) q.scale.push_back(static_cast<float>(i));
    // Where the channels are follows from the number of integers, which stands in place of zero points until then.
    q.zero_point = {static_cast<std::int64_t>(integers.size())};
    q.axis = lpbq_not_placed;
}

quantizer read_encoding(const json_cursor& e) {
    quantizer q{.format = fp32, .axis = 0, .scale = {}, .zero_point = {}};
    const bool lpbq = e.has("enc_type") && e.at("enc_type").is_string() && e.at("enc_type").text() == "LPBQ";
    if (lpbq)
        e.only({"name", "enc_type", "dtype", "bw", "is_sym", "scale", "offset", "block_size", "compressed_bw", "per_block_int_scale"});
    else e.only({"name", "enc_type", "dtype", "bw", "is_sym", "scale", "offset", "block_size"});
    const int bits = static_cast<int>(e.at("bw").integer(1, 32));
    if (e.at("dtype").text() == "FLOAT" && !lpbq) {
        if (bits != 16 && bits != 32) e.at("bw").fail("a FLOAT encoding has 16 or 32 bits");
        if (bits == 16) q.format = fp16;
        return q;
    }
    if (e.at("dtype").text() != "INT") e.at("dtype").fail(lpbq ? "LPBQ encodings are \"INT\"" : "\"dtype\" is \"INT\" or \"FLOAT\"");
    const std::string kind = e.at("enc_type").text();
    if (lpbq) return read_lpbq(q, e), q;
    if (kind != "PER_TENSOR" && kind != "PER_CHANNEL" && kind != "PER_BLOCK")
        e.at("enc_type").fail("\"enc_type\" is PER_TENSOR, PER_CHANNEL, PER_BLOCK or LPBQ");
    const bool symmetric = e.has("is_sym") && e.at("is_sym").boolean();
    const integer f{.bits = bits, .is_signed = symmetric, .symmetric = symmetric};
    q.format = f;
    q.scale = e.at("scale").floats();
    check_scales(e.at("scale"), q.scale);
    if (kind == "PER_TENSOR" && q.scale.size() != 1) e.at("scale").fail("a PER_TENSOR encoding has one scale");
    if (kind == "PER_BLOCK") q.block_size = static_cast<int>(e.at("block_size").integer(1, 1 << 24));
    if (const auto offset = e.find("offset")) {
        const std::vector<std::int64_t> offsets = offset->integers();
        if (offsets.size() != q.scale.size())
            offset->fail("there are " + std::to_string(q.scale.size()) + " scales and " + std::to_string(offsets.size()) + " offsets");
        const std::int64_t shift = symmetric ? std::int64_t{1} << (bits - 1) : 0;
        for (const std::int64_t o : offsets) {
            const std::int64_t zero = -o - shift;
            if (zero < qmin(f) || zero > qmax(f))
                offset->fail("offset " + std::to_string(o) + " is outside " + std::to_string(bits) + " bits");
            q.zero_point.push_back(zero);
        }
    } else if (!symmetric) {
        e.fail("an asymmetric encoding needs its offset");
    }
    if (!is_shifted(q)) q.zero_point.clear();
    if (q.scale.size() > 1) q.axis = not_placed;
    return q;
}

// ---- version 2.0.0: ONNX's words, and arrays in the tensors' own order

/// Numbers in nested arrays.
struct nested_numbers {
    dims shape;
    std::vector<double> values;

    void read(const json_cursor& c, std::size_t depth = 0) {
        if (!c.is_array()) {
            if (depth != shape.size()) c.fail("the arrays have different depths");
            return values.push_back(c.number());
        }
        const auto length = static_cast<std::int64_t>(c.size());
        if (depth > 8) c.fail("the arrays are more than 8 deep");
        if (depth == shape.size()) {
            if (!values.empty()) c.fail("the arrays have different depths");
            shape.push_back(length);
        } else if (shape[depth] != length) {
            c.fail("an array of " + std::to_string(length) + " stands beside one of " + std::to_string(shape[depth]));
        }
        for (std::size_t i = 0; i < c.size(); ++i) read(c.at(i), depth + 1);
    }
    static nested_numbers of(const json_cursor& c) {
        nested_numbers n;
        n.read(c);
        return n;
    }
};

std::size_t own_axis(const json_cursor& e, std::size_t rank) {
    const auto r = static_cast<std::int64_t>(rank);
    const std::int64_t axis = e.integer(-r, r - 1);
    return static_cast<std::size_t>(axis < 0 ? axis + r : axis);
}

/// Reads scales of LPBQ: integers by blocks, and floats by channels, which have no `block_axis` or are 1 long there.
std::vector<float> lpbq_scales(const json_cursor& integers_at, const json_cursor& floats_at, std::size_t block_axis,
                               std::optional<std::size_t> channel_axis) {
    const nested_numbers integers = nested_numbers::of(integers_at), floats = nested_numbers::of(floats_at);
    const std::size_t rank = integers.shape.size();
    dims channels(rank, 1);
    for (std::size_t a = 0; a < rank; ++a)
        if (channel_axis ? a == *channel_axis : a != block_axis) channels[a] = integers.shape[a];
    std::size_t count = 1;
    for (const std::int64_t d : channels) count *= static_cast<std::size_t>(d);
    if (floats.values.size() != count)
        floats_at.fail("there are " + std::to_string(floats.values.size()) + " scales for " + std::to_string(count) + " channels");
    std::vector<float> scales;
    for (std::size_t i = 0; i < integers.values.size(); ++i) {
        std::size_t rest = i, at = 0, step = 1;
        for (std::size_t a = rank; a-- > 0;) {
            const auto length = static_cast<std::size_t>(integers.shape[a]);
            if (channels[a] > 1) at += rest % length * step, step *= length;
            rest /= length;
        }
        if (!(integers.values[i] >= 1) || integers.values[i] != std::floor(integers.values[i]) || integers.values[i] > 65536)
            integers_at.fail("scales of blocks are integers from 1 on");
        scales.push_back(static_cast<float>(integers.values[i]) * static_cast<float>(floats.values[at]));
    }
    return scales;
}

qk::format format_of_200(const json_cursor& at) {
    const std::string name = at.text();
    constexpr std::pair<const char*, floating> floats[] = {
        {"float16", fp16}, {"bfloat16", bf16}, {"float32", fp32}, {"float8e4m3fn", fp8_e4m3fn}, {"float8e5m2", fp8_e5m2}};
    for (const auto& [text, f] : floats)
        if (name == text) return f;
    const bool is_unsigned = name.starts_with("uint");
    const std::string digits = name.substr(std::min(name.size(), is_unsigned ? std::size_t{4} : std::size_t{3}));
    const bool number = !digits.empty() && digits.size() < 3 && digits.find_first_not_of("0123456789") == std::string::npos;
    const int bits = number ? std::stoi(digits) : 0;
    if ((!is_unsigned && !name.starts_with("int")) || bits < 1 || bits > 32)
        at.fail("\"output_dtype\" is int1 to int32, uint1 to uint32, float16, bfloat16, float32, float8e4m3fn or float8e5m2, not '" + name +
                "'");
    return integer{.bits = bits, .is_signed = !is_unsigned};
}

void read_200_scales(quantizer& q, const json_cursor& e) {
    const auto block = e.find("block_size");
    const auto given = e.find("y_scale");
    if (block) q.block_size = static_cast<int>(block->integer(1, 1 << 24));
    const bool in_two = given && given->is_object();  // version 2.1.0: integers and what multiplies them, as DequantizeLinear has them
    if (in_two || e.has("per_block_int_scale")) {
        if (!block) e.fail("scales of blocks need \"block_size\"");
        if (in_two) given->only({"x", "x_scale", "x_zero_point", "input_dtype", "axis"});
        const json_cursor integers = in_two ? given->at("x") : e.at("per_block_int_scale"),
                          floats = in_two ? given->at("x_scale") : e.at("per_channel_float_scale");
        const std::size_t rank = nested_numbers::of(integers).shape.size();
        if (rank < 2) integers.fail("integers of blocks have the rank of the tensor, 2 or more");
        const std::size_t axis = own_axis(e.at("axis"), rank);
        const auto channel = in_two ? std::optional(own_axis(given->at("axis"), rank)) : std::nullopt;
        q.scale = lpbq_scales(integers, floats, axis, channel), q.axis = static_cast<int>(axis);
        if (q.scale.empty()) integers.fail("there are no integers of blocks");
        check_scales(floats, q.scale);
        return;
    }
    if (!given) e.fail("an encoding of integers needs \"y_scale\"");
    const nested_numbers scales = nested_numbers::of(*given);
    for (const double s : scales.values) q.scale.push_back(static_cast<float>(s));
    check_scales(*given, q.scale);
    if (q.scale.empty()) given->fail("there are no scales");
    if (block && scales.shape.size() < 2) given->fail("scales of blocks have the rank of the tensor, 2 or more");
    if (q.scale.size() > 1 || block) q.axis = static_cast<int>(e.at("axis").integer(-64, 63));
    if (block) q.axis = static_cast<int>(own_axis(e.at("axis"), scales.shape.size()));
}

quantizer read_encoding_200(const json_cursor& e) {
    e.only({"name", "output_dtype", "y_scale", "y_zero_point", "axis", "block_size", "per_block_int_scale", "per_channel_float_scale"});
    quantizer q{.format = format_of_200(e.at("output_dtype")), .axis = 0, .scale = {}, .zero_point = {}};
    const integer* f = std::get_if<integer>(&q.format);
    if (f == nullptr && !e.has("y_scale")) return q;
    read_200_scales(q, e);
    if (const auto zeros = e.find("y_zero_point"); zeros && !zeros->is_null()) {
        const nested_numbers z = nested_numbers::of(*zeros);
        if (z.values.size() != q.scale.size())
            zeros->fail("there are " + std::to_string(q.scale.size()) + " scales and " + std::to_string(z.values.size()) + " zero points");
        for (const double v : z.values) {
            if (v != std::floor(v) || (f != nullptr && (v < static_cast<double>(qmin(*f)) || v > static_cast<double>(qmax(*f)))))
                zeros->fail("a zero point is no code of " + to_string(q.format));
            q.zero_point.push_back(static_cast<std::int64_t>(v));
        }
    }
    if (f == nullptr && is_shifted(q)) e.at("y_zero_point").fail("floats have no zero points");
    if (!is_shifted(q)) {
        q.zero_point.clear();
        if (f != nullptr && f->is_signed) q.format = integer{.bits = f->bits, .is_signed = true, .symmetric = true};
    }
    return q;
}

// ---- where scales stand

/// The scales of a constant by channels and blocks.
struct block_places {
    along_axis blocks;  ///< the grid of a plan
    std::size_t axis, channel, count, channels;
    bool across;  ///< version 1.0.0 has these blocks channel by channel, and the tensor block by block

    /// Returns the place in channel-and-block order of a place in the plan's grid.
    std::size_t of(std::size_t grid, const dims& shape, bool by_channel) const {
        std::size_t rest = grid, block = 0, place = 0;
        for (std::size_t a = shape.size(); a-- > 0;) {
            const std::size_t length = a == axis ? count : static_cast<std::size_t>(shape[a]);
            if (a == axis) block = rest % length;
            if (a == channel) place = rest % length;
            rest /= length;
        }
        return by_channel || channel < axis ? place * count + block : block * channels + place;
    }
};

block_places places_of(const quantizer& q, const dims& shape, const operand_axes& axes) {
    block_places p{};
    p.axis = resolve_axis(q.axis, shape.size()), p.channel = resolve_axis(axes.channel, shape.size());
    if (p.channel == p.axis) p.channel = p.axis == 0 ? 1 : 0;
    const auto block = static_cast<std::size_t>(q.block_size);
    p.count = (static_cast<std::size_t>(shape[p.axis]) + block - 1) / block;
    p.channels = static_cast<std::size_t>(shape[p.channel]);
    p.across = shape.size() == 2 && p.axis == 0;
    p.blocks = {1, p.count, 1};
    for (std::size_t a = 0; a < shape.size(); ++a)
        if (a != p.axis) (a < p.axis ? p.blocks.outer : p.blocks.inner) *= static_cast<std::size_t>(shape[a]);
    return p;
}

/// Gives a quantizer the grid of a plan: scales of channels and blocks are those of every place within.
void spread_scales(quantizer& q, const std::string& name, const dims& shape, const operand_axes& axes, bool by_channel) {
    const block_places p = places_of(q, shape, axes);
    const std::size_t grid = p.blocks.outer * p.blocks.length * p.blocks.inner;
    const bool whole = q.scale.size() == grid && !(by_channel && p.across);
    if (whole) return;
    if (q.scale.size() != p.count * p.channels && !by_channel) return;  // check_plan() says what is wrong
    if (q.scale.size() != p.count * p.channels)
        throw error("tensor '" + name + "': " + std::to_string(q.scale.size()) + " scales do not fit " + std::to_string(p.channels) +
                    " channels with " + std::to_string(p.count) + " blocks of " + std::to_string(q.block_size) + " values (block_size)");
    std::vector<float> scales;
    std::vector<std::int64_t> zeros;
    for (std::size_t i = 0; i < grid; ++i) {
        const std::size_t from = p.of(i, shape, by_channel && p.across);
        scales.push_back(q.scale[from]);
        if (!q.zero_point.empty()) zeros.push_back(q.zero_point[from]);
    }
    q.scale = std::move(scales), q.zero_point = std::move(zeros);
}

/// Multiplies what read_lpbq() left apart.
void multiply_lpbq(quantizer& q, const std::string& name, const dims& shape, const operand_axes& axes) {
    const auto count = static_cast<std::size_t>(q.zero_point[0]);
    const std::vector<float> channels(q.scale.begin(), q.scale.end() - static_cast<std::ptrdiff_t>(count));
    std::vector<float> scales(q.scale.end() - static_cast<std::ptrdiff_t>(count), q.scale.end());
    q.zero_point.clear();
    const block_places p = places_of(q, shape, axes);
    if (p.channels != channels.size() || p.count * p.channels != count)
        throw error("tensor '" + name + "' has " + std::to_string(p.channels) + " channels with " + std::to_string(p.count) +
                    " blocks of " + std::to_string(q.block_size) + " values (block_size), and its encoding " +
                    std::to_string(channels.size()) + " scales and " + std::to_string(count) + " integers (per_block_int_scale)");
    const bool by_channel = p.across || p.channel < p.axis;
    for (std::size_t i = 0; i < count; ++i) scales[i] *= channels[by_channel ? i / p.count : i % p.channels];
    q.scale = std::move(scales);
}

/// Scales of LPBQ: integers from 1 to 2^bits that multiply a float of each channel.
struct lpbq_parts {
    std::vector<float> channels;
    std::vector<std::int64_t> integers;  ///< in channel-and-block order
};

/// Returns the parts of a grid of scales in the order that `by_channel` says; nullopt where no floats have these products.
std::optional<lpbq_parts> lpbq_of(const std::vector<float>& scales, const block_places& p, bool channels_first, int bits) {
    lpbq_parts parts{std::vector<float>(p.channels), std::vector<std::int64_t>(scales.size())};
    const std::int64_t most = std::int64_t{1} << bits;
    for (std::size_t c = 0; c < p.channels; ++c) {
        const auto at = [&](std::size_t b) { return channels_first ? c * p.count + b : b * p.channels + c; };
        float largest = 0;
        for (std::size_t b = 0; b < p.count; ++b) largest = std::max(largest, scales[at(b)]);
        bool found = false;
        for (std::int64_t whole = most; whole >= 1 && !found; --whole) {
            const float near = static_cast<float>(static_cast<double>(largest) / static_cast<double>(whole));
            for (const float unit : {near, std::nextafter(near, 0.0f), std::nextafter(near, 2 * near)}) {
                found = std::isnormal(unit);
                for (std::size_t b = 0; b < p.count && found; ++b) {
                    const double i = std::nearbyint(static_cast<double>(scales[at(b)]) / static_cast<double>(unit));
                    found = i >= 1 && i <= static_cast<double>(most) && static_cast<float>(i) * unit == scales[at(b)];
                    parts.integers[at(b)] = static_cast<std::int64_t>(i);
                }
                if (!found) continue;
                parts.channels[c] = unit;
                break;
            }
        }
        if (!found) return std::nullopt;
    }
    return parts;
}

}  // namespace
}  // namespace detail

precision_plan read_encodings(const json_cursor& c) {
    const std::string version = c.at("version").text();
    const bool newer = version == "2.0.0" || version == "2.1.0";
    if (version != "1.0.0" && !newer)
        c.at("version").fail("AIMET encodings of version " + version + " are not read; export them as version 1.0.0 or 2.0.0");
    if (newer) c.only({"version", "encodings", "quantizer_args", "excluded_layers", "producer"});
    else c.only({"version", "activation_encodings", "param_encodings", "quantizer_args", "excluded_layers", "producer"});
    precision_plan plan;
    for (const char* key : {"activation_encodings", "param_encodings", "encodings"}) {
        const auto list = c.find(key);
        if (!list) continue;
        if (!list->is_array()) list->fail("an array is expected, as version " + version + " has it");
        for (std::size_t i = 0; i < list->size(); ++i) {
            const json_cursor e = list->at(i);
            if (!plan.tensors.emplace(e.at("name").text(), newer ? detail::read_encoding_200(e) : detail::read_encoding(e)).second)
                e.fail("tensor '" + e.at("name").text() + "' stands twice");
        }
    }
    return plan;
}

void place_encodings(precision_plan& plan, const model& m) {
    const layer_view layers(m);
    for (auto& [name, q] : plan.tensors) {
        const bool lpbq = q.axis == detail::lpbq_not_placed, by_channel = lpbq || q.axis == detail::not_placed;
        if (by_channel) q.axis = 0;
        if (!m.is_constant(name)) {
            if (lpbq) throw error("tensor '" + name + "' has an LPBQ encoding, which constants alone have");
            continue;
        }
        const dims shape = m.constant_shape(name);
        operand_axes axes{.block = 1, .flatten = false, .channel = 0};
        for (const auto& u : m.uses(name)) {
            if (u.node < 0 || u.input < 0) continue;
            axes = weight_axes(layers, u.node, u.input);
            if (by_channel) q.axis = q.block_size > 0 ? axes.block : axes.channel;
            break;
        }
        if (q.block_size == 0 || is_block_format(q.format) || q.flatten || q.scale.empty() || shape.size() < 2) {
            if (lpbq) throw error("tensor '" + name + "' has an LPBQ encoding, which tensors of two axes and more have");
            continue;
        }
        if (lpbq) detail::multiply_lpbq(q, name, shape, axes);
        if (by_channel || q.scale.size() > 1) detail::spread_scales(q, name, shape, axes, by_channel);
    }
}

namespace {
using json = nlohmann::ordered_json;

/// Returns values as arrays of arrays of this shape.
template <class T>
json in_shape(const std::vector<T>& values, const dims& shape) {
    json all = json::array();
    std::size_t next = 0;
    const auto fill = [&](const auto& self, json& to, std::size_t axis) -> void {
        for (std::int64_t i = 0; i < shape[axis]; ++i) {
            if (axis + 1 == shape.size()) {
                to.push_back(values[next++]);
            } else {
                json inner = json::array();
                self(self, inner, axis + 1);
                to.push_back(std::move(inner));
            }
        }
    };
    fill(fill, all, 0);
    return all;
}

/// A constant's grid of scales as encodings have it: by channels and blocks.
class blocks_writer {
  public:
    blocks_writer(const std::string& name, const quantizer& q, const dims& shape, const operand_axes& axes)
        : name_(name), q_(q), shape_(shape), p_(detail::places_of(q, shape, axes)) {}

    void write_100(json& e) const {
        const bool by_channel = p_.across, first = p_.across || p_.channel < p_.axis;
        const std::vector<std::size_t> order = collected(by_channel);
        const integer& f = std::get<integer>(q_.format);
        if (const auto parts = parts_of(order, first)) {
            e.update({{"enc_type", "LPBQ"},
                      {"dtype", "INT"},
                      {"compressed_bw", f.bits},
                      {"bw", 2 * f.bits},
                      {"is_sym", true},
                      {"scale", parts->channels},
                      {"per_block_int_scale", parts->integers},
                      {"offset", std::vector<std::int64_t>(parts->channels.size(), -(std::int64_t{1} << (2 * f.bits - 1)))},
                      {"block_size", q_.block_size}});
            return;
        }
        const bool symmetric = f.is_signed && !is_shifted(q_);
        const std::int64_t shift = f.is_signed ? std::int64_t{1} << (f.bits - 1) : 0;
        std::vector<float> scales;
        std::vector<std::int64_t> offsets;
        for (const std::size_t i : order)
            scales.push_back(q_.scale[i]), offsets.push_back(-(q_.zero_point.empty() ? 0 : q_.zero_point[i]) - shift);
        e.update({{"enc_type", "PER_BLOCK"},
                  {"dtype", "INT"},
                  {"bw", f.bits},
                  {"is_sym", symmetric},
                  {"scale", scales},
                  {"offset", offsets},
                  {"block_size", q_.block_size}});
    }

    void write_200(json& e) const {
        const std::vector<std::size_t> order = collected(false);
        dims blocks(shape_.size(), 1), channels(shape_.size(), 1);
        blocks[p_.axis] = static_cast<std::int64_t>(p_.count);
        blocks[p_.channel] = channels[p_.channel] = static_cast<std::int64_t>(p_.channels);
        if (const auto parts = parts_of(order, p_.channel < p_.axis)) {
            e["per_channel_float_scale"] = in_shape(parts->channels, channels);
            e["per_block_int_scale"] = in_shape(parts->integers, blocks);
        } else {
            std::vector<float> scales;
            std::vector<std::int64_t> zeros;
            for (const std::size_t i : order) scales.push_back(q_.scale[i]), zeros.push_back(q_.zero_point.empty() ? 0 : q_.zero_point[i]);
            e["y_scale"] = in_shape(scales, blocks);
            if (is_shifted(q_)) e["y_zero_point"] = in_shape(zeros, blocks);
        }
        e["axis"] = p_.axis, e["block_size"] = q_.block_size;
    }

  private:
    /// Returns for each channel and block the place of its scale in the plan's grid; throws where places within have other scales.
    std::vector<std::size_t> collected(bool by_channel) const {
        constexpr std::size_t none = ~std::size_t{0};
        std::vector<std::size_t> order(p_.count * p_.channels, none);
        for (std::size_t i = 0; i < q_.scale.size(); ++i) {
            std::size_t& at = order[p_.of(i, shape_, by_channel)];
            if (at == none) at = i;
            if (q_.scale[at] != q_.scale[i] || (!q_.zero_point.empty() && q_.zero_point[at] != q_.zero_point[i]))
                throw error("tensor '" + name_ +
                            "' has several scales within one block of a channel, which encodings cannot hold; save a "
                            "plan instead");
        }
        return order;
    }
    std::optional<detail::lpbq_parts> parts_of(const std::vector<std::size_t>& order, bool channels_first) const {
        const integer& f = std::get<integer>(q_.format);
        if (!f.is_signed || f.bits > 8 || is_shifted(q_)) return std::nullopt;
        std::vector<float> scales;
        for (const std::size_t i : order) scales.push_back(q_.scale[i]);
        return detail::lpbq_of(scales, p_, channels_first, f.bits);
    }

    const std::string& name_;
    const quantizer& q_;
    const dims& shape_;
    detail::block_places p_;
};

/// Writes the scales of a tensor or of its channels.
void write_scales(json& e, const quantizer& q, const integer& f, bool newer) {
    const bool many = q.scale.size() > 1;
    if (newer) {
        e["output_dtype"] = std::string(f.is_signed ? "int" : "uint") + std::to_string(f.bits);
        e["y_scale"] = many ? json(q.scale) : json(q.scale[0]);
        if (is_shifted(q)) e["y_zero_point"] = many ? json(q.zero_point) : json(q.zero_point[0]);
        if (many) e["axis"] = q.axis;
        return;
    }
    const std::int64_t shift = f.is_signed ? std::int64_t{1} << (f.bits - 1) : 0;
    json offsets = json::array();
    for (std::size_t i = 0; i < q.scale.size(); ++i) offsets.push_back(-(q.zero_point.empty() ? 0 : q.zero_point[i]) - shift);
    e.update({{"enc_type", many ? "PER_CHANNEL" : "PER_TENSOR"},
              {"dtype", "INT"},
              {"bw", f.bits},
              {"is_sym", f.is_signed && !is_shifted(q)},
              {"scale", q.scale},
              {"offset", offsets}});
}

const char* name_in_200(const floating& f) { return f == fp16 ? "float16" : f == bf16 ? "bfloat16" : f == fp32 ? "float32" : nullptr; }

}  // namespace

nlohmann::ordered_json write_encodings(const precision_plan& plan, const model& m, const std::string& version) {
    const bool newer = version == "2.0.0";
    if (!newer && version != "1.0.0") throw error("encodings are written as version 1.0.0 or 2.0.0, not '" + version + "'");
    json j{{"version", version}};
    if (newer) j["encodings"] = json::array();
    else j["activation_encodings"] = json::array(), j["param_encodings"] = json::array(), j["excluded_layers"] = json::array();
    std::map<std::string, const quantizer*> all;
    for (const auto& [name, q] : plan.tensors) all[name] = &q;
    for (const auto& [e, q] : plan.edges) {
        const auto [place, fresh] = all.emplace(e.tensor, &q);
        if (!fresh && !(*place->second == q))
            throw error("tensor '" + e.tensor + "' has two formats, " + to_string(place->second->format) + " and " + to_string(q.format) +
                        "; encodings hold one for each tensor");
    }
    const layer_view layers(m);
    for (const auto& [name, q] : all) {
        json e{{"name", name}};
        const integer* f = std::get_if<integer>(&q->format);
        const floating* g = std::get_if<floating>(&q->format);
        if (f != nullptr && !q->dynamic && !q->scale.empty() && q->block_size == 0) {
            write_scales(e, *q, *f, newer);
        } else if (f != nullptr && !q->dynamic && !q->flatten && !q->scale.empty() && m.is_constant(name) &&
                   m.constant_shape(name).size() > 1) {
            operand_axes axes{.block = 1, .flatten = false, .channel = 0};
            for (const auto& u : m.uses(name))
                if (u.node >= 0 && u.input >= 0) {
                    axes = weight_axes(layers, u.node, u.input);
                    break;
                }
            const dims shape = m.constant_shape(name);
            const blocks_writer blocks(name, *q, shape, axes);
            if (newer) e["output_dtype"] = std::string(f->is_signed ? "int" : "uint") + std::to_string(f->bits), blocks.write_200(e);
            else blocks.write_100(e);
        } else if (g != nullptr && newer && q->scale.empty() && name_in_200(*g) != nullptr) {
            e["output_dtype"] = name_in_200(*g);
        } else if (g != nullptr && !newer && (*g == fp16 || *g == fp32)) {
            e.update({{"enc_type", "PER_TENSOR"}, {"dtype", "FLOAT"}, {"bw", bits(*g)}});
        } else {
            throw error("tensor '" + name + "' is " + to_string(q->format) + (q->dynamic ? " (dynamic)" : "") +
                        ", which AIMET's encodings " + version + " cannot hold; save a plan instead");
        }
        j[newer ? "encodings" : m.is_constant(name) ? "param_encodings" : "activation_encodings"].push_back(std::move(e));
    }
    return j;
}

}  // namespace qk::graph
