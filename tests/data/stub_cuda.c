/* A CUDA driver without a GPU: it prints the calls that an exported library makes. Memory is that of the host. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct configuration {
    unsigned grid[3], block[3], shared;
    void *stream;
    const struct {
        int id;
        char padding[4];
        union {
            char bytes[64];
            int enabled;
        } value;
    } * attributes;
    unsigned count;
};

static char names[4096][96];
static int name_count;

/* STUB_CUDA_FAIL: the name of the function that fails. */
static int result(const char *function)
{
    const char *failing = getenv("STUB_CUDA_FAIL");
    return failing && !strcmp(failing, function) ? 2 : 0;
}

static void numbers(const char *name, const uint64_t *values, int count)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)values[i]);
    printf("]");
}

static void words(const char *name, const uint32_t *values, int count)
{
    uint64_t wide[8];
    for (int i = 0; i < count; i++)
        wide[i] = values[i];
    numbers(name, wide, count);
}

static void integers(const char *name, const int *values, int count)
{
    printf(", \"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? ", " : "", values[i]);
    printf("]");
}

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = names;
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    return context != names;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return result("cuCtxGetDevice");
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const char *sms = getenv("STUB_CUDA_SMS");
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 16 ? (sms ? atoi(sms) : 132) : 0;
    return 0;
}

int cuModuleLoad(void **module, const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 301;
    fclose(file);
    *module = malloc(1);
    return 0;
}

int cuModuleUnload(void *module)
{
    free(module);
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    if (!module || name_count == 4096)
        return 500;
    snprintf(names[name_count], sizeof names[0], "%s", name);
    *function = names[name_count++];
    return 0;
}

int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)function;
    *value = 0;
    return attribute != 1;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    return !function || attribute != 8 || value > 227 << 10;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    *address = (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return *address ? result("cuMemAlloc_v2") : 2;
}

int cuMemFree_v2(uint64_t address)
{
    free((void *)(uintptr_t)address);
    return 0;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    memcpy((void *)(uintptr_t)to, from, bytes);
    printf("{\"upload\": %llu, \"bytes\": %zu}\n", (unsigned long long)to, bytes);
    return 0;
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t to, unsigned char byte, size_t bytes)
{
    memset((void *)(uintptr_t)to, byte, bytes);
    return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, void *stream)
{
    printf("{\"memset\": %llu, \"byte\": %u, \"bytes\": %zu, \"stream\": %llu}\n", (unsigned long long)to, byte, bytes,
           (unsigned long long)(uintptr_t)stream);
    return 0;
}

int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, uint64_t address, const uint64_t *extents,
                           const uint64_t *pitches, const uint32_t *box, const uint32_t *steps, int interleave,
                           int swizzle, int promotion, int fill)
{
    memset(map, 0, 128);
    printf("{\"map\": %d, \"address\": %llu", type, (unsigned long long)address);
    numbers("extents", extents, (int)rank);
    numbers("pitches", pitches, (int)rank - 1);
    words("box", box, (int)rank);
    words("steps", steps, (int)rank);
    printf(", \"modes\": [%d, %d, %d, %d]}\n", interleave, swizzle, promotion, fill);
    return result("cuTensorMapEncodeTiled");
}

int cuTensorMapEncodeIm2col(void *map, int type, uint32_t rank, uint64_t address, const uint64_t *extents,
                            const uint64_t *pitches, const int *lower, const int *upper, uint32_t channels,
                            uint32_t pixels, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill)
{
    const uint32_t box[2] = {channels, pixels};
    memset(map, 0, 128);
    printf("{\"map\": %d, \"address\": %llu", type, (unsigned long long)address);
    numbers("extents", extents, (int)rank);
    numbers("pitches", pitches, (int)rank - 1);
    words("box", box, 2);
    words("steps", steps, (int)rank);
    integers("lower", lower, (int)rank - 2);
    integers("upper", upper, (int)rank - 2);
    printf(", \"modes\": [%d, %d, %d, %d]}\n", interleave, swizzle, promotion, fill);
    return result("cuTensorMapEncodeIm2col");
}

int cuLaunchKernelEx(const struct configuration *c, void *function, void **parameters, void **extra)
{
    const unsigned char *bytes = extra[1];
    size_t size = *(size_t *)extra[3];
    if (parameters || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4])
        return 1;
    printf("{\"launch\": \"%s\", \"stream\": %llu, \"shared\": %u", (char *)function,
           (unsigned long long)(uintptr_t)c->stream, c->shared);
    words("grid", c->grid, 3);
    words("block", c->block, 3);
    printf(", \"dependent\": %d, \"parameters\": \"", c->count ? c->attributes->id == 6 && c->attributes->value.enabled : 0);
    for (size_t i = 0; i < size; i++)
        printf("%02x", bytes[i]);
    printf("\"}\n");
    return result("cuLaunchKernelEx");
}
