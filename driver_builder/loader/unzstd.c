// Decompresses zstd from standard input to standard output: modules of nodes, for loader.sh. In the loader's image it is
// linked statically and stands at the end of loader.sh.
#include <stdlib.h>
#include <unistd.h>
#include <zstd.h>

static char given[1 << 17], made[1 << 17];

static int write_all(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t written = write(STDOUT_FILENO, bytes, count);
        if (written <= 0)
            return 0;
        bytes += written;
        count -= (size_t)written;
    }
    return 1;
}

int main(void)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    size_t missing = 1; // bytes of the frame that were not given yet
    ssize_t count;

    if (!stream)
        return EXIT_FAILURE;
    while ((count = read(STDIN_FILENO, given, sizeof given)) > 0) {
        ZSTD_inBuffer in = {given, (size_t)count, 0};
        ZSTD_outBuffer out;
        do {
            out = (ZSTD_outBuffer){made, sizeof made, 0};
            missing = ZSTD_decompressStream(stream, &out, &in);
            if (ZSTD_isError(missing) || !write_all(made, out.pos))
                return EXIT_FAILURE;
        } while (in.pos < in.size || (missing && out.pos == out.size));
    }
    return count == 0 && missing == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
