/* Processes that are born and end: births PER_SECOND SECONDS; prints how many there were. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 3) { fprintf(stderr, "usage: births PER_SECOND SECONDS\n"); return 64; }
    double per_second = atof(argv[1]), start = now(), end = start + atof(argv[2]);
    long born = 0;
    while (now() < end) {
        while (born < (now() - start) * per_second) {
            pid_t child = fork();
            if (child == 0) {
                struct timespec life = {0, (born * 7919 % 20) * 1000000}; /* 0 to 19 ms */
                char name[16];
                snprintf(name, sizeof name, "brief-%ld", born);
                prctl(PR_SET_NAME, name);
                nanosleep(&life, NULL);
                _exit(0);
            }
            born += child > 0;
            while (waitpid(-1, NULL, WNOHANG) > 0);
        }
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
        while (waitpid(-1, NULL, WNOHANG) > 0);
    }
    while (wait(NULL) > 0);
    printf("%ld\n", born);
    return 0;
}
