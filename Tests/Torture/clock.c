// A library to preload: the clock of the day is an hour ahead of the kernel's. A wait until a time by that clock, as after
// it was set back by an hour, ends an hour too late.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*original)(clockid_t, struct timespec *);
    if (!original) original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = original(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 3600;
    return result;
}
