/* SPDX-License-Identifier: Apache-2.0 */
/* qk for C, and for whatever calls C: number formats, converters, dot products and the search for a device's mistakes. Link libqk.
 *
 *     qk_conversion how = {0};
 *     how.format = "mxfp8_e4m3";
 *     if (qk_fake_quantize(&how, x, y, n) != QK_OK) puts(qk_last_error());
 *
 * Contract, for every function:
 *   - Formats, semantics, accumulators and devices are texts, as the command `qk` takes them. A structure that is zero but for what is
 * named asks for the defaults. No pointer is kept beyond the call; texts that a function returns belong to the library or to the object.
 *   - What can fail returns a qk_status, or NULL or -1 where it returns something else; qk_last_error() then says why in a sentence.
 * Nothing has been written then. No C++ exception leaves the library, and no signal is raised.
 *   - Any number of threads may call; one object (qk_report, qk_scoreboard, qk_dot_scoreboard) is used by one thread at a time.
 *   - Arrays are dense, floats are IEEE 754's binary32, the processor rounds to nearest. x may be y. Nothing else overlaps.
 *   - Symbols are versioned: a program that was linked to one version runs with every later one of the same libqk.so.N.
 */
#ifndef QK_QK_H
#define QK_QK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef enum qk_status {
    QK_OK = 0,
    QK_BAD_TEXT = 1,     /* a format, semantics, accumulator or device that does not exist */
    QK_BAD_ARGUMENT = 2, /* a null pointer, an axis that does not cover the array, a scale that is none */
    QK_NO_CODE = 3,      /* this semantics gives values for which the format has no code */
    QK_TOO_SMALL = 4,    /* a buffer is too short */
    QK_NO_MEMORY = 5,
    QK_DEVICE_FAILED = 6, /* the function that asks a device answered with something other than 0 */
    QK_NOTHING = 7        /* there is no such entry */
} qk_status;

/* Why the last call of this thread that failed did so; "" before the first. */
const char* qk_last_error(void);
/* "0.1.0" */
const char* qk_version(void);

/* ---- names */

typedef struct qk_text {
    char chars[512];
} qk_text;

/* The catalogue: names from 0 on, NULL behind the last. */
const char* qk_format_name(size_t index);
const char* qk_semantics_name(size_t index);
const char* qk_device_name(size_t index);

/* The canonical text. `canonical` may be NULL where only the status matters. */
qk_status qk_check_format(const char* format, qk_text* canonical);
qk_status qk_check_semantics(const char* semantics);
qk_status qk_check_accumulator(const char* accumulator_or_device, qk_text* canonical);

typedef struct qk_device {
    const char* name;
    const char* source;
    qk_text a_format, b_format, accumulator;
    int m, n, k; /* of one instruction; 0 where it has none */
} qk_device;
/* A name without its shape is the device with the largest k. */
qk_status qk_find_device(const char* name, qk_device* device);

/* ---- converters */

typedef struct qk_conversion {
    const char* format;    /* "mxfp4", "int8:symmetric", "float:exponent=3,mantissa=4" */
    const char* semantics; /* NULL: "ocp". A name, then changes: "quark,rounding=half-away,scale-rule=ceil,integer-mode=reciprocal,
                              overflow=ieee,seed=7,flush-inputs,flush-outputs,zero-point-before,mxint-lowest" */
    /* The array seen as [outer][length][inner]; blocks, or what the scales run along, lie along `length`. All 0: one row of everything. */
    size_t outer, length, inner;
    /* Integers and floating formats; NVFP4 takes one, its tensor's (0 computes it). scale_count 0: the scale is 1. 1: one for the array.
       Otherwise `length` of them, or with scale_block one for each run of scale_block along `length`: [outer][runs][inner]. */
    const float* scales;
    const int64_t* zero_points; /* as many, or NULL for zeros */
    size_t scale_count, scale_block;
} qk_conversion;

/* y = what the format makes of x. */
qk_status qk_fake_quantize(const qk_conversion* how, const float* x, float* y, size_t n);
/* The same by the slow oracle, which shares no line with the kernels. */
qk_status qk_reference(const qk_conversion* how, const float* x, float* y, size_t n);
/* Gradients by the straight-through estimator; by scale and zero point where they are not NULL (one scale for the array). */
qk_status qk_fake_quantize_backward(const qk_conversion* how, const float* x, const float* gradient, float* gradient_in, size_t n,
                                    double* by_scale, double* by_zero_point);

/* Smallest and largest finite value. Begin with a structure of zeros; pieces of an array may come one after the other. */
typedef struct qk_range {
    float min, max;
    uint64_t count, special; /* finite values; Inf and NaN */
} qk_range;
qk_status qk_observe(qk_range* range, const float* x, size_t n);

