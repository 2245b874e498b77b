/* SPDX-License-Identifier: Apache-2.0 */
/* libqk from C: every kind of call once, and every kind of failure. */
#include <math.h>
#include <qk/qk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define EXPECT(what)                                                                \
    do {                                                                            \
        if (!(what)) {                                                              \
            printf("%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, qk_last_error()); \
            ++failures;                                                             \
        }                                                                           \
    } while (0)

static qk_conversion of(const char* format) {
    qk_conversion c = {0};
    c.format = format;
    return c;
}
static int said(const char* part) { return strstr(qk_last_error(), part) != NULL; }

enum { N = 96 };
static void fill(float* x) {
    int i;
    for (i = 0; i < N; ++i) x[i] = (float)sin(i * 0.7) * (float)pow(2, i % 11 - 5);
}

static void names(void) {
    qk_text text;
    qk_device device;
    size_t n = 0;
    while (qk_format_name(n) != NULL) EXPECT(qk_check_format(qk_format_name(n++), NULL) == QK_OK);
    EXPECT(n > 30);
    for (n = 0; qk_semantics_name(n) != NULL; ++n) EXPECT(qk_check_semantics(qk_semantics_name(n)) == QK_OK);
    EXPECT(n == 8);
    for (n = 0; qk_device_name(n) != NULL; ++n) EXPECT(qk_find_device(qk_device_name(n), &device) == QK_OK);
    EXPECT(n > 150);
    EXPECT(qk_check_format("mx:element=fp8_e4m3fn,block=32", &text) == QK_OK && strcmp(text.chars, "mxfp8_e4m3") == 0);
    EXPECT(qk_check_format("mxpf4", NULL) == QK_BAD_TEXT && said("did you mean mxfp4"));
    EXPECT(qk_check_format(NULL, NULL) == QK_BAD_ARGUMENT);
    EXPECT(qk_check_semantics("quark,rounding=half-away,seed=7,flush-inputs") == QK_OK);
    EXPECT(qk_check_semantics("rounding=sideways") == QK_BAD_TEXT && said("sideways"));
    EXPECT(qk_check_semantics("ocp,colour=red") == QK_BAD_TEXT && said("colour"));
    EXPECT(qk_check_accumulator("groups=16,align=25", &text) == QK_OK && strstr(text.chars, "sum=aligned") != NULL);
    EXPECT(qk_check_accumulator("nvidia.hoper.wgmma", NULL) == QK_BAD_TEXT && said("did you mean"));
    EXPECT(qk_find_device("nvidia.hopper.wgmma.f32.e4m3.e4m3", &device) == QK_OK && device.k == 32 &&
           strcmp(device.a_format.chars, "fp8_e4m3fn") == 0);
}

/* encode and decode give what fake_quantize and the oracle give, in one buffer and plane by plane. */
static void round_trip(const char* format, const char* semantics, size_t outer, size_t length, size_t inner) {
    float x[N], y[N], z[N], w[N];
    unsigned char packed[8 * N], part[4][8 * N];
    qk_planes planes;
    qk_const_planes read;
    qk_layout layout;
    qk_conversion how = of(format);
    int i;
    fill(x);
    how.semantics = semantics;
    how.outer = outer, how.length = length, how.inner = inner;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_OK);
    EXPECT(qk_reference(&how, x, z, N) == QK_OK && memcmp(y, z, sizeof y) == 0);
    EXPECT(qk_layout_of(&how, N, &layout) == QK_OK && layout.bytes <= sizeof packed && layout.elements.count == N);
    EXPECT(qk_encode(&how, x, N, packed, layout.bytes) == QK_OK);
    EXPECT(qk_decode(&how, packed, layout.bytes, w, N) == QK_OK && memcmp(y, w, sizeof y) == 0);
    EXPECT(qk_encode(&how, x, N, packed, layout.bytes - 1) == QK_TOO_SMALL);
    planes.elements = part[0], planes.scales = part[1], planes.shifts = part[2], planes.tensor = part[3];
    read.elements = part[0], read.scales = part[1], read.shifts = part[2], read.tensor = part[3];
    EXPECT(qk_encode_planes(&how, x, N, &planes) == QK_OK);
    EXPECT(memcmp(part[0], packed + layout.elements.offset, layout.elements.bytes) == 0);
    EXPECT(memcmp(part[1], packed + layout.scales.offset, layout.scales.bytes) == 0);
    memset(w, 0, sizeof w);
    EXPECT(qk_decode_planes(&how, &read, w, N) == QK_OK && memcmp(y, w, sizeof y) == 0);
    for (i = 0; i < N; ++i) qk_put_code(part[2], layout.elements.bits, (size_t)i, qk_get_code(packed, layout.elements.bits, (size_t)i));
    EXPECT(memcmp(part[2], packed, layout.elements.bytes) == 0);
}

static void scales_and_failures(void) {
    float x[N], y[N], nan = (float)NAN, channel[4] = {0.5f, 0.25f, 1, 2};
    int64_t zero[4] = {0, 1, -2, 300};
    uint16_t half[N];
    unsigned char packed[8 * N];
    qk_conversion how = of("int8");
    qk_range range = {0};
    qk_flag_counts flags;
    double by_scale = -1;
    fill(x);
    how.outer = 2, how.length = 4, how.inner = 12;
    how.scales = channel, how.scale_count = 4;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_OK && y[13] == 0.25f * (float)nearbyint(x[13] / 0.25));
    how.zero_points = zero;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_BAD_ARGUMENT && said("zero_points[3]"));
    how.zero_points = NULL, how.scale_count = 3;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_BAD_ARGUMENT && said("4 scales"));
    how.scale_count = 1, how.scales = &nan;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_BAD_ARGUMENT && said("NaN"));
    how = of("int8");
    how.outer = 3, how.length = 5, how.inner = 7;
    EXPECT(qk_fake_quantize(&how, x, y, N) == QK_BAD_ARGUMENT && said("96"));
    how = of("mxfp4");
    EXPECT(qk_fake_quantize(&how, NULL, y, N) == QK_BAD_ARGUMENT && said("x is NULL"));
    EXPECT(qk_fake_quantize(NULL, x, y, N) == QK_BAD_ARGUMENT);
    EXPECT(qk_fake_quantize(&how, NULL, NULL, 0) == QK_OK);
    how.semantics = "quark";
    EXPECT(qk_encode(&how, x, N, packed, sizeof packed) == QK_NO_CODE);
    how = of("fp64");
    EXPECT(qk_fake_quantize(&how, x, y, N) != QK_OK);
    how = of("bf16");
    EXPECT(qk_encode(&how, x, N, packed, sizeof packed) == QK_OK && qk_decode_16(&how, QK_BFLOAT16, packed, 2 * N, half, N) == QK_OK);
    EXPECT(memcmp(half, packed, 2 * N) == 0);
    EXPECT(qk_encode_16(&how, (qk_storage)9, half, N, packed, sizeof packed) == QK_BAD_ARGUMENT);
    how = of("int8");
    how.scales = channel, how.scale_count = 1;
    EXPECT(qk_fake_quantize_backward(&how, x, x, y, N, &by_scale, NULL) == QK_OK && by_scale != -1);
    EXPECT(qk_observe(&range, x, N / 2) == QK_OK && qk_observe(&range, x + N / 2, N / 2) == QK_OK && range.count == N && range.min < 0);
    how = of("fp8_e4m3fn");
    x[0] = 1e9f, x[1] = nan;
    EXPECT(qk_count_flags(&how, x, N, &flags) == QK_OK && flags.overflow == 1 && flags.nan == 1 && flags.values == N);
}

