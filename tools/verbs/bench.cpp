// SPDX-License-Identifier: Apache-2.0
// `qk bench`: how fast fake_quantize, encode and decode are on this machine, compared with memcpy; with --product, how fast packed weights
// are multiplied, compared with reading them. bench/kernels measures more.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "options/format_options.hpp"
#include "options/words.hpp"
#include "qk/dispatch.hpp"
#include "support/console.hpp"
#include "verbs.hpp"

namespace qk::tool {
namespace {

struct bench_arguments {
    std::vector<std::string> names, operations, working_sets;
    std::string axis, scales, memory = "float32";
    double seconds = 0.1;
    bool csv = false, json = false, product = false;
    std::string vectors;
};

/// What the options say, read. `length` 0: the tensor is one row.
struct bench_plan {
    std::vector<std::string> names, operations;
    std::vector<format> formats;
    std::vector<std::size_t> working_sets;  ///< bytes of input and output as float32
    std::size_t length = 0, inner = 1;
    bool is_scaled = false, by_channel = false;
    std::size_t run = 0;      ///< values that share a scale; 0: all of them, or a channel's
    std::size_t vectors = 0;  ///< of a product; 0: no product is measured
};

/// The median of bytes read and written in a second, and half the width of the middle half of the runs as a share of it.
struct bench_figure {
    double rate = 0, spread = 0;
};

/// Runs at least five times, for `seconds` or longer.
template <class Run>
bench_figure bench_measure(std::size_t bytes, double seconds, const Run& run) {
    using clock = std::chrono::steady_clock;
    run();
    std::vector<double> taken;
    for (const auto begin = clock::now(); taken.size() < 5 || std::chrono::duration<double>(clock::now() - begin).count() < seconds;) {
        const auto start = clock::now();
        run();
        taken.push_back(std::chrono::duration<double>(clock::now() - start).count());
    }
    std::sort(taken.begin(), taken.end());
    const double median = taken[taken.size() / 2], half = (taken[taken.size() * 3 / 4] - taken[taken.size() / 4]) / 2;
    return {static_cast<double>(bytes) / median, half / median};
}

/// Memory that begins `offset` bytes behind a page's begin. Where input and output lie alike on their pages, loads wait for stores that
/// only look like theirs, and a copy takes up to twenty times as long.
template <class T>
class bench_buffer {
  public:
    bench_buffer(std::size_t size, std::size_t offset) : memory_(size == 0 ? 0 : size + 8192 / sizeof(T)), size_(size), offset_(offset) {}
    std::span<T> first(std::size_t n) {
        const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % 4096;
        return std::span(memory_).subspan(((4096 - past) % 4096 + offset_) / sizeof(T), n);
    }
    bool empty() const { return size_ == 0; }

  private:
    std::vector<T> memory_;
    std::size_t size_, offset_;
};

/// The memory of all cases: numbers from -2 to 2, as floats and, if asked for, as floats of 16 bits.
class bench_memory {
  public:
    bench_memory(std::size_t size, const std::string& kind)
        : x_(size, 0),
          y_(size, 2048),
          halves_(kind == "float16" ? size : 0, 0),
          halves_out_(kind == "float16" ? size : 0, 2048),
          brains_(kind == "bfloat16" ? size : 0, 0),
          brains_out_(kind == "bfloat16" ? size : 0, 2048) {
        const std::span<float> x = x_.first(size);
        for (std::size_t i = 0; i < size; ++i) x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 65536u) - 32768) * 0x1p-14f;
        if (!halves_.empty()) std::transform(x.begin(), x.end(), halves_.first(size).begin(), narrow<float16>);
        if (!brains_.empty()) std::transform(x.begin(), x.end(), brains_.first(size).begin(), narrow<bfloat16>);
    }
    std::span<const float> floats(std::size_t n) { return x_.first(n); }
    std::span<float> floats_out(std::size_t n) { return y_.first(n); }
    std::span<std::byte> packed(std::size_t bytes) {
        if (packed_size_ < bytes) packed_ = bench_buffer<std::byte>(packed_size_ = bytes, 1024);
        return packed_.first(bytes);
    }
    values_in in(std::size_t n) {
        if (!halves_.empty()) return std::span<const float16>(halves_.first(n));
        if (!brains_.empty()) return std::span<const bfloat16>(brains_.first(n));
        return floats(n);
    }
    values_out out(std::size_t n) {
        if (!halves_.empty()) return halves_out_.first(n);
        if (!brains_.empty()) return brains_out_.first(n);
        return floats_out(n);
    }

