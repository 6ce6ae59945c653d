/* Multiplies matrices of ones, 512x512 in f16, by the installed kernels. */
#include <ptxgen_kernels.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#if PTXGEN_VERSION < 100
#error "the kernels must be those of ptxgen 0.1.0 or newer"
#endif

enum { SIZE = 512, BYTES = SIZE * SIZE * 2 };

/* The function of the CUDA driver with this name. */
static void *driver(const char *name)
{
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = library ? dlsym(library, name) : NULL;
    if (!function) {
        fprintf(stderr, "libcuda.so.1 has no %s\n", name);
        exit(1);
    }
    return function;
}

static void require(int error, const char *what)
{
    if (error) {
        fprintf(stderr, "%s failed: CUDA driver error %d\n", what, error);
        exit(1);
    }
}

static void succeed(ptxgen_status status)
{
    if (status != PTXGEN_SUCCESS) {
        fprintf(stderr, "%s (driver error %d)\n", ptxgen_status_text(status), ptxgen_driver_result());
        exit(1);
    }
}

int main(void)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *), (*synchronize)(void);
    int (*allocate)(uint64_t *, size_t), (*fill)(uint64_t, unsigned char, size_t);
    int (*upload)(uint64_t, const void *, size_t), (*download)(void *, uint64_t, size_t);
    *(void **)&init = driver("cuInit");
    *(void **)&get = driver("cuDeviceGet");
    *(void **)&retain = driver("cuDevicePrimaryCtxRetain");
    *(void **)&set = driver("cuCtxSetCurrent");
    *(void **)&synchronize = driver("cuCtxSynchronize");
    *(void **)&allocate = driver("cuMemAlloc_v2");
    *(void **)&fill = driver("cuMemsetD8_v2");
    *(void **)&upload = driver("cuMemcpyHtoD_v2");
    *(void **)&download = driver("cuMemcpyDtoH_v2");

    int device = 0;
    void *context = NULL;
    require(init(0), "cuInit");
    require(get(&device, 0), "cuDeviceGet");
    require(retain(&context, device), "cuDevicePrimaryCtxRetain");
    require(set(context), "cuCtxSetCurrent");

    static uint16_t ones[SIZE * SIZE], c[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++)
        ones[i] = 0x3c00;
    uint64_t at[3];
    for (int i = 0; i < 3; i++) {
        require(allocate(&at[i], BYTES), "cuMemAlloc");
        require(i < 2 ? upload(at[i], ones, BYTES) : fill(at[i], 0, BYTES), "the copy of an operand");
    }

    ptxgen_library *library = NULL;
    succeed(ptxgen_create(PTXGEN_FOLDER, &library));
    const ptxgen_gemm_problem problem = {
        .layout = PTXGEN_NN, .dtype = PTXGEN_F16, .compute = PTXGEN_F32, .out = PTXGEN_F16,
        .m = SIZE, .n = SIZE, .k = SIZE, .stride_a = -1, .stride_b = -1, .stride_c = -1,
    };
    ptxgen_operands operands = {
        .a = (void *)(uintptr_t)at[0], .b = (void *)(uintptr_t)at[1], .c = (void *)(uintptr_t)at[2], .alpha = 1.0,
    };
    succeed(ptxgen_gemm_workspace(library, &problem, &operands, &operands.workspace_bytes));
    if (operands.workspace_bytes) {
        uint64_t workspace = 0;
        require(allocate(&workspace, operands.workspace_bytes), "cuMemAlloc");
        operands.workspace = (void *)(uintptr_t)workspace;
    }
    succeed(ptxgen_gemm(library, NULL, &problem, &operands));
    require(synchronize(), "cuCtxSynchronize");
    require(download(c, at[2], BYTES), "cuMemcpyDtoH");
    ptxgen_destroy(library);
    printf("kernels of ptxgen %d, c[0][0] has the bits 0x%04x (512 in f16: 0x6000)\n", PTXGEN_VERSION, c[0]);
    return 0;
}