/* How often a conversion overflows, saturates, ... */
typedef struct qk_flag_counts {
    uint64_t values, overflow, saturation, underflow, inexact, nan, invalid;
} qk_flag_counts;
qk_status qk_count_flags(const qk_conversion* how, const float* x, size_t n, qk_flag_counts* counts);

/* ---- codes: docs/reference/layouts.md says where each bit lies */

typedef struct qk_plane {
    size_t offset, count, bytes; /* of the first byte in one buffer; codes; length */
    int bits;                    /* of a code */
} qk_plane;
typedef struct qk_layout {
    qk_plane elements, scales, shifts, tensor; /* count 0 where the format has no such plane */
    size_t bytes;
} qk_layout;
qk_status qk_layout_of(const qk_conversion* how, size_t n, qk_layout* layout);

qk_status qk_encode(const qk_conversion* how, const float* x, size_t n, void* packed, size_t bytes);
qk_status qk_decode(const qk_conversion* how, const void* packed, size_t bytes, float* y, size_t n);

/* Each plane where the caller wants it; planes that a format lacks are not looked at. */
typedef struct qk_planes {
    void *elements, *scales, *shifts, *tensor;
} qk_planes;
typedef struct qk_const_planes {
    const void *elements, *scales, *shifts, *tensor;
} qk_const_planes;
qk_status qk_encode_planes(const qk_conversion* how, const float* x, size_t n, const qk_planes* planes);
qk_status qk_decode_planes(const qk_conversion* how, const qk_const_planes* planes, float* y, size_t n);

/* Sixteen-bit numbers in memory, binary16 or bfloat16 as their bits. */
typedef enum qk_storage { QK_FLOAT16 = 1, QK_BFLOAT16 = 2 } qk_storage;
qk_status qk_encode_16(const qk_conversion* how, qk_storage storage, const uint16_t* x, size_t n, void* packed, size_t bytes);
qk_status qk_decode_16(const qk_conversion* how, qk_storage storage, const void* packed, size_t bytes, uint16_t* y, size_t n);

/* Code `index` of a plane whose codes have 1 to 32 bits. */
uint32_t qk_get_code(const void* plane, int bits, size_t index);
void qk_put_code(void* plane, int bits, size_t index, uint32_t code);

/* ---- what a converter does wrong: docs/guide/checking_hardware.md */

typedef struct qk_report qk_report;
typedef struct qk_cause {
    const char* sentence;
    const char* where;
    int only_there;    /* the mistake is made there alone */
    uint64_t explains; /* differences that would be left without it */
} qk_cause;
/* The device was given x and gave `device`. QK_OK whether they differ or not; `report` is freed by qk_report_free. */
qk_status qk_compare(const qk_conversion* how, const float* x, const float* device, size_t n, qk_report** report);
uint64_t qk_report_differences(const qk_report* report);
uint64_t qk_report_unexplained(const qk_report* report);
/* Mistakes that together make the device's values, from 0 on; QK_NOTHING behind the last. */
qk_status qk_report_cause(const qk_report* report, size_t index, qk_cause* cause);
/* Where no mistake explains it: the one that explains most. */
qk_status qk_report_nearest(const qk_report* report, qk_cause* cause);
/* All of it in lines. */
const char* qk_report_text(const qk_report* report);
void qk_report_free(qk_report* report);

/* ---- dot products: docs/reference/numerics.md */

/* D = A B + C as a device computes it: A [m][k], B [k][n], C and D [m][n]. */
typedef struct qk_product {
    const char* accumulator;         /* a device's name, or an accumulator as text: "groups=16,align=25,round=toward-zero" */
    const char *a_format, *b_format; /* NULL: the device's */
    size_t m, n, k;
    int64_t a_zero_point, b_zero_point;
} qk_product;
typedef struct qk_dot_counts {
    uint64_t overflow, underflow, inexact, nan, saturation;
} qk_dot_counts;
/* Operands packed, blocks along k. C and D as stored codes: of fp16 and bf16 16 bits, of fp64 64, of integers two's complement of 64,
   otherwise float32's. c NULL: zeros. Counts are added to `counts`, which may be NULL. */
qk_status qk_multiply_add(const qk_product* product, const qk_const_planes* a, const qk_const_planes* b, const uint64_t* c, uint64_t* d,
                          qk_dot_counts* counts);
/* One code a word; scales of blocks scale_a [m][blocks] and scale_b [blocks][n], NULL without blocks. */
typedef struct qk_codes {
    const uint64_t *a, *b, *c, *scale_a, *scale_b;
} qk_codes;
qk_status qk_multiply_add_codes(const qk_product* product, const qk_codes* codes, uint64_t* d, qk_dot_counts* counts);
/* Numbers, encoded by ocp's rules first; not for fp64 and integer registers. */
qk_status qk_multiply_add_values(const qk_product* product, const float* a, const float* b, const float* c, float* d,
                                 qk_dot_counts* counts);