/* Numbers of 16 bits as floats, and back: their bits are the codes of fp16 and bf16. */
static const char* format_of(int storage) { return storage == QK_FLOAT16 ? "fp16" : "bf16"; }
static void to_memory(void* memory, int storage, const float* x) {
    const qk_conversion how = of(format_of(storage));
    if (storage == 0) memcpy(memory, x, N * sizeof *x);
    else EXPECT(qk_encode(&how, x, N, memory, 2 * N) == QK_OK);
}
static void from_memory(float* x, int storage, const void* memory) {
    const qk_conversion how = of(format_of(storage));
    if (storage == 0) memcpy(x, memory, N * sizeof *x);
    else EXPECT(qk_decode(&how, memory, 2 * N, x, N) == QK_OK);
}
/* Memory of ROWS rows, PITCH numbers apart. */
enum { ROWS_APART = 8, COLUMNS_APART = N / ROWS_APART, PITCH = COLUMNS_APART + 5 };
static size_t bytes_of(int storage) { return storage == 0 ? sizeof(float) : 2; }
static void spread(void* to, int storage, const void* dense) {
    size_t r, size = bytes_of(storage);
    for (r = 0; r < ROWS_APART; ++r)
        memcpy((char*)to + r * PITCH * size, (const char*)dense + r * COLUMNS_APART * size, COLUMNS_APART * size);
}
/* Checks that the rows hold the dense numbers, and that what lies between rows is 0x55. */
static int holds(const void* memory, int storage, const void* dense) {
    unsigned char wanted[N / COLUMNS_APART * PITCH * sizeof(float)];
    memset(wanted, 0x55, sizeof wanted);
    spread(wanted, storage, dense);
    return memcmp(memory, wanted, sizeof wanted) == 0;
}

