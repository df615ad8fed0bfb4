# Sixteen files of the solver's C++ at a time: its headers take the compiler half of its time otherwise.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

# Optimised as its crate is: cargo sets this for build scripts.
if(DEFINED ENV{OPT_LEVEL})
    set(CMAKE_CXX_FLAGS_RELEASE "-O$ENV{OPT_LEVEL} -DNDEBUG" CACHE STRING "")
endif()
