/* A population for the bench: sleeping processes, and trainers with threads and loaders.
 *
 *   population SLEEPERS TRAINERS THREADS LOADERS
 *
 * Prints the trainers' pids, one a line, then "ready"; everybody ends when standard input is closed.
 * A trainer and its loaders work half a millisecond a second, and its other threads a twentieth of one, so that their
 * numbers change as a real job's do: a monitor that reads threads has all of them to read.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *sleeper(void *unused) {
    for (;;) pause();
    return unused;
}

static void work_ns(long each_second) {
    for (;;) {
        struct timespec start, now, rest = {1, 0};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
        do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < each_second);
        nanosleep(&rest, NULL);
    }
}

static void work(void) { work_ns(500000); }

static void *stir(void *unused) {
    work_ns(50000);
    return unused;
}

static pid_t born(const char *name) {
    pid_t parent = getpid(), child = fork();
    if (child < 0) { perror("fork"); exit(1); }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody outlives the bench */
        prctl(PR_SET_NAME, name);
        if (getppid() != parent) _exit(0);
    }
    return child;
}

static void train(int threads, int loaders) {
    for (int i = 0; i < loaders; i++)
        if (born("pt_data_worker") == 0) work();
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    for (int i = 1; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &small, stir, NULL)) { perror("pthread_create"); exit(1); }
    }
    work();
}

int main(int argc, char **argv) {
    if (argc != 5) { fprintf(stderr, "usage: population SLEEPERS TRAINERS THREADS LOADERS\n"); return 64; }
    int sleepers = atoi(argv[1]), trainers = atoi(argv[2]), threads = atoi(argv[3]), loaders = atoi(argv[4]);
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* loaders whose trainer has ended are reaped here too */
    for (int i = 0; i < trainers; i++) {
        pid_t child = born("python");
        if (child == 0) train(threads, loaders);
        printf("%d\n", child);
    }
    for (int i = 0; i < sleepers; i++)
        if (born("sleeper") == 0) sleeper(NULL);
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    while (wait(NULL) > 0) {} /* the next population is not measured beside what is left of this one */
    return 0;
}