/* The functions for numbers in other memory give what those for floats give, rounded to that memory. */
static void other_memory(const char* format, int storage, size_t scale_block) {
    float x[N], wide[N], y[N], z[N], scales[N];
    unsigned char dense[4 * N], memory[4 * ROWS_APART * PITCH], out[4 * ROWS_APART * PITCH], part[4][8 * N], apart[4][8 * N];
    qk_planes planes = {part[0], part[1], part[2], part[3]}, others = {apart[0], apart[1], apart[2], apart[3]};
    qk_const_planes read = {apart[0], apart[1], apart[2], apart[3]};
    qk_values from = {0}, to = {0};
    qk_range range = {0}, other_range = {0};
    qk_conversion how = of(format);
    double by_scale[N] = {0}, other_by_scale[N] = {0};
    size_t i;
    fill(x);
    for (i = 0; i < N; ++i) scales[i] = 0.125f * (float)(i % 7 + 1);
    how.outer = 4, how.length = 24, how.inner = 1;
    if (scale_block != 0) how.scales = scales, how.scale_block = scale_block, how.scale_count = N / scale_block;
    to_memory(dense, storage, x);
    from_memory(wide, storage, dense);
    memset(memory, 0x55, sizeof memory);
    memset(out, 0x55, sizeof out);
    spread(memory, storage, dense);
    from.data = memory, to.data = out, from.storage = to.storage = storage;
    from.rows = to.rows = ROWS_APART, from.columns = to.columns = COLUMNS_APART, from.pitch = to.pitch = PITCH;

    EXPECT(qk_fake_quantize(&how, wide, y, N) == QK_OK && qk_fake_quantize_values(&how, &from, &to, N) == QK_OK);
    to_memory(dense, storage, y);
    EXPECT(holds(out, storage, dense));
    memset(part, 0, sizeof part), memset(apart, 0, sizeof apart);
    EXPECT(qk_encode_planes(&how, wide, N, &planes) == QK_OK && qk_encode_values(&how, &from, N, &others) == QK_OK);
    EXPECT(memcmp(part, apart, sizeof part) == 0);
    memset(out, 0x55, sizeof out);
    EXPECT(qk_decode_values(&how, &read, &to, N) == QK_OK && holds(out, storage, dense));
    to.pitch = 0; /* one after the other */
    EXPECT(qk_decode_values(&how, &read, &to, N) == QK_OK && memcmp(out, dense, N * bytes_of(storage)) == 0);
    EXPECT(qk_observe(&range, wide, N) == QK_OK && qk_observe_values(&other_range, &from, N) == QK_OK);
    EXPECT(range.min == other_range.min && range.max == other_range.max && other_range.count == N);
    EXPECT(qk_fake_quantize_backward(&how, wide, wide, z, N, by_scale, NULL) == QK_OK);
    EXPECT(qk_fake_quantize_backward_values(&how, &from, &from, &to, N, other_by_scale, NULL) == QK_OK);
    to_memory(dense, storage, z);
    EXPECT(memcmp(out, dense, N * bytes_of(storage)) == 0 && memcmp(by_scale, other_by_scale, sizeof by_scale) == 0);
    EXPECT(scale_block == 0 || (by_scale[0] != 0 && by_scale[N / scale_block - 1] != 0));

    from.pitch = COLUMNS_APART - 1;
    EXPECT(qk_fake_quantize_values(&how, &from, &to, N) == QK_BAD_ARGUMENT && said("x->pitch"));
    from.pitch = PITCH, from.rows = ROWS_APART - 1;
    EXPECT(qk_encode_values(&how, &from, N, &others) == QK_BAD_ARGUMENT && said("x: rows * columns"));
    from.rows = ROWS_APART, from.data = NULL;
    EXPECT(qk_observe_values(&range, &from, N) == QK_BAD_ARGUMENT && said("x->data"));
    to.storage = 9;
    EXPECT(qk_decode_values(&how, &read, &to, N) == QK_BAD_ARGUMENT && said("y->storage"));
    EXPECT(qk_decode_values(&how, &read, NULL, N) == QK_BAD_ARGUMENT && said("y is NULL"));
    EXPECT(qk_encode_values(&how, &to, N, NULL) == QK_BAD_ARGUMENT);
}

static void comparison(void) {
    static float x[4096], y[4096];
    qk_conversion how = of("mxfp8_e4m3");
    qk_report* report = NULL;
    qk_cause cause;
    int i;
    for (i = 0; i < 4096; ++i) x[i] = (float)((i * 2654435761u) % 65536) / 4096 - 8;
    how.semantics = "rounding=half-away";
    EXPECT(qk_fake_quantize(&how, x, y, 4096) == QK_OK);
    how.semantics = NULL;
    EXPECT(qk_compare(&how, x, y, 4096, &report) == QK_OK && qk_report_differences(report) > 0 && qk_report_unexplained(report) == 0);
    EXPECT(qk_report_cause(report, 0, &cause) == QK_OK && strstr(cause.sentence, "half-away") != NULL &&
           cause.explains == qk_report_differences(report));
    EXPECT(qk_report_cause(report, 99, &cause) == QK_NOTHING && qk_report_nearest(report, &cause) == QK_NOTHING);
    EXPECT(strstr(qk_report_text(report), "half-away") != NULL);
    qk_report_free(report);
    qk_report_free(NULL);
}

/* A device of which qk knows the answers alone. */
static int ask(void* user, size_t m, size_t n, size_t k, const qk_codes* codes, uint64_t* d) {
    qk_product unit = {0};
    if (user == NULL) return 3;
    unit.accumulator = (const char*)user;
    unit.a_format = unit.b_format = "fp8_e5m2";
    unit.m = m, unit.n = n, unit.k = k;
    return qk_multiply_add_codes(&unit, codes, d, NULL) == QK_OK ? 0 : 1;
}

