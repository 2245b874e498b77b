/* SPDX-License-Identifier: Apache-2.0 */
/* A device's converter and its dot products against qk, in C. The device here cuts floats off where bf16 rounds them. */
#include <qk/qk.h>
#include <stdio.h>
#include <string.h>

static void device(const float* x, float* y, size_t n) {
    size_t i;
    for (i = 0; i < n; ++i) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        bits &= 0xffff0000u;
        memcpy(&y[i], &bits, 4);
    }
}

int main(void) {
    enum { n = 4096 };
    static float x[n], y[n];
    qk_conversion how = {0};
    qk_product unit = {0};
    qk_report* report;
    float d;
    size_t i;
    for (i = 0; i < n; ++i) x[i] = (float)(i * 2654435761u % 65536) / 1024 - 32;
    device(x, y, n);
    how.format = "bf16";
    if (qk_compare(&how, x, y, n, &report) != QK_OK) {
        puts(qk_last_error());
        return 2;
    }
    fputs(qk_report_text(report), stdout);
    qk_report_free(report);
    unit.accumulator = "nvidia.hopper.wgmma.f32.e4m3.e4m3";
    unit.k = 32;
    if (qk_dot(&unit, x, x, 1, &d) != QK_OK) return 2;
    printf("Hopper's dot product of the first 32 with themselves, plus 1: %g\n", d);
    return 0;
}