  private:
    bench_buffer<float> x_, y_;
    bench_buffer<float16> halves_, halves_out_;
    bench_buffer<bfloat16> brains_, brains_out_;
    bench_buffer<std::byte> packed_{0, 0};
    std::size_t packed_size_ = 0;
};

/// A format with its axis and scales for a tensor of about `size` values.
struct bench_case {
    format f;
    along_axis axis;
    std::vector<float> scale;  ///< empty: `one`, or none
    std::size_t run = 0;
    bool has_one = false;
    affine one;

    bench_case(const format& of, const bench_plan& plan, std::size_t size) : f(of), run(plan.run) {
        axis = {1, size, 1};
        if (plan.length != 0)
            axis = {std::max<std::size_t>(1, size / (plan.length * plan.inner)), std::min(plan.length, size / plan.inner), plan.inner};
        const bool is_nvfloat = has_floating_scales(f);
        has_one = is_nvfloat || is_integer_format(f) || (plan.is_scaled && !is_block_format(f));
        one = {.scale = is_nvfloat ? 0.001f : 0.05f};
        if (!has_one || is_nvfloat) return;
        if (run != 0) scale.resize(axis.outer * ((axis.length + run - 1) / run) * axis.inner);
        else if (plan.by_channel) scale.resize(axis.length);
        for (std::size_t i = 0; i < scale.size(); ++i) scale[i] = 0.05f * static_cast<float>(16 + i % 7) / 16;
    }
    std::size_t values() const { return axis.outer * axis.length * axis.inner; }
    std::size_t packed_bytes() const { return qk::packed_bytes(f, axis); }
    codec_parameters parameters() const {
        if (!scale.empty() && run != 0) return per_block{.scale = scale, .zero_point = {}, .axis = axis, .block_size = run};
        if (!scale.empty()) return per_channel{.scale = scale, .zero_point = {}, .axis = axis};
        if (!has_one) return axis;
        return is_block_format(f) ? codec_parameters(axis, one) : codec_parameters(one);
    }
    void fake_quantize(std::span<const float> x, std::span<float> y) const {
        if (!scale.empty() && run != 0) dispatch::fake_quantize(f, x, y, per_block{scale, {}, axis, run});
        else if (!scale.empty()) dispatch::fake_quantize(f, x, y, per_channel{scale, {}, axis});
        else if (is_block_format(f)) has_one ? dispatch::fake_quantize(f, x, y, axis, one) : dispatch::fake_quantize(f, x, y, axis);
        else has_one ? dispatch::fake_quantize(f, x, y, one) : dispatch::fake_quantize(f, x, y);
    }
};

void bench_encode(const bench_case& c, const std::string& name, bench_memory& memory, const codec_parameters& p) {
    if (dispatch::encode(c.f, memory.in(c.values()), memory.packed(c.packed_bytes()), p) != encode_status::done)
        throw graph::error(fmt::format("FORMAT '{}' has no codes for all that it gives; --operation fake_quantize measures it", name));
}

bench_figure bench_run(const bench_case& c, const std::string& name, const std::string& operation, bench_memory& memory, double seconds) {
    const std::size_t n = c.values(), packed = c.packed_bytes();
    if (operation == "fake_quantize")
        return bench_measure(2 * n * sizeof(float), seconds, [&] { c.fake_quantize(memory.floats(n), memory.floats_out(n)); });
    const codec_parameters p = c.parameters();
    if (operation == "encode") return bench_measure(memory.in(n).bytes() + packed, seconds, [&] { bench_encode(c, name, memory, p); });
    bench_encode(c, name, memory, p);  // decode reads codes that encode has written: other bytes may be no codes at all
    const values_out out = memory.out(n);
    return bench_measure(packed + out.bytes(), seconds, [&] { dispatch::decode(c.f, memory.packed(packed), out, p); });
}

