// SPDX-License-Identifier: Apache-2.0
// `qk bench`: how fast the kernels are on this machine, compared with memcpy. bench/kernels measures more.
#include <fmt/format.h>

#include <algorithm>
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

/// Returns bytes read and written per second: the median of at least five runs, which together last a tenth of a second or longer.
template <class Run>
double rate(std::size_t bytes, const Run& run) {
    using clock = std::chrono::steady_clock;
    run();
    std::vector<double> seconds;
    for (const auto end = clock::now() + std::chrono::milliseconds(100); seconds.size() < 5 || clock::now() < end;) {
        const auto start = clock::now();
        run();
        seconds.push_back(std::chrono::duration<double>(clock::now() - start).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
    return static_cast<double>(bytes) / seconds[seconds.size() / 2];
}

}  // namespace

void add_bench(command& app, verb_result&) {
    struct arguments {
        std::vector<std::string> names;
        bool json = false;
    };
    auto given = std::make_shared<arguments>();
    option_table& verb = app.add_subcommand("bench", "Speed of fake_quantize on this machine, in L2, L3 and memory, beside memcpy");
    verb.add_option("FORMAT", given->names, "names or textual forms (default: one of each family)").suggest(format_words());
    verb.add_flag("--json", given->json, "one JSON object on standard output").common();
    verb.footer("Examples:\n  qk bench\n  qk bench mxfp4 bfp:block=16,exponent=8,mantissa=5\n  QK_ARCH=avx2 qk bench --json");
    verb.callback([given] {
        std::vector<std::string> names = given->names;
        if (names.empty())
            names = {"int8", "int4", "fp16", "bf16", "fp8_e4m3fn", "fp4_e2m1", "bfp16", "mx9", "mxint8", "mxfp8_e4m3", "mxfp4", "nvfp4"};
        std::vector<format> formats;
        for (const std::string& name : names) formats.push_back(parsed_format(name));
        constexpr std::size_t sizes[] = {262144, 8388608, 268435456};  // input plus output
        std::vector<float> x(sizes[2] / 8), y(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 2654435761u % 65536u) - 32768) * 0x1p-14f;
        nlohmann::ordered_json rows = nlohmann::ordered_json::array();
        if (!given->json)
            print("{} kernels, one thread, GB/s\n{:<40}{:>10}{:>10}{:>10}\n", dispatch::architecture(), "", "256 KiB", "8 MiB", "256 MiB");
        const auto line = [&](const std::string& name, const auto& run) {
            double rates[3];
            for (int s = 0; s < 3; ++s) rates[s] = rate(sizes[s], [&] { run(sizes[s] / 8); });
            if (given->json) rows.push_back({{"name", name}, {"bytes_per_second", {rates[0], rates[1], rates[2]}}});
            else print("{:<40}{:>10.1f}{:>10.1f}{:>10.1f}\n", name, rates[0] / 1e9, rates[1] / 1e9, rates[2] / 1e9);
        };
        line("memcpy", [&](std::size_t n) { std::memcpy(y.data(), x.data(), n * sizeof(float)); });
        for (std::size_t i = 0; i < formats.size(); ++i) {
            const bool block = is_block_format(formats[i]);
            line(names[i], [&](std::size_t n) {
                const std::span<const float> from(x.data(), n);
                const std::span<float> to(y.data(), n);
                if (std::holds_alternative<nvfloat>(formats[i])) dispatch::fake_quantize(formats[i], from, to, affine{.scale = 0.001f});
                else if (is_integer_format(formats[i])) dispatch::fake_quantize(formats[i], from, to, affine{.scale = 0.05f});
                else block ? dispatch::fake_quantize(formats[i], from, to, along_axis{}) : dispatch::fake_quantize(formats[i], from, to);
            });
        }
        if (given->json) print_json({{"architecture", dispatch::architecture()}, {"working_sets", sizes}, {"rates", rows}});
    });
}

}  // namespace qk::tool