static void products(void) {
    float a[2 * 16], b[16 * 3], d[6], one = 0, c[6] = {1, 2, 3, 4, 5, 6};
    uint64_t ca[16] = {0}, cb[16] = {0}, start = 0, result = 0;
    char text[] = "groups=8,align=24,round=toward-zero";
    qk_codes codes = {0};
    qk_dot_counts counts = {0};
    qk_product unit = {0};
    qk_search search = {0};
    qk_found found;
    int i;
    for (i = 0; i < 32; ++i) a[i] = (float)(i % 5 - 2);
    for (i = 0; i < 48; ++i) b[i] = (float)(i % 7 - 3);
    unit.accumulator = "sum=exact", unit.a_format = "mxfp8_e4m3", unit.b_format = "fp16";
    unit.m = 2, unit.n = 3, unit.k = 16;
    EXPECT(qk_multiply_add_values(&unit, a, b, c, d, &counts) == QK_OK && counts.inexact == 0);
    for (i = 0; i < 6; ++i) {
        float sum = c[i];
        int l;
        for (l = 0; l < 16; ++l) sum += a[i / 3 * 16 + l] * b[l * 3 + i % 3];
        EXPECT(sum == d[i]);
    }
    unit.n = 99;
    EXPECT(qk_dot(&unit, a, b, 1, &one) == QK_OK);
    unit.a_format = NULL;
    EXPECT(qk_dot(&unit, a, b, 1, &one) == QK_BAD_ARGUMENT && said("a_format"));
    unit.accumulator = "sum=integer", unit.a_format = unit.b_format = "int8";
    EXPECT(qk_dot(&unit, a, b, 1, &one) == QK_BAD_ARGUMENT);
    unit.m = unit.n = 1, unit.a_zero_point = 3;
    for (i = 0; i < 16; ++i) ca[i] = 5, cb[i] = 0xff;
    codes.a = ca, codes.b = cb, codes.c = &start;
    EXPECT(qk_multiply_add_codes(&unit, &codes, &result, NULL) == QK_OK && (int64_t)result == -32);
    ca[3] = 256;
    EXPECT(qk_multiply_add_codes(&unit, &codes, &result, NULL) == QK_BAD_ARGUMENT && said("a[3]"));
    search.a_format = search.b_format = "fp8_e5m2";
    search.k = 16;
    EXPECT(qk_find_accumulator(&search, ask, text, &found) == QK_OK && found.met == found.questions && found.questions <= 10000);
    EXPECT(strcmp(found.accumulator.chars, "sum=aligned,groups=8,align=24,round=toward-zero") == 0);
    EXPECT(qk_find_accumulator(&search, ask, NULL, &found) == QK_DEVICE_FAILED && said("status 3"));
    search.d_bits = 7;
    EXPECT(qk_find_accumulator(&search, ask, text, &found) == QK_BAD_ARGUMENT);
}

