/* Prints for how many microseconds a store had no usable name: from the instant at which LEGACY was no regular file any
   more to the one at which GROUP was one. It asks with stat(2), which disturbs no lease. usage: absence LEGACY GROUP */
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static int is_file(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 && S_ISREG(status.st_mode);
}

int main(int count, char **words) {
    if (count != 3) return 64;
    puts("ready");
    fflush(stdout);
    double last = now();
    while (is_file(words[1])) last = now();
    while (!is_file(words[2])) {}
    printf("%.0f\n", now() - last);
    return 0;
}
