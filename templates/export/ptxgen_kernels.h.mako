/* Kernels of ptxgen ${version} for ${device.name}, ${target}. Made by: ${comment(command)}
 *
 * Compile ptxgen_kernels.c as C11 with -ffp-contract=off, so that the choice of kernels rounds as in ptxgen, and link with
 * -ldl -lm. It loads libcuda.so.1 and the files of the folder "kernels" at run time. It needs POSIX (dlopen) and no CUDA
 * headers: a stream is a CUstream or a cudaStream_t, and addresses are those of the GPU.
 *
 * Functions return PTXGEN_SUCCESS or an error. A call enqueues its kernels on the stream and returns. Any number of
 * threads may use one library at the same time; its CUDA context must be current in each of them, and streams must be of
 * that context. The documentation of ptxgen (docs/export.md) has the rules and examples.
 */
#ifndef PTXGEN_KERNELS_H
#define PTXGEN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of ptxgen that made the library: 10000 * major + 100 * minor + patch. */
#define PTXGEN_VERSION ${version_number}
#define PTXGEN_VERSION_MAJOR ${version_numbers[0]}
#define PTXGEN_VERSION_MINOR ${version_numbers[1]}
#define PTXGEN_VERSION_PATCH ${version_numbers[2]}

struct CUstream_st;

typedef enum ptxgen_status {
% for number, (name, meaning) in enumerate(statuses):
    ${name} = ${number}${"," if number + 1 < len(statuses) else ""} /* ${meaning} */
% endfor
} ptxgen_status;

/* Layouts, directions, types and arithmetic, as the command-line options of ptxgen name them. */
typedef enum ptxgen_word {
% for number, word in enumerate(words):
    ${enumerator(word)} = ${number}${"," if number + 1 < len(words) else ""}
% endfor
} ptxgen_word;

/* Operations of an epilogue; their sum is the field "epilogue". 0: none. */
enum {
% for name, bit in epilogue_bits.items():
    PTXGEN_EPILOGUE_${name.upper()} = ${bit}${"" if loop.last else ","}
% endfor
};

/* The arrays and numbers of a call, which all operations share. Addresses are those of the GPU, and may be NULL where the
 * problem has no such array. a, b: first and second operand, which are not read if alpha is 0; c: the result. indptr,
 * indices: row pointers and columns of a sparse a, whose elements are its nonzeros. workspace:
 * memory that the kernels use, of at least the size that the function ..._workspace returns, at a multiple of 256 bytes;
 * no other call may use it until the kernels end. workspace_is_zero: 1 if all its bytes are zero, as every call leaves
 * them where it needs that; else the call clears it first. */
typedef struct ptxgen_operands {
    const void *a;
    const void *b;
    void *c;
% for name in arrays:
    const void *${name};
% endfor
    double alpha;
    double beta;
    void *workspace;
    size_t workspace_bytes;
    int workspace_is_zero;
} ptxgen_operands;

/* The loaded kernels of one CUDA context. */
typedef struct ptxgen_library ptxgen_library;

/* Loads the kernels of the folder (the one with this header) into the current CUDA context. On an error *library is
 * NULL. */
ptxgen_status ptxgen_create(const char *folder, ptxgen_library **library);

/* Unloads the kernels, in the context of ptxgen_create, after their last launch has ended. NULL: does nothing. */
void ptxgen_destroy(ptxgen_library *library);

/* The meaning of a status. */
const char *ptxgen_status_text(ptxgen_status status);

/* The CUresult of the last PTXGEN_DRIVER_ERROR of the calling thread. */
int ptxgen_driver_result(void);
% for operation in operations:

/* ${operation.form.name}: ${operation.form.meaning}.
    % for line in map(comment, operation.notes):
 *
 * ${line}
    % endfor
 */
typedef struct ptxgen_${operation.form.name}_problem {
    % for f in operation.fields:
    ${f.c_type} ${f.name}; /* ${f.meaning} */
    % endfor
} ptxgen_${operation.form.name}_problem;
    % if operation.arguments:

/* Its arrays, whose addresses are those of the GPU, and numbers. */
typedef struct ptxgen_${operation.form.name}_operands {
    % for x in operation.arguments:
    ${x.declaration};${f" /* {comment(x.meaning)} */" if x.meaning else ""}
    % endfor
} ptxgen_${operation.form.name}_operands;
    % endif

/* Enqueues the kernels of the problem on the stream. */
ptxgen_status ptxgen_${operation.form.name}(ptxgen_library *library, struct CUstream_st *stream,
                          const ptxgen_${operation.form.name}_problem *problem, const ${operation.operands} *operands);

/* The bytes of workspace of that call. Of the operands, only the alignment of the arrays counts. */
ptxgen_status ptxgen_${operation.form.name}_workspace(ptxgen_library *library, const ptxgen_${operation.form.name}_problem *problem,
                                    const ${operation.operands} *operands, size_t *bytes);
% endfor

#ifdef __cplusplus
}
#endif

#endif
