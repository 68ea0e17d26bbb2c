// The library runs with every glibc that PyTorch itself runs with. libstdc++ of GCC 11 and later reads one byte that
// glibc has only since 2.32: whether the process has a single thread, so that reference counts need no atomics. Here
// it is our own, and says no. In a static program it is glibc's.
#if defined(__PIC__) && !defined(__PIE__)
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
#endif
