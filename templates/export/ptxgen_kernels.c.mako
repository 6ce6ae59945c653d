/* Kernels of ptxgen ${version} for ${device.name}, ${target}. Made by: ${comment(command)} */
#define _POSIX_C_SOURCE 200809L

#include "ptxgen_kernels.h"

#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the part of the driver's interface that the library uses */

enum {
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_LAUNCH_PARAM_BUFFER_POINTER = 1,
    CU_LAUNCH_PARAM_BUFFER_SIZE = 2,
    CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    MAP_BYTES = ${map_bytes},         /* of a tensor map */
    MAP_ALIGNMENT = ${map_alignment},      /* of its address */
    PARAMETERS_AT = ${parameters_at},      /* offset of the first kernel parameter from a multiple of MAP_ALIGNMENT */
    PARAMETER_BYTES = 4096, /* of a kernel, at most */
    STATIC_SHARED_LIMIT = 48 << 10,
    WORKSPACE_ALIGNMENT = 256,
    TASK_INPUTS = ${task_inputs},        /* arrays besides A and B, or numbers, of a task, at most */
    TASK_LISTS = ${task_lists}          /* lists of a task, at most; the first one is C */
};

struct launch_attribute {
    int id;
    char padding[4];
    union {
        char bytes[64];
        int enabled;
    } value;
};

struct launch_configuration {
    unsigned grid[3], block[3], shared;
    struct CUstream_st *stream;
    struct launch_attribute *attributes;
    unsigned count;
};

/* Pointers are contexts, modules, functions and tensor maps; uint64_t are addresses of the GPU. */
struct driver {
    int (*cuCtxGetDevice)(int *);
    int (*cuDeviceGetAttribute)(int *, int, int);
    int (*cuModuleLoad)(void **, const char *);
    int (*cuModuleUnload)(void *);
    int (*cuModuleGetFunction)(void **, void *, const char *);
    int (*cuFuncGetAttribute)(int *, int, void *);
    int (*cuFuncSetAttribute)(void *, int, int);
    int (*cuMemAlloc_v2)(uint64_t *, size_t);
    int (*cuMemFree_v2)(uint64_t);
    int (*cuMemcpyHtoD_v2)(uint64_t, const void *, size_t);
    int (*cuMemsetD8Async)(uint64_t, unsigned char, size_t, struct CUstream_st *);
    int (*cuLaunchKernelEx)(const struct launch_configuration *, void *, void **, void **);
    int (*cuTensorMapEncodeTiled)(void *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *, const uint32_t *,
                                  const uint32_t *, int, int, int, int);
    int (*cuTensorMapEncodeIm2col)(void *, int, uint32_t, uint64_t, const uint64_t *, const uint64_t *, const int *,
                                   const int *, uint32_t, uint32_t, const uint32_t *, int, int, int, int);
};

/* the functions of struct driver, in order */
static const char *const driver_functions[] = {
    "cuCtxGetDevice",   "cuDeviceGetAttribute", "cuModuleLoad",  "cuModuleUnload",  "cuModuleGetFunction",
    "cuFuncGetAttribute", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2",
    "cuMemsetD8Async",  "cuLaunchKernelEx",     "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col",
};

enum { DRIVER_FUNCTIONS = sizeof driver_functions / sizeof *driver_functions };

_Static_assert(sizeof(struct driver) == DRIVER_FUNCTIONS * sizeof(void *), "each function of struct driver has a name");

/* ---- modules and kernels */

enum { MODULES = ${len(modules)}, FUNCTIONS = ${len(functions)}, TABLE_BYTES = ${tables.size} };

static const struct module {
    const char *file;
    int shared; /* the most dynamic shared memory of its kernels */
} modules[] = {
% for module in modules:
    {"kernels/${module.name}.cubin", ${module.source.shared}},
% endfor
};

static const struct function {
    int module;
    const char *entry;
    int dependent; /* may start before the preceding kernel of the stream has ended, and waits for it */
} functions[] = {
% for function in functions:
    {${function.module}, "${function.entry}", ${int(function.dependent)}},
% endfor
};

struct ptxgen_library {
    struct driver driver;
    void *handle; /* of libcuda */
    void *modules[MODULES];
    void *functions[FUNCTIONS];
    uint64_t tables; /* address of the offset tables */
};

static _Thread_local int driver_result;

int ptxgen_driver_result(void)
{
    return driver_result;
}

