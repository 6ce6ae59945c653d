# Builds the exported kernels as a library, and an example that runs them. Installed, the library is a CMake package:
# find_package(ptxgen_kernels), and target_link_libraries(program PRIVATE ptxgen_kernels::ptxgen_kernels). Programs that
# link it have PTXGEN_FOLDER, the argument of ptxgen_create.
<%text>cmake_minimum_required(VERSION 3.16)
project(ptxgen_kernels LANGUAGES C)

add_library(ptxgen_kernels STATIC ptxgen_kernels.c)
target_include_directories(ptxgen_kernels PUBLIC
  $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}> $<INSTALL_INTERFACE:share/ptxgen_kernels>)
target_compile_definitions(ptxgen_kernels INTERFACE
  $<BUILD_INTERFACE:PTXGEN_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}">
  $<INSTALL_INTERFACE:PTXGEN_FOLDER="$<INSTALL_PREFIX>/share/ptxgen_kernels">)
target_compile_features(ptxgen_kernels PUBLIC c_std_11)
target_compile_options(ptxgen_kernels PRIVATE -ffp-contract=off) # the choice of kernels rounds as in ptxgen
target_link_libraries(ptxgen_kernels PUBLIC ${CMAKE_DL_LIBS} m)

add_executable(example example.c)
target_link_libraries(example PRIVATE ptxgen_kernels)

install(TARGETS ptxgen_kernels EXPORT ptxgen_kernels DESTINATION lib)
install(FILES ptxgen_kernels.h DESTINATION share/ptxgen_kernels)
install(DIRECTORY kernels DESTINATION share/ptxgen_kernels)
install(EXPORT ptxgen_kernels NAMESPACE ptxgen_kernels:: FILE ptxgen_kernelsConfig.cmake
  DESTINATION lib/cmake/ptxgen_kernels)
</%text>