/// A matrix of about `bytes` packed bytes with 4096 columns, all of whose rows are one of eight.
class bench_matrix {
  public:
    static constexpr std::size_t columns = 4096, period = 8;

    bench_matrix(const format& f, const std::string& name, const bench_plan& plan, std::size_t bytes, bench_memory& memory) : f_(f) {
        const along_axis few{period, columns, 1};
        const std::size_t of_few = qk::packed_bytes(f, few),
                          rows = period * std::max<std::size_t>(1, bytes / std::max<std::size_t>(1, of_few));
        const bool is_nvfloat = has_floating_scales(f);
        const affine one{.scale = is_nvfloat ? 0.001f : 0.05f};
        codec_parameters p = is_block_format(f) ? codec_parameters(few, one) : codec_parameters(one);
        std::vector<std::byte> packed(of_few);
        if (dispatch::encode(f, memory.floats(period * columns), packed, p) != encode_status::done)
            throw graph::error(fmt::format("FORMAT '{}' has no codes for all that it gives, so that there is nothing to multiply", name));
        const packed_layout l = qk::layout_of(f, along_axis{rows, columns, 1});
        const const_planes from = planes_of(qk::layout_of(f, few), std::span<const std::byte>(packed));
        const planes to = planes_of(l, memory.packed(l.bytes()));
        for (std::size_t r = 0; r < rows; r += period) {  // eight rows are whole bytes in every plane
            const auto copy = [&](std::span<const std::byte> a, std::span<std::byte> b) {
                const std::size_t size = b.size() / (rows / period);
                if (size != 0) std::memcpy(b.data() + r / period * size, a.data(), size);
            };
            copy(from.elements, to.elements), copy(from.scales, to.scales), copy(from.shifts, to.shifts);
        }
        if (!to.tensor.empty()) std::memcpy(to.tensor.data(), from.tensor.data(), to.tensor.size());
        size_ = l.bytes();
        if (plan.is_scaled && !is_block_format(f) && (plan.run != 0 || plan.by_channel)) {
            scale_.assign(plan.by_channel ? rows : rows * ((columns + plan.run - 1) / plan.run), 0.05f);
            if (plan.by_channel) p = per_channel{.scale = scale_, .zero_point = {}, .axis = {1, rows, columns}};
            else p = per_block{.scale = scale_, .zero_point = {}, .axis = {rows, columns, 1}, .block_size = plan.run};
            size_ += scale_.size() * sizeof(float);
        } else if (is_block_format(f)) {
            p = is_nvfloat ? codec_parameters(one) : codec_parameters();
        }
        w_ = {rows, columns, {to.elements, to.scales, to.shifts, to.tensor}, p};
        x_.resize(plan.vectors * columns), y_.resize(plan.vectors * rows);
        for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(static_cast<int>(i % 251) - 125) / 128;
    }
    /// Bytes of weights, their scales among them.
    std::size_t bytes() const { return size_; }
    void multiply() { dispatch::product(f_, w_, {x_, x_.size() / columns}, {y_}); }

  private:
    format f_;
    packed_weights w_;
    std::vector<float> scale_, x_, y_;
    std::size_t size_ = 0;
};

/// Returns how fast bytes are read, which no product of a matrix outside of the caches exceeds.
bench_figure bench_read_speed(std::span<const std::byte> bytes, double seconds) {
    return bench_measure(bytes.size(), seconds, [&] {
        std::uint64_t sum[32] = {};
        for (std::size_t i = 0; i + sizeof sum <= bytes.size(); i += sizeof sum) {
            std::uint64_t piece[32];
            std::memcpy(piece, bytes.data() + i, sizeof piece);
            for (std::size_t k = 0; k < 32; ++k) sum[k] ^= piece[k];
        }
        volatile std::uint64_t kept = 0;
        for (const std::uint64_t s : sum) kept = kept ^ s;
    });
}

