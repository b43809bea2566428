/* A process in state D that handles TERM: the kernel tells it nothing before its child, which waits for ever, has ended. */
#define _DEFAULT_SOURCE
#include <signal.h>
#include <unistd.h>

static void nothing(int number) { (void)number; }

int main(void) {
    signal(SIGTERM, nothing);
    if (vfork() == 0) {
        for (;;)
            pause();
    }
    return 0;
}
