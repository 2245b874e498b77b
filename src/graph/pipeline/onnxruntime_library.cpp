// SPDX-License-Identifier: Apache-2.0
// Finds the library of qk's operators for onnxruntime.
#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "qk/graph/base/error.hpp"
#include "qk/graph/pipeline/onnxruntime_time.hpp"

namespace qk::graph::pipeline {

std::filesystem::path onnxruntime_library() {
    namespace fs = std::filesystem;
    static constexpr char name[] = "libqk_onnxruntime.so";
    std::error_code failed;
    if (const char* given = std::getenv("QK_ONNXRUNTIME_LIBRARY"); given != nullptr && *given != '\0')
        return fs::is_regular_file(given, failed) ? fs::absolute(given, failed) : fs::path();
    std::vector<fs::path> folders;
    Dl_info own{};  // of the Python module or the program, which has the constant
    if (dladdr(name, &own) != 0 && own.dli_fname != nullptr) folders.push_back(fs::path(own.dli_fname).parent_path());
    if (const fs::path program = fs::read_symlink("/proc/self/exe", failed); !program.empty()) {
        const fs::path beside = program.parent_path();
        folders.insert(folders.end(), {beside, beside.parent_path() / QK_LIBRARY_FOLDER});
    }
    for (const fs::path& folder : folders)
        if (const fs::path file = fs::absolute(folder / name, failed); fs::is_regular_file(file, failed)) return file;
    return {};
}

std::filesystem::path onnxruntime_library(const std::string& asked) {
    std::error_code failed;
    if (!asked.empty() && asked != beside_qk) {
        if (!std::filesystem::is_regular_file(asked, failed)) throw error("--library " + asked + " is no file");
        return std::filesystem::absolute(asked, failed);
    }
    std::filesystem::path found = onnxruntime_library();
    if (found.empty())
        throw error(
            "there is no libqk_onnxruntime.so beside this qk: it was built without the component onnxruntime, for lack of onnxruntime's "
            "headers (./dev wheel has them); QK_ONNXRUNTIME_LIBRARY names one that is elsewhere");
    return found;
}

}  // namespace qk::graph::pipeline