/* One dot product of k numbers. */
qk_status qk_dot(const qk_product* product, const float* a, const float* b, float c, float* d);

/* The accumulator of a device that is known by its answers. */
typedef struct qk_search {
    const char *a_format, *b_format;
    const char* c_format;  /* NULL: fp32 */
    size_t k;              /* terms of a sum; 0: 64 */
    int d_bits;            /* of a result: 16 or 32; 0: 32 */
    size_t most_questions; /* 0: 10000 */
    uint64_t seed;
} qk_search;
typedef struct qk_found {
    qk_text accumulator;     /* the one that gives most answers */
    uint64_t questions, met; /* asked, and answered as it answers */
} qk_found;
/* Fills d [m][n] and returns 0. */
typedef int (*qk_ask)(void* user, size_t m, size_t n, size_t k, const qk_codes* codes, uint64_t* d);
qk_status qk_find_accumulator(const qk_search* search, qk_ask device, void* user, qk_found* found);
/* From answers that are there already. */
qk_status qk_fit_accumulator(const qk_search* search, size_t m, size_t n, const qk_codes* codes, const uint64_t* d, qk_found* found);

/* ---- scoreboards: one word after the other, with the types of SystemVerilog's DPI-C (include/qk/qk_pkg.sv)
 *
 * Inputs and what the device made of them are recorded in their order, each kind on its own. *_check compares what is complete and gives
 * the number of differences, or -1; *_verdict says what is wrong, in lines. */

typedef struct qk_scoreboard qk_scoreboard;
/* `row`: values after which blocks begin anew; 0: never. NULL where a text is wrong. */
qk_scoreboard* qk_scoreboard_new(const char* format, const char* semantics, int64_t row, double scale, int64_t zero_point);
/* An input that tells converters apart, as float32's bits; it is recorded. */
unsigned int qk_scoreboard_draw(qk_scoreboard* board);
void qk_scoreboard_input(qk_scoreboard* board, unsigned int float_bits);
/* The device gives values, or codes: an element for each value, a scale for each block. */
void qk_scoreboard_output(qk_scoreboard* board, unsigned int float_bits);
void qk_scoreboard_element(qk_scoreboard* board, unsigned int code);
void qk_scoreboard_scale(qk_scoreboard* board, unsigned int code);
int64_t qk_scoreboard_check(qk_scoreboard* board);
const char* qk_scoreboard_verdict(qk_scoreboard* board);
void qk_scoreboard_free(qk_scoreboard* board);

typedef struct qk_dot_scoreboard qk_dot_scoreboard;
/* Formats NULL or "": the device's. `k`: terms of a sum. */
qk_dot_scoreboard* qk_dot_scoreboard_new(const char* accumulator, const char* a_format, const char* b_format, int64_t k);
/* Makes the next question of those that tell accumulators apart; the codes of it are asked for by position. 0, or -1 for formats that
   questions are not made of (docs/guide/checking_hardware.md). */
int qk_dot_scoreboard_draw(qk_dot_scoreboard* board);
uint64_t qk_dot_scoreboard_a(const qk_dot_scoreboard* board, int position);
uint64_t qk_dot_scoreboard_b(const qk_dot_scoreboard* board, int position);
uint64_t qk_dot_scoreboard_scale_a(const qk_dot_scoreboard* board, int block);
uint64_t qk_dot_scoreboard_scale_b(const qk_dot_scoreboard* board, int block);
uint64_t qk_dot_scoreboard_c(const qk_dot_scoreboard* board);
/* A question of the bench's own: all of it is 0 until it is put. */
void qk_dot_scoreboard_ask(qk_dot_scoreboard* board);
void qk_dot_scoreboard_put_a(qk_dot_scoreboard* board, int position, uint64_t code);
void qk_dot_scoreboard_put_b(qk_dot_scoreboard* board, int position, uint64_t code);
void qk_dot_scoreboard_put_scale_a(qk_dot_scoreboard* board, int block, uint64_t code);
void qk_dot_scoreboard_put_scale_b(qk_dot_scoreboard* board, int block, uint64_t code);
void qk_dot_scoreboard_put_c(qk_dot_scoreboard* board, uint64_t code);
/* What the accumulator gives for the question. */
uint64_t qk_dot_scoreboard_expected(qk_dot_scoreboard* board);
/* The device's answer: the question is recorded with it. */
void qk_dot_scoreboard_answer(qk_dot_scoreboard* board, uint64_t d);
int64_t qk_dot_scoreboard_check(qk_dot_scoreboard* board);
const char* qk_dot_scoreboard_verdict(qk_dot_scoreboard* board);
void qk_dot_scoreboard_free(qk_dot_scoreboard* board);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