/// Reads a number that is a part of, or all of, what an option was given.
std::size_t bench_number(const std::string& text, const std::string& option, const std::string& given, const std::string& wanted) {
    std::size_t n = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (problem != std::errc() || end != text.data() + text.size() || n == 0 || n > (std::size_t{1} << 40))
        throw graph::error(fmt::format("{} '{}': give {}", option, given, wanted));
    return n;
}

bench_plan bench_read(const bench_arguments& given) {
    if (given.csv && given.json) throw graph::error("--csv and --json both print on standard output: give one of them");
    if (given.product && (!given.operations.empty() || !given.axis.empty() || given.memory != "float32"))
        throw graph::error("--product measures products of float32 vectors with 4096 columns: leave --operation, --axis and --memory out");
    if (!given.product && !given.vectors.empty()) throw graph::error("--vectors is for --product");
    bench_plan plan{.names = given.names, .operations = given.operations, .formats = {}, .working_sets = {}};
    if (plan.names.empty())
        plan.names = {"int8", "int4", "fp16", "bf16", "fp8_e4m3fn", "fp4_e2m1", "bfp16", "mx9", "mxint8", "mxfp8_e4m3", "mxfp4", "nvfp4"};
    for (const std::string& name : plan.names) plan.formats.push_back(parsed_format(name));
    const bool is_narrow = given.memory != "float32";
    if (plan.operations.empty()) plan.operations = {"encode", "decode"};
    else if (is_narrow && std::find(plan.operations.begin(), plan.operations.end(), "fake_quantize") != plan.operations.end())
        throw graph::error(
            fmt::format("--memory {}: fake_quantize works on float32; --operation encode,decode measures 16-bit memory", given.memory));
    if (given.operations.empty() && !is_narrow) plan.operations.insert(plan.operations.begin(), "fake_quantize");
    for (const std::string& bytes : given.working_sets)
        plan.working_sets.push_back(std::max<std::size_t>(8, bench_number(bytes, "--bytes", bytes, "a number of bytes, as 262144")));
    if (plan.working_sets.empty()) plan.working_sets = {262144, 8388608, 268435456};
    if (given.product)
        plan.vectors = given.vectors.empty() ? 1 : bench_number(given.vectors, "--vectors", given.vectors, "a number of vectors");
    if (!given.axis.empty()) {
        const std::size_t cross = given.axis.find('x');
        const std::string wanted = "LENGTHxINNER, as 64x49: an axis of 64 places, with 49 values behind each";
        plan.length = bench_number(given.axis.substr(0, cross), "--axis", given.axis, wanted);
        plan.inner = bench_number(cross == std::string::npos ? "" : given.axis.substr(cross + 1), "--axis", given.axis, wanted);
        for (const std::size_t bytes : plan.working_sets)
            if (plan.inner * plan.length > bytes / 8)
                throw graph::error(fmt::format("--axis {}: {} values are more than --bytes {} holds ({})", given.axis,
                                               plan.inner * plan.length, bytes, bytes / 8));
    }
    plan.is_scaled = !given.scales.empty();
    plan.by_channel = given.scales == "channel";
    if (plan.by_channel && plan.length == 0 && plan.vectors == 0)
        throw graph::error("--scales channel: say with --axis LENGTHxINNER which axis has the channels");
    if (plan.is_scaled && !plan.by_channel && given.scales != "tensor")
        plan.run = bench_number(given.scales, "--scales", given.scales, "tensor, channel, or the number of values that share a scale");
    for (std::size_t i = 0; i < plan.formats.size() && (plan.by_channel || plan.run != 0); ++i)
        if (is_block_format(plan.formats[i]))
            throw graph::error(fmt::format("--scales {}: the blocks of FORMAT '{}' have scales of their own", given.scales, plan.names[i]));
    return plan;
}

