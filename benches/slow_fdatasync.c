/* A disk whose flushes take longer, as cloud volumes' do: preloaded into a program, it lets every fdatasync (by which
 * PostgreSQL on Linux makes a commit durable) last SLOW_FDATASYNC_US microseconds more, and every fsync (by which SQLite
 * does) SLOW_FSYNC_US. The flush itself is done first and its result is what the program gets.
 *
 *   gcc -O2 -shared -fPIC -o slow_fdatasync.so benches/slow_fdatasync.c -ldl
 *   SLOW_FDATASYNC_US=2000 LD_PRELOAD=$PWD/slow_fdatasync.so postgres -D ...
 *
 * The delay is slept, not spun: a volume at the other end of a network leaves the processor to others.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static int flushed(const char *name, const char *variable, int fd) {
    int (*flush)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = flush(fd);
    int error = errno;
    const char *micros = getenv(variable);
    long wait = micros ? atol(micros) : 0;
    if (wait > 0) {
        struct timespec left = {wait / 1000000, wait % 1000000 * 1000};
        while (nanosleep(&left, &left) == -1 && errno == EINTR) {
        }
    }
    errno = error;
    return result;
}

int fdatasync(int fd) { return flushed("fdatasync", "SLOW_FDATASYNC_US", fd); }

int fsync(int fd) { return flushed("fsync", "SLOW_FSYNC_US", fd); }
