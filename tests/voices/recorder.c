/* Preloaded into a program: writes down, in order, what it does to files under $RECORD_ROOT, to $RECORD_LOG.
 *
 * A record is one letter, the lengths of a path and of data (32 bits each), a number (64 bits), the path and the data:
 *   C path        made, or emptied          W path offset data   written
 *   T path size   cut to a size             S path               synced (a file or a folder)
 *   R path data   renamed to data           U path               removed
 *   M path        folder made
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int log_file = -2;

static int ours(const char *path) {
    const char *root = getenv("RECORD_ROOT");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static void put(char what, const char *path, int64_t number, const void *data, uint32_t size) {
    if (log_file == -2) log_file = REAL(open)(getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    uint32_t length = strlen(path);
    char *all = malloc(17 + length + size);
    all[0] = what;
    memcpy(all + 1, &length, 4);
    memcpy(all + 5, &size, 4);
    memcpy(all + 9, &number, 8);
    memcpy(all + 17, path, length);
    if (size) memcpy(all + 17 + length, data, size);
    if (REAL(write)(log_file, all, 17 + length + size) < 0) abort();
    free(all);
}

static const char *named(int file) {
    static __thread char path[4096];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return NULL;
    path[size] = 0;
    return ours(path) ? path : NULL;
}

static int opened(const char *path, int flags, int mode) {
    struct stat before;
    int is_new = ours(path) && (flags & O_CREAT) && stat(path, &before) != 0;
    int file = REAL(open)(path, flags, mode);
    if (file >= 0 && ours(path) && (is_new || (flags & O_TRUNC))) put('C', path, 0, NULL, 0);
    return file;
}

int open(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
    return opened(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
    return opened(path, flags, mode);
}
ssize_t write(int file, const void *data, size_t size) {
    const char *path = named(file);
    off_t at = path ? lseek(file, 0, SEEK_CUR) : 0;
    ssize_t done = REAL(write)(file, data, size);
    if (path && done > 0) put('W', path, at, data, done);
    return done;
}
ssize_t pwrite(int file, const void *data, size_t size, off_t at) {
    ssize_t done = REAL(pwrite)(file, data, size, at);
    const char *path = named(file);
    if (path && done > 0) put('W', path, at, data, done);
    return done;
}
ssize_t pwrite64(int file, const void *data, size_t size, off64_t at) { return pwrite(file, data, size, at); }
int ftruncate(int file, off_t size) {
    const char *path = named(file);
    int done = REAL(ftruncate)(file, size);
    if (path && !done) put('T', path, size, NULL, 0);
    return done;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }
int fsync(int file) {
    const char *path = named(file);
    int done = REAL(fsync)(file);
    if (path && !done) put('S', path, 0, NULL, 0);
    return done;
}
int fdatasync(int file) { return fsync(file); }
int rename(const char *from, const char *to) {
    int done = REAL(rename)(from, to);
    if (!done && ours(from)) put('R', from, 0, to, strlen(to));
    return done;
}
int unlink(const char *path) {
    int done = REAL(unlink)(path);
    if (!done && ours(path)) put('U', path, 0, NULL, 0);
    return done;
}
int mkdir(const char *path, mode_t mode) {
    int done = REAL(mkdir)(path, mode);
    if (!done && ours(path)) put('M', path, 0, NULL, 0);
    return done;
}
