"""Content checks of binaries: ELF, glibc and libstdc++ symbols, search paths, GPU code."""