/* Products over packed weights, whose order of sums is checked here again: sixteen partial sums, joined eight apart, four, two, one. */
static float in_order(const float* x, const float* w, size_t n) {
    float sum[16] = {0};
    size_t k, apart;
    for (k = 0; k < n; ++k) sum[k % 16] = fmaf(x[k], w[k], sum[k % 16]);
    for (apart = 8; apart != 0; apart /= 2)
        for (k = 0; k < apart; ++k) sum[k] += sum[k + apart];
    return sum[0];
}
static void packed_products(void) {
    enum { ROWS = 12, COLUMNS = 40 };
    float x[2 * COLUMNS], values[ROWS * COLUMNS], y[2 * ROWS], context[COLUMNS], by[ROWS], scale[3] = {1, 2, 0.5f}, row_scale[ROWS];
    unsigned char part[4][ROWS * COLUMNS];
    uint16_t half[2 * COLUMNS];
    qk_weights w = {0};
    qk_planes planes;
    qk_product_options o = {0};
    qk_rows rows = {0};
    qk_expert_choice chosen[2] = {{2, 1, 0, 3}, {0, 0, 1, 1}};
    size_t i, m, k;
    for (i = 0; i < ROWS * COLUMNS; ++i) values[i] = (float)((i * 7919u) % 97) / 16 - 3;
    for (i = 0; i < 2 * COLUMNS; ++i) x[i] = (float)((i * 104729u) % 31) / 8 - 2, half[i] = 0x3f80;
    for (i = 0; i < ROWS; ++i) by[i] = (float)i / 4, row_scale[i] = 0.25f * (float)(i + 1);
    w.how = of("mxfp4"), w.rows = ROWS, w.columns = COLUMNS;
    w.how.outer = ROWS, w.how.length = COLUMNS, w.how.inner = 1;
    planes.elements = part[0], planes.scales = part[1], planes.shifts = part[2], planes.tensor = part[3];
    w.planes.elements = part[0], w.planes.scales = part[1], w.planes.shifts = part[2], w.planes.tensor = part[3];
    EXPECT(qk_encode_planes(&w.how, values, ROWS * COLUMNS, &planes) == QK_OK);
    EXPECT(qk_decode_planes(&w.how, &w.planes, values, ROWS * COLUMNS) == QK_OK);
    w.how.outer = w.how.length = w.how.inner = 0;
    EXPECT(qk_packed_product(&w, x, y, NULL) == QK_OK);
    for (i = 0; i < ROWS; ++i) EXPECT(y[i] == in_order(x, values + i * COLUMNS, COLUMNS));
    o.count = 2, o.scale = 0.5f, o.act = QK_RELU, o.first = 2, o.last = 9, o.row_scale = row_scale;
    for (i = 0; i < 2 * ROWS; ++i) y[i] = -1;
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_OK);
    for (m = 0; m < 2; ++m) {
        for (i = 0; i < ROWS; ++i) {
            const float s = in_order(x + m * COLUMNS, values + i * COLUMNS, COLUMNS) * 0.5f * row_scale[i];
            EXPECT(y[m * ROWS + i] == (i < 2 || i >= 9 ? -1 : s > 0 ? s : 0));
        }
    }
    memset(&o, 0, sizeof o);
    o.x_storage = QK_BFLOAT16;
    EXPECT(qk_packed_product(&w, half, y, &o) == QK_OK);
    for (k = 0; k < COLUMNS; ++k) context[k] = 1;
    EXPECT(y[3] == in_order(context, values + 3 * COLUMNS, COLUMNS));
    /* A cache: rows 1, 3, 5 ..., columns 8 to 31. */
    rows.rows = 5, rows.columns = 24, rows.first_row = 1, rows.row_step = 2, rows.first_column = 8;
    EXPECT(qk_dot_rows(&w, &rows, x, y, NULL) == QK_OK);
    for (i = 0; i < 5; ++i) EXPECT(y[i] == in_order(x, values + (1 + 2 * i) * COLUMNS + 8, 24));
    EXPECT(qk_weighted_rows(&w, &rows, by, context, NULL) == QK_OK);
    for (k = 0; k < 24; ++k) {
        float s = 0;
        for (i = 0; i < 5; ++i) s = fmaf(by[i], values[(1 + 2 * i) * COLUMNS + 8 + k], s);
        EXPECT(context[k] == s);
    }
    rows.rows = 7;
    EXPECT(qk_dot_rows(&w, &rows, x, y, NULL) == QK_BAD_ARGUMENT && said("behind the last row"));
    /* Three experts of four rows. */
    memset(&o, 0, sizeof o);
    o.count = 2;
    EXPECT(qk_grouped_product(&w, 4, chosen, 2, scale, x, y, &o) == QK_OK);
    for (i = 0; i < 4; ++i) {
        EXPECT(y[i] == in_order(x + COLUMNS, values + (8 + i) * COLUMNS, COLUMNS) * 0.5f * 3);
        EXPECT(y[4 + i] == in_order(x, values + i * COLUMNS, COLUMNS));
    }
    chosen[1].expert = 3;
    EXPECT(qk_grouped_product(&w, 4, chosen, 2, scale, x, y, &o) == QK_BAD_ARGUMENT && said("chosen[1].expert is 3 of 3"));
    o.x_format = "mxfp9";
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_BAD_TEXT);
    memset(&o, 0, sizeof o);
    o.integers = 1;
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_OK);
    { /* x rounded once: the same bits */
        int8_t q[2 * 64];
        float scales[2 * 2], again[2 * ROWS];
        o.count = 2;
        EXPECT(qk_packed_product(&w, x, y, &o) == QK_OK);
        EXPECT(qk_round_vectors(x, COLUMNS, q, scales, &o) == QK_OK);
        o.rounded_scales = scales;
        EXPECT(qk_packed_product(&w, q, again, &o) == QK_OK);
        EXPECT(memcmp(y, again, sizeof y) == 0);
        EXPECT(qk_round_vectors(x, COLUMNS, q, scales, &o) == QK_BAD_ARGUMENT && said("no rounded_scales"));
        o.x_step = 2;
        EXPECT(qk_packed_product(&w, q, again, &o) == QK_BAD_ARGUMENT && said("one vector after the other"));
        o.x_step = 0, o.integers = 0;
        EXPECT(qk_packed_product(&w, q, again, &o) == QK_BAD_ARGUMENT && said("for integers"));
        o.count = 0, o.integers = 1, o.rounded_scales = NULL;
    }
    EXPECT(qk_dot_rows(&w, &rows, x, y, &o) == QK_BAD_ARGUMENT); /* behind the last row */
    rows.rows = 5;
    EXPECT(qk_dot_rows(&w, &rows, x, y, &o) == QK_BAD_ARGUMENT && said("multiple of 32")); /* from column 8 on */
    o.chains = 1;
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_BAD_ARGUMENT && said("two orders"));
    o.integers = 0;
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_OK);
    {
        float chain = 0;
        for (i = 0; i < COLUMNS; ++i) chain = fmaf(x[i], values[i], chain);
        EXPECT(y[0] == chain);
    }
    o.chains = 0, o.integers = 1;
    w.how.format = "fp8_e4m3fn";
    EXPECT(qk_packed_product(&w, x, y, &o) == QK_BAD_ARGUMENT && said("whole numbers"));
    EXPECT(qk_packed_product(NULL, x, y, &o) == QK_BAD_ARGUMENT);
}

