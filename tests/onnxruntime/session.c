/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C that makes sessions of onnxruntime with qk's operators, in every way that it can, and runs them from two threads.
 *
 *     onnxruntime_session LIBONNXRUNTIME.so LIBQK_ONNXRUNTIME.so MODEL.onnx ROWS COLUMNS
 *
 * The model has one input "x" [ROWS, COLUMNS] and one output "y0" of that shape. Exit status 1 and a sentence where something is wrong.
 * onnxruntime is opened, not linked: the program runs beside whichever is installed. */
#include <dlfcn.h>
#include <onnxruntime_c_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qk/onnxruntime.h"

static const OrtApi* api;
static OrtEnv* env;
static const char *model, *library;
static int64_t shape[2];
static size_t count;
static float *x, *expected;

static void fail(const char* what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}
static void expect(OrtStatus* status) {
    if (status != NULL) fail(api->GetErrorMessage(status));
}

enum how { stock, with_model, with_names, by_path, twice };

static OrtSessionOptions* options_of(enum how how) {
    OrtSessionOptions* options = NULL;
    expect(api->CreateSessionOptions(&options));
    expect(api->SetIntraOpNumThreads(options, 2));
    if (how == with_model || how == twice)
        if (qk_onnxruntime_register(options, model) != 0) fail(qk_onnxruntime_problem());
    if (how == with_names || how == twice)
        if (qk_onnxruntime_register(options, NULL) != 0) fail(qk_onnxruntime_problem());
    if (how == by_path) expect(api->RegisterCustomOpsLibrary_V2(options, library));
    return options;
}

static void run(OrtSessionOptions* options, float* y) {
    OrtSession* session = NULL;
    OrtMemoryInfo* memory = NULL;
    OrtValue *input = NULL, *output = NULL;
    const char *inputs[] = {"x"}, *outputs[] = {"y0"};
    float* made = NULL;
    expect(api->CreateSession(env, model, options, &session));
    expect(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    expect(api->CreateTensorWithDataAsOrtValue(memory, x, count * sizeof *x, shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &input));
    expect(api->Run(session, NULL, inputs, (const OrtValue* const*)&input, 1, outputs, 1, &output));
    expect(api->GetTensorMutableData(output, (void**)&made));
    memcpy(y, made, count * sizeof *y);
    api->ReleaseValue(output);
    api->ReleaseValue(input);
    api->ReleaseMemoryInfo(memory);
    api->ReleaseSession(session);
    api->ReleaseSessionOptions(options);
}

static pthread_barrier_t both;

static void* sessions(void* wrong) {
    float* y = malloc(count * sizeof *y);
    for (int how = with_model; how <= twice; ++how) {
        OrtSessionOptions* options = options_of((enum how)how);
        pthread_barrier_wait(&both); /* The first sessions of a process are made at once. */
        run(options, y);
        if (memcmp(y, expected, count * sizeof *y) != 0) *(int*)wrong = how;
    }
    free(y);
    return NULL;
}

int main(int argc, char** argv) {
    if (argc != 6) fail("usage: onnxruntime_session LIBONNXRUNTIME.so LIBQK_ONNXRUNTIME.so MODEL.onnx ROWS COLUMNS");
    void* runtime = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (runtime == NULL) fail(dlerror());
    const OrtApiBase* (*base)(void) = NULL;
    *(void**)&base = dlsym(runtime, "OrtGetApiBase");
    if (base == NULL) fail("no OrtGetApiBase");
    api = base()->GetApi(17);
    if (api == NULL) fail("no interface 17");
    library = argv[2], model = argv[3];
    shape[0] = atol(argv[4]), shape[1] = atol(argv[5]), count = (size_t)(shape[0] * shape[1]);
    x = malloc(count * sizeof *x), expected = malloc(count * sizeof *expected);
    for (size_t i = 0; i < count; ++i) x[i] = (float)((i * 2654435761u) % 20011) / 1000.0f - 10.0f;
    api->ReleaseSessionOptions(options_of(with_names)); /* Options may be made before the environment is. */
    expect(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "qk", &env));

    /* What is wrong is told, and ends nothing. */
    if (qk_onnxruntime_register(NULL, model) == 0 || strstr(qk_onnxruntime_problem(), "null pointer") == NULL) fail("no sentence on a null pointer");
    OrtSessionOptions* options = options_of(stock);
    if (qk_onnxruntime_register(options, "there/is/none.onnx") == 0 || strstr(qk_onnxruntime_problem(), "none.onnx") == NULL)
        fail("no sentence on a file that is not there");
    api->ReleaseSessionOptions(options);

    run(options_of(stock), expected);
    int wrong[2] = {0, 0};
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; ++i)
        if (pthread_create(&threads[i], NULL, sessions, &wrong[i]) != 0) fail("no thread");
    for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
    if (wrong[0] != 0 || wrong[1] != 0) fail("other bits than the file's functions give");
    api->ReleaseEnv(env);
    free(x);
    free(expected);
    printf("onnxruntime %s: four ways to register, two threads, the same bits\n", base()->GetVersionString());
    return 0;
}