std::string bench_size(std::size_t bytes) {
    if (bytes % 1048576 == 0) return fmt::format("{} MiB", bytes / 1048576);
    return bytes % 1024 == 0 ? fmt::format("{} KiB", bytes / 1024) : fmt::format("{} B", bytes);
}

/// Prints rows as they come: a table for people, a line of CSV for each figure, or one JSON object at the end.
class bench_report {
  public:
    bench_report(const bench_arguments& given, const bench_plan& plan) : given_(given), plan_(plan) {
        if (given.csv) print("format,operation,bits_per_value,working_set,bytes_per_second,{},spread\n", share_);
        if (given.csv || given.json) return;
        for (const std::string& name : plan.names) width_ = std::max(width_, name.size() + 2);
        const std::string what = plan.vectors == 0
                                     ? "read and written (as a share of memcpy)"
                                     : fmt::format("of weights, times {} vectors of 4096 (as a share of reading)", plan.vectors);
        print("{} kernels, one thread: GB/s {} +- half of the runs\n{:<{}}{:<13}{:>6}", dispatch::architecture(), what, "", width_, "",
              "bits");
        for (const std::size_t bytes : plan.working_sets) print("{:>21}", bench_size(bytes));
        print("\n");
    }
    void row(const std::string& name, const std::string& operation, double bits, const std::vector<bench_figure>& figures) {
        if (copy_.empty()) copy_ = figures;
        nlohmann::ordered_json rates = nlohmann::ordered_json::array(), shares = rates, spreads = rates;
        if (!given_.csv && !given_.json) print("{:<{}}{:<13}{:>6}", name, width_, operation, bits == 0 ? "" : fmt::format("{:.4g}", bits));
        for (std::size_t s = 0; s < figures.size(); ++s) {
            const double share = figures[s].rate / copy_[s].rate;
            rates.push_back(figures[s].rate), shares.push_back(share), spreads.push_back(figures[s].spread);
            if (given_.csv)
                print("{},{},{:.6g},{},{:.0f},{:.4f},{:.4f}\n", name.find(',') == std::string::npos ? name : '"' + name + '"', operation,
                      bits, plan_.working_sets[s], figures[s].rate, share, figures[s].spread);
            else if (!given_.json) print("{:>8.1f} ({:.2f}) +-{:2.0f}%", figures[s].rate / 1e9, share, figures[s].spread * 100);
        }
        if (!given_.csv && !given_.json) print("\n");
        rows_.push_back({{"name", name},
                         {"operation", operation},
                         {"bits_per_value", bits},
                         {"bytes_per_second", rates},
                         {share_, shares},
                         {"spread", spreads}});
    }
    void finish() const {
        if (!given_.json) return;
        nlohmann::ordered_json object{
            {"architecture", dispatch::architecture()}, {"working_sets", plan_.working_sets}, {"memory", given_.memory}};
        object["axis"] = given_.axis.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(given_.axis);
        if (plan_.vectors != 0) object["vectors"] = plan_.vectors;
        object["scales"] = given_.scales.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(given_.scales);
        object["rates"] = rows_;
        print_json(object);
    }