/* ggml's q8_0 as it lies in a .gguf: a float16 scale, then 32 whole numbers of eight bits. */
static void blocks_of_ggml(void) {
    enum { ROWS = 3, COLUMNS = 64, BLOCKS = ROWS * COLUMNS / 32 };
    unsigned char blocks[BLOCKS * 34];
    float x[COLUMNS], weights[ROWS * COLUMNS], values[ROWS * COLUMNS], y[ROWS];
    qk_weights w = {0};
    qk_product_options o = {0};
    qk_layout layout;
    size_t i, b;
    for (b = 0; b < BLOCKS; ++b) {
        blocks[b * 34] = 0, blocks[b * 34 + 1] = (unsigned char)(0x34 + b % 2 * 4); /* 0.25, 0.5 */
        for (i = 0; i < 32; ++i) {
            const int q = (int)((b * 32 + i) * 7919u % 255) - 127;
            blocks[b * 34 + 2 + i] = (unsigned char)q;
            weights[b * 32 + i] = (float)q * (b % 2 ? 0.5f : 0.25f);
        }
    }
    for (i = 0; i < COLUMNS; ++i) x[i] = (float)((i * 104729u) % 31) / 8 - 2;
    EXPECT(qk_check_format("ggml.q8_0", NULL) == QK_OK);
    w.how = of("ggml.q8_0"), w.rows = ROWS, w.columns = COLUMNS, w.planes.elements = blocks;
    EXPECT(qk_layout_of(&w.how, ROWS * COLUMNS, &layout) == QK_OK && layout.bytes == sizeof blocks);
    EXPECT(qk_decode(&w.how, blocks, sizeof blocks, values, ROWS * COLUMNS) == QK_OK);
    EXPECT(memcmp(values, weights, sizeof values) == 0);
    EXPECT(qk_packed_product(&w, x, y, NULL) == QK_OK);
    for (i = 0; i < ROWS; ++i) EXPECT(y[i] == in_order(x, weights + i * COLUMNS, COLUMNS));
    o.integers = 1;
    EXPECT(qk_packed_product(&w, x, values, &o) == QK_OK); /* x is rounded to 127 steps of its largest value, 1.75 or 2, in each block */
    for (i = 0; i < ROWS; ++i) {
        float most = 0;
        size_t k;
        for (k = 0; k < COLUMNS; ++k) {
            const float v = weights[(size_t)i * COLUMNS + k];
            most += (v < 0 ? -v : v) / 127;
        }
        EXPECT(values[i] - y[i] <= most && y[i] - values[i] <= most);
    }
    EXPECT(qk_encode(&w.how, weights, ROWS * COLUMNS, blocks, sizeof blocks) == QK_BAD_TEXT && said("only read"));
    EXPECT(qk_fake_quantize(&w.how, weights, values, ROWS * COLUMNS) == QK_BAD_TEXT && said("only read"));
    w.columns = 48, w.rows = 4;
    EXPECT(qk_packed_product(&w, x, y, NULL) == QK_BAD_ARGUMENT && said("whole blocks"));
}

/* A code that was asked for before a word was recorded is asked for again. */
static void expected_follows_words(void) {
    const float one_and_a_bit = 1.1f; /* between 1 and 1.25 */
    uint32_t bits;
    int up;
    memcpy(&bits, &one_and_a_bit, 4);
    for (up = 0; up < 2; ++up) {
        qk_scoreboard* board = qk_scoreboard_new("fp8_e5m2", "ocp,rounding=stochastic", 0, 1, 0);
        EXPECT(board != NULL);
        qk_scoreboard_input(board, bits);
        EXPECT(qk_scoreboard_expected(board, 0) >> 1 == 0x3c >> 1);
        qk_scoreboard_word(board, up ? 0xffffffffu : 0u);
        EXPECT(qk_scoreboard_expected(board, 0) == (up ? 0x3du : 0x3cu));
        qk_scoreboard_free(board);
    }
}

