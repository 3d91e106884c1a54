/* Swaps pairs of names and swaps them back, again and again, until it is killed: swapper UID FROM TO [FROM TO]...
 * Most of the time each name stands for what it did at first. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void swap(char **pair) {
    (void)!renameat2(AT_FDCWD, pair[0], AT_FDCWD, pair[1], RENAME_EXCHANGE);
}

int main(int count, char **words) {
    if (count < 4 || count % 2 != 0) return 64;
    int user = atoi(words[1]);
    if (user != (int)geteuid() && (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)) return 77;
    int pairs = (count - 2) / 2;
    srand((unsigned)getpid());
    while (1) {
        char **pair = words + 2 + rand() % pairs * 2;
        swap(pair);
        for (volatile int i = rand() % 20000; i > 0; i--) {}
        swap(pair);
        for (volatile int i = rand() % 40000; i > 0; i--) {}
    }
}