  private:
    const bench_arguments& given_;
    const bench_plan& plan_;
    std::size_t width_ = 8;           ///< of names
    std::vector<bench_figure> copy_;  ///< the first row's: memcpy, or reading
    const std::string share_ = plan_.vectors == 0 ? "of_memcpy" : "of_read";
    nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

void bench_all(const bench_arguments& given) {
    const bench_plan plan = bench_read(given);
    const std::size_t most = *std::max_element(plan.working_sets.begin(), plan.working_sets.end());
    bench_memory memory(plan.vectors == 0 ? most / 8 : bench_matrix::period * bench_matrix::columns, given.memory);
    bench_report report(given, plan);
    if (plan.vectors != 0) {
        const auto each = [&](const auto& measure) {
            std::vector<bench_figure> figures;
            for (const std::size_t bytes : plan.working_sets) figures.push_back(measure(bytes));
            return figures;
        };
        std::memset(memory.packed(most).data(), 1, most);
        report.row("read", "read", 0, each([&](std::size_t bytes) { return bench_read_speed(memory.packed(bytes), given.seconds); }));
        for (std::size_t i = 0; i < plan.formats.size(); ++i)
            report.row(plan.names[i], "product", bits_per_value(plan.formats[i]), each([&](std::size_t bytes) {
                           bench_matrix m(plan.formats[i], plan.names[i], plan, bytes, memory);
                           return bench_measure(m.bytes(), given.seconds, [&] { m.multiply(); });
                       }));
        return report.finish();
    }
    const auto each_size = [&](const auto& measure) {
        std::vector<bench_figure> figures;
        for (const std::size_t bytes : plan.working_sets) figures.push_back(measure(bytes / 8));
        return figures;
    };
    report.row("memcpy", "memcpy", 0, each_size([&](std::size_t n) {
                   return bench_measure(2 * n * sizeof(float), given.seconds,
                                        [&] { std::memcpy(memory.floats_out(n).data(), memory.floats(n).data(), n * sizeof(float)); });
               }));
    for (std::size_t i = 0; i < plan.formats.size(); ++i)
        for (const std::string& operation : plan.operations)
            report.row(plan.names[i], operation, bits_per_value(plan.formats[i]), each_size([&](std::size_t n) {
                           const bench_case c(plan.formats[i], plan, n);
                           return bench_run(c, plan.names[i], operation, memory, given.seconds);
                       }));
    report.finish();
}

}  // namespace

void add_bench(command& app, verb_result&) {
    auto given = std::make_shared<bench_arguments>();
    option_table& verb =
        app.add_subcommand("bench", "Speed of fake_quantize, encode and decode on this machine, in caches and memory, beside memcpy");
    verb.add_option("FORMAT", given->names, "names or textual forms (default: one of each family)").suggest(format_words());
    verb.add_option("--operation", given->operations, "fake_quantize, encode, decode (default: all that the memory allows)")
        .one_of({"fake_quantize", "encode", "decode"})
        .delimiter(',')
        .type_name("W ...")
        .common();
    verb.add_flag("--product", given->product, "speed of y = W x with packed weights, in bytes of weights, beside reading them").common();
    verb.add_option("--vectors", given->vectors, "vectors of a product (1)").type_name("N");
    verb.add_flag("--csv", given->csv, "a line for each figure, comma-separated").common();
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.add_option("--axis", given->axis,
                    "blocks and channels along an axis of LENGTH places with INNER values behind each (default: the tensor is one row)")
        .type_name("LENGTHxINNER");
    verb.add_option(
            "--scales", given->scales,
            "tensor: floats have a scale, too (integers always have); channel: one for each place of the axis; N: one for each run of N")
        .suggest({"tensor", "channel"})
        .type_name("tensor|channel|N");
    verb.add_option("--memory", given->memory, "what encode reads and decode writes: float32 (default), float16 or bfloat16")
        .one_of({"float32", "float16", "bfloat16"})
        .type_name("TYPE");
    verb.add_option("--bytes", given->working_sets,
                    "bytes of input and output as float32, or of packed weights (default: 262144,8388608,268435456)")
        .delimiter(',')
        .type_name("N ...");
    verb.add_option("--seconds", given->seconds, "least time of each figure (0.1)").between(0, 3600);
    verb.footer(
        "Examples:\n  qk bench\n  qk bench mxfp4 bfp:block=16,exponent=8,mantissa=5\n"
        "  qk bench int8 fp8_e4m3fn --axis 64x49 --scales channel --operation encode,decode\n"
        "  qk bench mxfp4 --memory bfloat16 --csv\n  qk bench mxfp4 int8 --product\n  QK_ARCH=avx2 qk bench --json");
    verb.callback([given] { bench_all(*given); });
}

}  // namespace qk::tool