/* The right codes of blocks, and words of stochastic rounding, that reach a scoreboard and an array alike. */
static void expected_codes(void) {
    float x[64], y[64];
    uint32_t words[64], bits;
    unsigned char packed[66];
    qk_conversion how = of("mxfp8_e4m3");
    qk_conversion random = of("fp8_e5m2");
    qk_scoreboard* board = qk_scoreboard_new("mxfp8_e4m3", "", 0, 1, 0);
    qk_scoreboard* drawn = qk_scoreboard_new("fp8_e5m2", "ocp,rounding=stochastic", 0, 1, 0);
    int i, up = 0;
    EXPECT(board != NULL && drawn != NULL);
    for (i = 0; i < 64; ++i) {
        x[i] = (float)(i - 20) * 0.37f;
        memcpy(&bits, &x[i], 4);
        qk_scoreboard_input(board, bits);
        words[i] = i % 2 == 0 ? 0u : 0xffffffffu; /* never up, and up where anything is cut off */
        qk_scoreboard_input(drawn, bits);
        qk_scoreboard_word(drawn, words[i]);
    }
    EXPECT(qk_encode(&how, x, 64, packed, sizeof packed) == QK_OK);
    for (i = 0; i < 64; ++i) EXPECT(qk_scoreboard_expected(board, i) == packed[i]);
    EXPECT(qk_scoreboard_expected_scale(board, 0) == packed[64] && qk_scoreboard_expected_scale(board, 1) == packed[65]);
    EXPECT(qk_scoreboard_expected(board, 64) == 0xffffffffu && said("whole block"));
    EXPECT(qk_scoreboard_matches(board, 3, packed[3]) == 1 && qk_scoreboard_matches(board, 3, packed[3] ^ 1u) == 0);
    EXPECT(qk_scoreboard_matches(board, 3, packed[3] | 0x100u) == 0 && qk_scoreboard_matches(board, 64, 0) == -1 && said("whole block"));
    random.semantics = "ocp,rounding=stochastic";
    EXPECT(qk_fake_quantize_random(&random, words, x, y, 64) == QK_OK);
    for (i = 0; i < 64; ++i) {
        const float there = x[i] < 0 ? -x[i] : x[i], given = y[i] < 0 ? -y[i] : y[i];
        EXPECT(i % 2 == 0 ? given <= there : given >= there);
        up += given > there;
        EXPECT(((qk_scoreboard_expected(drawn, i) & 0x7f) != 0) == (y[i] != 0));
        memcpy(&bits, &y[i], 4);
        qk_scoreboard_output(drawn, bits);
    }
    EXPECT(up > 20 && qk_scoreboard_check(drawn) == 0);
    EXPECT(qk_fake_quantize_random(&how, words, x, y, 64) == QK_BAD_ARGUMENT && said("rounding=stochastic"));
    qk_scoreboard_free(board);
    qk_scoreboard_free(drawn);
}

/* Any NaN is right where NaN is, and nothing else is. */
static void any_nan_matches(void) {
    const uint32_t nan = 0x7fc00000u, one = 0x3f800000u;
    qk_scoreboard* board = qk_scoreboard_new("fp8_e5m2", "", 0, 1, 0);
    qk_dot_scoreboard* dots = qk_dot_scoreboard_new("sum=exact", "fp8_e5m2", "fp8_e5m2", 4);
    int code;
    EXPECT(board != NULL && dots != NULL);
    qk_scoreboard_input(board, nan);
    qk_scoreboard_input(board, one);
    for (code = 0; code < 256; ++code) {
        const int is_nan = (code & 0x7f) > 0x7c;
        EXPECT(qk_scoreboard_matches(board, 0, (unsigned int)code) == is_nan);
        EXPECT(qk_scoreboard_matches(board, 1, (unsigned int)code) == (code == 0x3c));
    }
    qk_dot_scoreboard_without_c(dots);
    for (code = 0; code < 600; ++code) {
        EXPECT(qk_dot_scoreboard_draw(dots) == 0 && (qk_dot_scoreboard_c(dots) & 0x7fffffffu) == 0);
        EXPECT(qk_dot_scoreboard_matches(dots, qk_dot_scoreboard_expected(dots)) == 1);
        qk_dot_scoreboard_answer(dots, qk_dot_scoreboard_expected(dots));
    }
    EXPECT(qk_dot_scoreboard_check(dots) == 0);
    qk_dot_scoreboard_ask(dots);
    qk_dot_scoreboard_put_a(dots, 0, 0x7f); /* a NaN */
    EXPECT(qk_dot_scoreboard_matches(dots, 0x7f800001u) == 1 && qk_dot_scoreboard_matches(dots, 0xffffffffu) == 1);
    EXPECT(qk_dot_scoreboard_matches(dots, 0x7f800000u) == 0 && qk_dot_scoreboard_matches(dots, 0) == 0);
    qk_scoreboard_free(board);
    qk_dot_scoreboard_free(dots);
}

