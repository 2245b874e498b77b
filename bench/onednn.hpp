// SPDX-License-Identifier: Apache-2.0
// oneDNN's matrix products on one thread, from its library, where one is installed.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

struct onednn_products {
    int (*floats)(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t, const float*, std::int64_t,
                  float, float*, std::int64_t) = nullptr;  ///< dnnl_sgemm; nullptr: there is no library
    int (*integers)(char, char, char, std::int64_t, std::int64_t, std::int64_t, float, const std::int8_t*, std::int64_t, std::int8_t,
                    const std::int8_t*, std::int64_t, std::int8_t, float, std::int32_t*, std::int64_t,
                    const std::int32_t*) = nullptr;  ///< dnnl_gemm_s8s8s32

    onednn_products() {
        setenv("OMP_NUM_THREADS", "1", 1);
        for (const char* name : {"libdnnl.so.3", "libdnnl.so.2"}) {
            void* const library = dlopen(name, RTLD_NOW);
            if (library == nullptr) continue;
            floats = reinterpret_cast<decltype(floats)>(dlsym(library, "dnnl_sgemm"));
            integers = reinterpret_cast<decltype(integers)>(dlsym(library, "dnnl_gemm_s8s8s32"));
            return;
        }
    }
};
