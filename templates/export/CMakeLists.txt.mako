# Builds the exported kernels as a library, and an example that runs them.
cmake_minimum_required(VERSION 3.16)
project(ptxgen_kernels LANGUAGES C)

add_library(ptxgen_kernels STATIC ptxgen_kernels.c)
target_include_directories(ptxgen_kernels PUBLIC <%text>${CMAKE_CURRENT_SOURCE_DIR}</%text>)
target_compile_features(ptxgen_kernels PUBLIC c_std_11)
target_compile_options(ptxgen_kernels PRIVATE -ffp-contract=off) # the choice of kernels rounds as in ptxgen
target_link_libraries(ptxgen_kernels PUBLIC <%text>${CMAKE_DL_LIBS}</%text> m)

add_executable(example example.c)
target_link_libraries(example PRIVATE ptxgen_kernels)