static void scoreboards(void) {
    qk_conversion how = of("fp8_e4m3fn");
    qk_scoreboard* board = qk_scoreboard_new("fp8_e4m3fn", NULL, 0, 0, 0);
    qk_dot_scoreboard* dots = qk_dot_scoreboard_new("nvidia.hopper.wgmma.f32.e4m3.e4m3", "", NULL, 32);
    int i;
    EXPECT(board != NULL && dots != NULL);
    EXPECT(qk_scoreboard_new("mxpf8", NULL, 0, 0, 0) == NULL && said("mxpf8"));
    EXPECT(qk_scoreboard_check(board) == -1);
    for (i = 0; i < 3000; ++i) {
        uint32_t word = qk_scoreboard_draw(board);
        float x, y;
        memcpy(&x, &word, 4);
        EXPECT(qk_fake_quantize(&how, &x, &y, 1) == QK_OK);
        if (y != 0 && fabs(y) < 0.015625) y = 0; /* subnormal results are lost */
        memcpy(&word, &y, 4);
        qk_scoreboard_output(board, word);
    }
    EXPECT(qk_scoreboard_check(board) > 0 && strstr(qk_scoreboard_verdict(board), "subnormal") != NULL);
    qk_scoreboard_free(board);
    for (i = 0; i < 100; ++i) {
        EXPECT(qk_dot_scoreboard_draw(dots) == 0);
        qk_dot_scoreboard_answer(dots, qk_dot_scoreboard_expected(dots));
    }
    EXPECT(qk_dot_scoreboard_check(dots) == 0);
    qk_dot_scoreboard_ask(dots);
    qk_dot_scoreboard_put_a(dots, 31, 0x38);
    qk_dot_scoreboard_put_b(dots, 31, 0x38);
    EXPECT(qk_dot_scoreboard_expected(dots) == 0x3f800000);
    qk_dot_scoreboard_answer(dots, 0x40000000);
    EXPECT(qk_dot_scoreboard_check(dots) == 1 && strstr(qk_dot_scoreboard_verdict(dots), "1 of 101 answers differ") != NULL);
    qk_dot_scoreboard_free(dots);
}

static void layouts(void) {
    unsigned char codes[8 * 32], scales[8 * 2], blocks[8 * 2 * 17], back[8 * 32], back_scales[8 * 2];
    qk_matrix from = {0}, to = {0}, again = {0};
    qk_text changes;
    for (int i = 0; i < 256; ++i) codes[i] = (unsigned char)(i * 37);
    for (int i = 0; i < 16; ++i) scales[i] = (unsigned char)(110 + i);
    EXPECT(qk_matrix_bytes("gpt_oss", 8, 64, &from) == QK_OK);
    EXPECT(from.codes_bytes == sizeof codes && from.scales_bytes == sizeof scales && from.zeros_bytes == 0);
    EXPECT(qk_matrix_bytes("ggml.mxfp4", 8, 64, &to) == QK_OK);
    EXPECT(to.codes_bytes == sizeof blocks && to.scales_bytes == 0);
    from.codes = codes, from.scales = scales, to.codes = blocks;
    EXPECT(qk_repack("gpt_oss", "ggml.mxfp4", 8, 64, &from, &to, &changes) == QK_OK);
    EXPECT(strstr(changes.chars, "-0") != NULL);
    EXPECT(blocks[0] == scales[0] && blocks[17] == scales[1]);
    EXPECT((blocks[1] & 15) == (codes[0] & 15) && blocks[1] >> 4 == (codes[8] & 15)); /* value 0 and value 16 */
    EXPECT(qk_matrix_bytes("mlx.mxfp4", 8, 64, &again) == QK_OK);
    again.codes = back, again.scales = back_scales;
    EXPECT(qk_repack("ggml.mxfp4", "mlx.mxfp4", 8, 64, &to, &again, NULL) == QK_OK);
    EXPECT(memcmp(back, codes, sizeof codes) == 0 && memcmp(back_scales, scales, sizeof scales) == 0);
    EXPECT(qk_repack("gpt_oss", "ggml.q4_0", 8, 64, &from, &to, NULL) == QK_BAD_ARGUMENT);
    EXPECT(qk_matrix_bytes("ggml.q4_9", 8, 64, &to) == QK_BAD_TEXT);
    EXPECT(qk_matrix_bytes("ggml.q4_k", 8, 64, &to) == QK_BAD_ARGUMENT);
    to.codes_bytes = 3;
    EXPECT(qk_repack("gpt_oss", "ggml.mxfp4", 8, 64, &from, &to, NULL) == QK_TOO_SMALL);
}

int main(void) {
    EXPECT(strcmp(qk_version(), QK_EXPECTED_VERSION) == 0);
    names();
    round_trip("mxfp4", NULL, 0, 0, 0);
    round_trip("mxfp6_e2m3", "rounding=half-away", 2, 16, 3);
    round_trip("bfp16", NULL, 1, 24, 4);
    round_trip("mx9", NULL, 0, 0, 0);
    round_trip("nvfp4", NULL, 0, 0, 0);
    round_trip("fp8_e5m2", "ocp,rounding=stochastic,seed=5", 0, 0, 0);
    round_trip("uint8:symmetric", NULL, 0, 0, 0);
    scales_and_failures();
    {
        int storage;
        for (storage = 0; storage <= QK_BFLOAT16; ++storage) {
            other_memory("mxfp4", storage, 0);
            other_memory("nvfp4", storage, 0);
            other_memory("int8", storage, 8);
            other_memory("fp8_e4m3fn", storage, 24);
        }
    }
    comparison();
    products();
    packed_products();
    blocks_of_ggml();
    expected_codes();
    expected_follows_words();
    any_nan_matches();
    scoreboards();
    layouts();
    printf("%d failures\n", failures);
    return failures != 0;
}
