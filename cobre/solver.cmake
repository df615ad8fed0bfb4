# Sixteen files of the solver's C++ at a time: its headers take the compiler half of its time otherwise.
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