const char *ptxgen_status_text(ptxgen_status status)
{
    switch (status) {
% for name, meaning in statuses:
    case ${name}:
        return "${meaning}";
% endfor
    }
    return "not a status";
}

static ptxgen_status checked(int result)
{
    if (!result)
        return PTXGEN_SUCCESS;
    driver_result = result;
    return PTXGEN_DRIVER_ERROR;
}

static ptxgen_status load_driver(ptxgen_library *library)
{
    library->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library->handle)
        return PTXGEN_NO_DRIVER;
    for (int i = 0; i < DRIVER_FUNCTIONS; i++) {
        void *function = dlsym(library->handle, driver_functions[i]);
        if (!function)
            return PTXGEN_NO_DRIVER;
        memcpy((char *)&library->driver + i * sizeof function, &function, sizeof function);
    }
    return PTXGEN_SUCCESS;
}

static ptxgen_status check_device(const struct driver *driver)
{
    int device = 0, major = 0, minor = 0, multiprocessors = 0;
    ptxgen_status status = checked(driver->cuCtxGetDevice(&device));
    if (!status)
        status = checked(driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    if (!status)
        status = checked(driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    if (!status)
        status = checked(driver->cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    if (status)
        return status;
    /* blocks of some kernels wait for each other, so all must run at once */
    if (major != ${device.sm // 10} || minor < ${device.sm % 10} || multiprocessors < ${device.sms})
        return PTXGEN_WRONG_DEVICE;
    return PTXGEN_SUCCESS;
}

static char *path_of(const char *folder, const char *file)
{
    size_t size = strlen(folder) + strlen(file) + 2;
    char *path = malloc(size);
    if (path)
        snprintf(path, size, "%s/%s", folder, file);
    return path;
}

static ptxgen_status load_modules(ptxgen_library *library, const char *folder)
{
    for (int i = 0; i < MODULES; i++) {
        char *path = path_of(folder, modules[i].file);
        if (!path)
            return PTXGEN_OUT_OF_MEMORY;
        int result = library->driver.cuModuleLoad(&library->modules[i], path);
        free(path);
        if (result)
            return result == CUDA_ERROR_FILE_NOT_FOUND ? PTXGEN_NO_FILE : checked(result);
    }
    for (int i = 0; i < FUNCTIONS; i++) {
        const struct function *f = &functions[i];
        int shared = 0, dynamic = modules[f->module].shared;
        ptxgen_status status =
            checked(library->driver.cuModuleGetFunction(&library->functions[i], library->modules[f->module], f->entry));
        if (!status)
            status = checked(library->driver.cuFuncGetAttribute(&shared, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
                                                                library->functions[i]));
        if (!status && shared + dynamic > STATIC_SHARED_LIMIT)
            status = checked(library->driver.cuFuncSetAttribute(
                library->functions[i], CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic));
        if (status)
            return status;
    }
    return PTXGEN_SUCCESS;
}

static ptxgen_status load_tables(ptxgen_library *library, const char *folder)
{
    if (!TABLE_BYTES)
        return PTXGEN_SUCCESS;
    char *path = path_of(folder, "kernels/tables.bin"), *words = malloc(TABLE_BYTES + 1);
    FILE *file = path ? fopen(path, "rb") : NULL;
    ptxgen_status status = path && words ? PTXGEN_SUCCESS : PTXGEN_OUT_OF_MEMORY;
    if (!status && (!file || fread(words, 1, TABLE_BYTES + 1, file) != TABLE_BYTES))
        status = PTXGEN_NO_FILE;
    if (!status)
        status = checked(library->driver.cuMemAlloc_v2(&library->tables, TABLE_BYTES));
    if (!status)
        status = checked(library->driver.cuMemcpyHtoD_v2(library->tables, words, TABLE_BYTES));
    if (file)
        fclose(file);
    free(words);
    free(path);
    return status;
}

ptxgen_status ptxgen_create(const char *folder, ptxgen_library **library)
{
    if (!folder || !library)
        return PTXGEN_INVALID_ARGUMENT;
    *library = NULL;
    ptxgen_library *made = calloc(1, sizeof *made);
    if (!made)
        return PTXGEN_OUT_OF_MEMORY;
    ptxgen_status status = load_driver(made);
    if (!status)
        status = check_device(&made->driver);
    if (!status)
        status = load_modules(made, folder);
    if (!status)
        status = load_tables(made, folder);
    if (status)
        ptxgen_destroy(made);
    else
        *library = made;
    return status;
}

void ptxgen_destroy(ptxgen_library *library)
{
    if (!library)
        return;
    if (library->tables)
        library->driver.cuMemFree_v2(library->tables);
    for (int i = 0; i < MODULES; i++)
        if (library->modules[i])
            library->driver.cuModuleUnload(library->modules[i]);
    if (library->handle)
        dlclose(library->handle);
    free(library);
}

/* ---- launches */

/* The shape of a GEMM or a task: extents, leading dimensions, alignments in bytes, at most 16, and rows and columns of
 * groups, 1 where there are none. */
struct shape {
    int64_t ${", ".join(variables)};
};

/* A call: its arguments, and the parameter buffer of the next launch. size: not NULL in a query of the workspace. */
struct call {
    ptxgen_library *library;
    struct CUstream_st *stream;
    const ptxgen_operands *operands;
    size_t *size;
    struct shape shape; /* of a GEMM, or a task */
    ptxgen_status status;
    /* operands of a task, by the numbers of kernel parameters */
    ptxgen_operands common;
    const void *input[TASK_INPUTS];
    const void *list[TASK_LISTS];
    const void *count;
    int64_t capacity;
    double scalar[TASK_INPUTS];
    /* of the next launch */
    size_t used;
    unsigned char parameters[PARAMETER_BYTES];
};

static uint64_t address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

/* Appends a parameter at the next multiple of its size. */
static void put(struct call *x, const void *value, size_t size)
{
    size_t at = (x->used + size - 1) / size * size;
    if (at + size > PARAMETER_BYTES) {
        x->status = PTXGEN_INVALID_ARGUMENT;
        return;
    }
    memset(x->parameters + x->used, 0, at - x->used);
    memcpy(x->parameters + at, value, size);
    x->used = at + size;
}

static inline void put_u32(struct call *x, int64_t value)
{
    uint32_t word = (uint32_t)value;
    put(x, &word, sizeof word);
}

static inline void put_s32(struct call *x, double value)
{
    int32_t word = (int32_t)value;
    put(x, &word, sizeof word);
}

static inline void put_u64(struct call *x, uint64_t value)
{
    put(x, &value, sizeof value);
}

static inline void put_f32(struct call *x, double value)
{
    float number = (float)value;
    put(x, &number, sizeof number);
}

static inline void put_f64(struct call *x, double value)
{
    put(x, &value, sizeof value);
}

/* A tensor map. address: of the operand; offset: of the first element from it, in bytes. element: 0, or the bytes of an
 * element of a tensor that may start between multiples of 16 bytes: its map begins at the preceding multiple. pixels: of
 * an im2col map, else 0. */
struct tensor_map {
    int type, rank, swizzle, element;
    uint64_t address;
    uint64_t offset, extents[5], pitches[4];
    uint32_t box[5];
    uint32_t pixels, steps[5];
    int lower[3], upper[3];
};

static inline void put_map(struct call *x, struct tensor_map t)
{
    static const uint32_t ones[5] = {1, 1, 1, 1, 1};
    const struct driver *driver = &x->library->driver;
    _Alignas(MAP_ALIGNMENT) unsigned char map[MAP_BYTES];
    size_t at = x->used + (MAP_ALIGNMENT - (x->used + PARAMETERS_AT) % MAP_ALIGNMENT) % MAP_ALIGNMENT;
    if (x->status)
        return;
    if (at + MAP_BYTES > PARAMETER_BYTES) {
        x->status = PTXGEN_INVALID_ARGUMENT;
        return;
    }
    uint64_t start = t.address + t.offset;
    if (t.element) {
        t.extents[0] += start % 16 / (uint64_t)t.element;
        start -= start % 16;
    }
    if (t.pixels)
        x->status = checked(driver->cuTensorMapEncodeIm2col(map, t.type, (uint32_t)t.rank, start, t.extents, t.pitches,
                                                            t.lower, t.upper, t.box[0], t.pixels, t.steps, 0, t.swizzle,
                                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 0));
    else
        x->status = checked(driver->cuTensorMapEncodeTiled(map, t.type, (uint32_t)t.rank, start, t.extents, t.pitches,
                                                           t.box, ones, 0, t.swizzle,
                                                           CU_TENSOR_MAP_L2_PROMOTION_L2_128B, 0));
    memset(x->parameters + x->used, 0, at - x->used);
    memcpy(x->parameters + at, map, MAP_BYTES);
    x->used = at + MAP_BYTES;
}

/* Refuses an alpha or beta that is no integer of 32 bits. */
static inline void scalars_s32(struct call *x)
{
    const double values[] = {x->operands->alpha, x->operands->beta};
    for (int i = 0; i < 2; i++)
        if (!(values[i] >= INT32_MIN && values[i] <= INT32_MAX && values[i] == floor(values[i])))
            x->status = PTXGEN_INVALID_ARGUMENT;
}

/* Refuses an alpha or beta that is finite and does not fit a float. */
static inline void scalars_f32(struct call *x)
{
    const double values[] = {x->operands->alpha, x->operands->beta};
    for (int i = 0; i < 2; i++)
        if (isfinite(values[i]) && fabs(values[i]) > FLT_MAX)
            x->status = PTXGEN_INVALID_ARGUMENT;
}

/* Answers a query of the workspace; else checks the caller's, and clears it if kernels need zeros. Whether the launches
 * follow. */
static int begin(struct call *x, size_t bytes, int zeroed)
{
    const ptxgen_operands *o = x->operands;
    if (x->status)
        return 0;
    if (x->size) {
        if (*x->size < bytes)
            *x->size = bytes;
        return 0;
    }
    if (bytes > o->workspace_bytes || (bytes && !o->workspace)) {
        x->status = PTXGEN_WORKSPACE_TOO_SMALL;
        return 0;
    }
    if (bytes && address(o->workspace) % WORKSPACE_ALIGNMENT) {
        x->status = PTXGEN_INVALID_ARGUMENT;
        return 0;
    }
    if (bytes && zeroed && !o->workspace_is_zero)
        x->status = checked(x->library->driver.cuMemsetD8Async(address(o->workspace), 0, bytes, x->stream));
    return !x->status;
}

/* Sets an array to zero. */
static inline void clear(struct call *x, uint64_t array, size_t bytes)
{
    if (!x->status)
        x->status = checked(x->library->driver.cuMemsetD8Async(array, 0, bytes, x->stream));
}

/* Launches a kernel with the parameters that were put since the last launch. */
static void launch(struct call *x, int function, int64_t grid_x, int64_t grid_y, int64_t grid_z, unsigned threads,
                   unsigned shared)
{
    struct launch_attribute attribute = {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, {0}, {{0}}};
    attribute.value.enabled = 1;
    struct launch_configuration configuration = {
        {(unsigned)grid_x, (unsigned)grid_y, (unsigned)grid_z}, {threads, 1, 1}, shared, x->stream, &attribute,
        (unsigned)functions[function].dependent};
    size_t used = x->used;
    void *extra[] = {(void *)(uintptr_t)CU_LAUNCH_PARAM_BUFFER_POINTER, x->parameters,
                     (void *)(uintptr_t)CU_LAUNCH_PARAM_BUFFER_SIZE, &used,
                     NULL};
    x->used = 0;
    if (!x->status)
        x->status = checked(
            x->library->driver.cuLaunchKernelEx(&configuration, x->library->functions[function], NULL, extra));
}

/* Makes the launches of a call. A query of the workspace, which knows no alpha, returns the size that serves all. */
static inline void dispatch(struct call *x, void (*sums)(struct call *), void (*empty)(struct call *))
{
    if (x->size || x->operands->alpha == 0)
        empty(x);
    if (x->size || x->operands->alpha != 0)
        sums(x);
}

% if choices:
/* ---- arithmetic of expressions: integers are divided downwards, as in Python; by 0 to 0 */

static inline int64_t floor_div(int64_t a, int64_t b)
{
    return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
}

static inline int64_t floor_mod(int64_t a, int64_t b)
{
    return a - floor_div(a, b) * b;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return -floor_div(-a, b);
}

static inline int64_t max_integer(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t min_integer(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline double max_double(double a, double b)
{
    return a > b ? a : b;
}

static inline double min_double(double a, double b)
{
    return a < b ? a : b;
}

static inline double root_of_squares(double a, double b)
{
    return sqrt(a * a + b * b);
}

static inline int64_t bit_length(int64_t a)
{
    int64_t bits = 0;
    for (uint64_t rest = a < 0 ? -(uint64_t)a : (uint64_t)a; rest; rest >>= 1)
        bits++;
    return bits;
}

% endif
/* ---- the launches: kernel_ functions compute all shapes of a class, problem_ functions one problem; _empty functions
 * sums without terms, which read neither A nor B */
% for f in launches:
    % if f.empty is not None:

static void ${f.name}_empty(struct call *x)
{
    % for line in f.empty:
    ${line}
    % endfor
}
    % endif

/* ${comment(f.title)}
 * ${f.config} */
static void ${f.name}${"" if f.empty is None else "_sums"}(struct call *x)
{
    % for line in f.lines:
    ${line}
    % endfor
}
    % if f.empty is not None:

static void ${f.name}(struct call *x)
{
    dispatch(x, ${f.name}_sums, ${f.name}_empty);
}
    % endif
% endfor

/* ---- problems */

enum { MOST_FIELDS = ${max(len(operation.fields) for operation in operations)} };

/* A problem: its fields in the order of its structure, the alignment of A, B and C in bytes, and its launches. */
struct entry {
    int64_t fields[MOST_FIELDS];
    int alignment[3];
    void (*compute)(struct call *);
};

/* The problems of an operation, in ascending order of their fields. class_fields: the first ones, which problems of a
 * class have in common. */
struct operation {
    int fields, class_fields, count;
    const struct entry *entries;
};
% for operation in operations:

static const struct entry ${operation.form.name}_entries[] = {
    % for entry in entries[operation.form.name]:
    {{${", ".join(map(str, entry.fields))}}, {${", ".join(map(str, entry.alignment))}}, ${entry.compute}},
    % endfor
    {{0}, {0}, NULL},
};

static const struct operation ${operation.form.name}_operation = {${len(operation.fields)}, ${operation.class_fields}, ${len(entries[operation.form.name])}, ${operation.form.name}_entries};
% endfor

static int compared(const int64_t *a, const int64_t *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static int aligned(const ptxgen_operands *o, const int alignment[3])
{
    return address(o->a) % (uint64_t)alignment[0] == 0 && address(o->b) % (uint64_t)alignment[1] == 0 &&
           (address(o->c) | address(o->residual) | address(o->aux)) % (uint64_t)alignment[2] == 0;
}

/* The exported problem with these fields, whose alignments the operands have; NULL: there is none. */
static const struct entry *find(const struct operation *operation, const int64_t *fields, const ptxgen_operands *o)
{
    int first = 0, end = operation->count;
    while (first < end) {
        int middle = first + (end - first) / 2;
        if (compared(operation->entries[middle].fields, fields, operation->fields) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < operation->count; first++) {
        const struct entry *entry = &operation->entries[first];
        if (compared(entry->fields, fields, operation->fields))
            break;
        if (aligned(o, entry->alignment))
            return entry;
    }
    return NULL;
}

% if choices:
/* ---- the choice for shapes that were not exported: the exported kernel that the model expects to be fastest */

enum { CLASS_FIELDS = ${class_fields}, FEATURES = ${len(trees.names)}, TREES = ${len(trees.roots)}, CHOICES = ${len(choices)} };

/* A kernel for all shapes of a class: layout, types and epilogue, in the order of the problem's fields; a task has one
 * class. */
struct choice {
    const struct operation *operation;
    int64_t class_key[CLASS_FIELDS];
    void (*compute)(struct call *);
    int (*serves)(const struct shape *);
    float (*score)(const struct shape *, float *); /* sets features; the logarithm of the time that trees correct */
    int learnt;                                    /* whether trees correct it */
    float fixed[FEATURES + 1];                     /* the features that are the same for all shapes */
};
% for number, choice in enumerate(choices):

static int serves_${number}(const struct shape *s)
{
    % for line in choice.serves:
    ${line}
    % endfor
}

static float score_${number}(const struct shape *s, float *f)
{
    (void)s;
    (void)f;
    % for line in choice.score:
    ${line}
    % endfor
}
% endfor

static const struct choice choices[] = {
% for number, choice in enumerate(choices):
    {&${choice.operation}_operation, {${", ".join(map(str, choice.class_key or (0,)))}}, ${choice.compute}, serves_${number}, score_${number}, ${int(choice.learnt)},
     {${", ".join([*choice.fixed, "0"])}}},
% endfor
    {NULL, {0}, NULL, NULL, NULL, 0, {0}},
};

/* A node of a tree: a leaf, if left is 0. Features: ${", ".join(trees.names)} */
static const struct node {
    float value; /* the threshold, or the value of a leaf */
    uint32_t left, right;
    uint32_t feature;
} nodes[] = {
% for feature, value, left, right in trees.nodes:
    {${value.hex()}f, ${left}, ${right}, ${feature}},
% endfor
    {0, 0, 0, 0},
};

static const uint32_t roots[] = {${", ".join(map(str, [*trees.roots, 0]))}};

/* The sum of the trees. */
static float corrected(const float *features)
{
    float sum = ${float(trees.base).hex()}f;
    for (int i = 0; i < TREES; i++) {
        const struct node *node = &nodes[roots[i]];
        while (node->left)
            node = &nodes[features[node->feature] < node->value ? node->left : node->right];
        sum += node->value;
    }
    return sum;
}

/* The fastest kernel of the class of a problem for a shape; NULL: there is none. */
static const struct choice *choose(const struct operation *operation, const int64_t *fields, const struct shape *shape)
{
    const struct choice *best = NULL;
    float least = 0, features[FEATURES + 1];
    for (int i = 0; i < CHOICES; i++) {
        const struct choice *c = &choices[i];
        if (c->operation != operation || compared(c->class_key, fields, operation->class_fields) || !c->serves(shape))
            continue;
        memcpy(features, c->fixed, sizeof features);
        float score = c->score(shape, features);
        if (c->learnt)
            score += corrected(features);
        if (score == score && (!best || score < least)) {
            best = c;
            least = score;
        }
    }
    return best;
}

% endif
/* The alignment of addresses in bytes, at most 16. */
static int64_t alignment_of(uint64_t address)
{
    address |= 16;
    return (int64_t)(address & -address);
}

static ptxgen_status compute(const struct operation *operation, const int64_t *fields, struct call *x)
{
    const struct entry *entry = find(operation, fields, x->operands);
% if choices:
    const struct choice *choice = entry || !x->shape.m ? NULL : choose(operation, fields, &x->shape);
    if (!entry && !choice)
        return PTXGEN_NOT_EXPORTED;
    if (entry) { /* the launches of the exported alignments, also if the addresses have greater ones */
        x->shape.aligned_a = entry->alignment[0];
        x->shape.aligned_b = entry->alignment[1];
        x->shape.aligned_c = entry->alignment[2];
        entry->compute(x);
    } else {
        choice->compute(x);
    }
% else:
    if (!entry)
        return PTXGEN_NOT_EXPORTED;
    entry->compute(x);
% endif
    return x->status;
}

/* Whether all fields are numbers that products of two of them cannot overflow: below 2^31, strides below 2^40. */
static int in_range(const int64_t *fields, int count, int strides)
{
    for (int i = 0; i < count; i++)
        if (fields[i] < (i < count - strides ? 0 : -1) || fields[i] >= INT64_C(1) << (i < count - strides ? 31 : 40))
            return 0;
    return 1;
}

% for operation in operations:
<%include file="/${operation.form.template}" args="form=operation.form, arguments=operation.arguments"/>\
% endfor
/* ---- the functions of the header */
% for operation in operations:

static ptxgen_status serve_${operation.form.name}(const ptxgen_${operation.form.name}_problem *problem,
                                 const ${operation.operands} *operands, struct call *x)
{
    if (!x->library || !problem || !operands)
        return PTXGEN_INVALID_ARGUMENT;
    % if operation.arguments:
    x->operands = &x->common;
    x->status = bind_${operation.form.name}(operands, x);
    if (x->status)
        return x->status;
    % else:
    x->operands = operands;
    % endif
    ptxgen_${operation.form.name}_problem p = *problem;
    const int64_t given[] = {${", ".join(f"p.{f.name}" for f in operation.fields)}};
    if (!in_range(given, ${len(operation.fields)}, ${operation.form.strides}))
        return PTXGEN_INVALID_ARGUMENT;
    normalize_${operation.form.name}(&p);
    set_shape_${operation.form.name}(&p, x);
    const int64_t fields[] = {${", ".join(f"p.{f.name}" for f in operation.fields)}};
    return compute(&${operation.form.name}_operation, fields, x);
}

ptxgen_status ptxgen_${operation.form.name}(ptxgen_library *library, struct CUstream_st *stream,
                          const ptxgen_${operation.form.name}_problem *problem, const ${operation.operands} *operands)
{
    struct call x = {.library = library, .stream = stream};
    return serve_${operation.form.name}(problem, operands, &x);
}

ptxgen_status ptxgen_${operation.form.name}_workspace(ptxgen_library *library, const ptxgen_${operation.form.name}_problem *problem,
                                    const ${operation.operands} *operands, size_t *bytes)
{
    struct call x = {.library = library, .size = bytes};
    if (bytes)
        *bytes = 0;
    return bytes ? serve_${operation.form.name}(problem, operands, &x) : PTXGEN_INVALID_ARGUMENT;
}
% endfor
