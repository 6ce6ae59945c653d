/* Computes one exported problem: ${comment(first.problem.key())}
 *
 *     example FOLDER            on operands of zeros
 *     example FOLDER ${" ".join(files)}      files with the operands as stored; writes the ${"result to the file C" if len(outputs) == 1 else "results to the last files"}
 *
 * FOLDER is the one with ptxgen_kernels.h. */
#include "ptxgen_kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *libcuda;

/* The function of the CUDA driver with this name. */
static void *driver_function(const char *name)
{
    void *function = dlsym(libcuda, name);
    if (!function) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return function;
}

static void require(int code, const char *what)
{
    if (code) {
        fprintf(stderr, "%s failed: CUDA driver error %d\n", what, code);
        exit(1);
    }
}

/* Copies bytes from (into == 0) or to a file. */
static void transfer(const char *path, void *data, size_t bytes, int into)
{
    FILE *file = fopen(path, into ? "wb" : "rb");
    size_t done = file ? (into ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file)) : 0;
    if (!file || done != bytes || fclose(file)) {
        fprintf(stderr, "%s: %zu of %zu bytes\n", path, done, bytes);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    if (count != 2 && count != ${len(files) + 2}) {
        fprintf(stderr, "usage: example FOLDER [${" ".join(files)}]\n");
        return 2;
    }
    libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!libcuda) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *), (*synchronize)(void);
    int (*allocate)(uint64_t *, size_t), (*fill)(uint64_t, unsigned char, size_t);
    int (*upload)(uint64_t, const void *, size_t), (*download)(void *, uint64_t, size_t);
    *(void **)&init = driver_function("cuInit");
    *(void **)&get = driver_function("cuDeviceGet");
    *(void **)&retain = driver_function("cuDevicePrimaryCtxRetain");
    *(void **)&set = driver_function("cuCtxSetCurrent");
    *(void **)&synchronize = driver_function("cuCtxSynchronize");
    *(void **)&allocate = driver_function("cuMemAlloc_v2");
    *(void **)&fill = driver_function("cuMemsetD8_v2");
    *(void **)&upload = driver_function("cuMemcpyHtoD_v2");
    *(void **)&download = driver_function("cuMemcpyDtoH_v2");

    int device = 0;
    void *context = NULL;
    require(init(0), "cuInit");
    require(get(&device, 0), "cuDeviceGet");
    require(retain(&context, device), "cuDevicePrimaryCtxRetain");
    require(set(context), "cuCtxSetCurrent");

    /* the operands in memory of the GPU */
    enum { ARRAYS = ${len(buffers)} };
    const size_t bytes[ARRAYS] = {${", ".join(str(size) for _, size in buffers)}};
    uint64_t at[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        require(allocate(&at[i], bytes[i]), "cuMemAlloc");
        require(fill(at[i], 0, bytes[i]), "cuMemset");
    }
    static const int inputs[] = {${", ".join(map(str, inputs))}};
    for (int n = 0; n < ${len(inputs)} && count == ${len(files) + 2}; n++) {
        int i = inputs[n];
        void *data = malloc(bytes[i]);
        transfer(arguments[2 + n], data, bytes[i], 0);
        require(upload(at[i], data, bytes[i]), "cuMemcpyHtoD");
        free(data);
    }

    ptxgen_library *library = NULL;
    ptxgen_status status = ptxgen_create(arguments[1], &library);
    const ptxgen_${name}_problem problem = {
% for field, value in fields:
        .${field} = ${value},
% endfor
    };
    ${operands_type} operands = {
% for number, (array, _) in enumerate(buffers):
        .${array} = (void *)(uintptr_t)at[${number}],
% endfor
% for member, value in numbers:
        .${member} = ${value},
% endfor
    };
    size_t workspace = 0;
    if (!status)
        status = ptxgen_${name}_workspace(library, &problem, &operands, &workspace);
    if (!status && workspace) {
        uint64_t address = 0;
        require(allocate(&address, workspace), "cuMemAlloc");
        operands.workspace = (void *)(uintptr_t)address;
        operands.workspace_bytes = workspace;
    }
    if (!status)
        status = ptxgen_${name}(library, NULL, &problem, &operands);
    if (status) {
        fprintf(stderr, "%s (driver error %d)\n", ptxgen_status_text(status), ptxgen_driver_result());
        return 1;
    }
    require(synchronize(), "cuCtxSynchronize");
    static const int outputs[] = {${", ".join(map(str, outputs))}};
    size_t results = 0;
    for (int n = 0; n < ${len(outputs)}; n++) {
        int i = outputs[n];
        results += bytes[i];
        if (count == ${len(files) + 2}) {
            void *data = malloc(bytes[i]);
            require(download(data, at[i], bytes[i]), "cuMemcpyDtoH");
            transfer(arguments[${2 + len(inputs)} + n], data, bytes[i], 1);
            free(data);
        }
    }
    ptxgen_destroy(library);
    printf("%zu bytes of results, %zu bytes of workspace\n", results, workspace);
    return 0;
}
