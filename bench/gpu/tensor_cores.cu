// SPDX-License-Identifier: Apache-2.0
// D = A B + C on real tensor cores, one mma.sync a tile, for tensor_cores.py: codes in, codes out.
//
//   tensor_cores KIND M N A.bin B.bin C.bin D.bin        KIND: f16, bf16 (m16n8k16) or e4m3, e5m2 (m16n8k32); C and D float32
//
// A is [M][k], B [k][N], C and D [M][N], row by row; M a multiple of 16, N of 8. Fragments lie as the PTX ISA (9.7.14.5) has them: lane / 4
// is the row of A and the column of B, lane % 4 counts pairs (of 16 bits) or fours (of 8) along k.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace {

enum kind { f16, bf16, e4m3, e5m2 };

template <kind Kind>
__device__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], const float (&c)[4]) {
#define QK_MMA(text)                                                                                        \
    asm volatile("mma.sync.aligned." text " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"      \
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                           \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]))
    if constexpr (Kind == f16) QK_MMA("m16n8k16.row.col.f32.f16.f16.f32");
    else if constexpr (Kind == bf16) QK_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
#if __CUDA_ARCH__ >= 890
    else if constexpr (Kind == e4m3) QK_MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
    else QK_MMA("m16n8k32.row.col.f32.e5m2.e5m2.f32");
#endif
#undef QK_MMA
}

/// One warp a tile of 16 x 8; `Code` has 8 or 16 bits, so a register of 32 holds two or four along k.
template <kind Kind, class Code>
__global__ void tiles(const Code* a, const Code* b, const float* c, float* d, int n) {
    constexpr int packed = 4 / sizeof(Code), k = 8 * packed;
    const int lane = threadIdx.x, row = static_cast<int>(blockIdx.y) * 16 + lane / 4, column = static_cast<int>(blockIdx.x) * 8 + lane / 4;
    const int along = lane % 4 * packed, out = static_cast<int>(blockIdx.x) * 8 + lane % 4 * 2;
    std::uint32_t ra[4] = {0}, rb[2] = {0};
    for (int r = 0; r < 4; ++r)  // rows 0 and 8 of the first half of k, then of the second
        for (int i = 0; i < packed; ++i)
            ra[r] |= static_cast<std::uint32_t>(a[(row + r % 2 * 8) * k + along + r / 2 * (k / 2) + i]) << (8 * sizeof(Code) * i);
    for (int r = 0; r < 2; ++r)
        for (int i = 0; i < packed; ++i)
            rb[r] |= static_cast<std::uint32_t>(b[(along + r * (k / 2) + i) * n + column]) << (8 * sizeof(Code) * i);
    const int places[4] = {row * n + out, row * n + out + 1, (row + 8) * n + out, (row + 8) * n + out + 1};
    float rc[4], rd[4] = {0};
    for (int i = 0; i < 4; ++i) rc[i] = c[places[i]];
    multiply<Kind>(rd, ra, rb, rc);
    for (int i = 0; i < 4; ++i) d[places[i]] = rd[i];
}

void expect(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    std::exit(2);
}

template <class T>
T* on_device(const char* file, std::size_t count) {
    std::vector<T> host(count);
    std::ifstream in(file, std::ios::binary);
    if (!in.read(reinterpret_cast<char*>(host.data()), static_cast<std::streamsize>(count * sizeof(T)))) {
        std::fprintf(stderr, "%s has fewer than %zu bytes\n", file, count * sizeof(T));
        std::exit(2);
    }
    T* memory = nullptr;
    expect(cudaMalloc(&memory, count * sizeof(T)), "cudaMalloc");
    expect(cudaMemcpy(memory, host.data(), count * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return memory;
}

template <kind Kind, class Code>
void run(int m, int n, char** files) {
    constexpr int k = 32 / sizeof(Code);
    const auto size = static_cast<std::size_t>(m) * static_cast<std::size_t>(n);
    const Code* a = on_device<Code>(files[0], static_cast<std::size_t>(m) * k);
    const Code* b = on_device<Code>(files[1], static_cast<std::size_t>(n) * k);
    float *c = on_device<float>(files[2], size), *d = nullptr;
    expect(cudaMalloc(&d, size * sizeof(float)), "cudaMalloc");
    tiles<Kind, Code><<<dim3(static_cast<unsigned>(n / 8), static_cast<unsigned>(m / 16)), 32>>>(a, b, c, d, n);
    expect(cudaGetLastError(), "the kernel");
    std::vector<float> host(size);
    expect(cudaMemcpy(host.data(), d, size * sizeof(float), cudaMemcpyDeviceToHost), "the kernel");
    std::ofstream(files[3], std::ios::binary).write(reinterpret_cast<const char*>(host.data()), static_cast<std::streamsize>(size * sizeof(float)));
}

}  // namespace

int main(int count, char** words) {
    const int m = count == 8 ? std::atoi(words[2]) : 0, n = count == 8 ? std::atoi(words[3]) : 0;
    if (m < 16 || n < 8 || m % 16 != 0 || n % 8 != 0) {
        std::fprintf(stderr, "tensor_cores f16|bf16|e4m3|e5m2 M N A.bin B.bin C.bin D.bin: M a multiple of 16, N of 8\n");
        return 2;
    }
    const std::string kind_name = words[1];
    if (kind_name == "f16") run<f16, std::uint16_t>(m, n, words + 4);
    else if (kind_name == "bf16") run<bf16, std::uint16_t>(m, n, words + 4);
    else if (kind_name == "e4m3") run<e4m3, std::uint8_t>(m, n, words + 4);
    else if (kind_name == "e5m2") run<e5m2, std::uint8_t>(m, n, words + 4);
    else return std::fprintf(stderr, "unknown kind %s\n", words[1]), 2;
    return 0;
}
