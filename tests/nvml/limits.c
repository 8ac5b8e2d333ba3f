/*
 * Limits of a cgroup's memory on a GPU, for all processes that have loaded the library: each one that is set is a line
 * "UUID SOFT HARD FOLDER" of the file beside the machine's with .limits added; the last one of a folder counts.
 */
#include <string.h>

#include "fake_nvml.h"

#ifndef OLD_DRIVER

typedef struct { const char *folder; unsigned long long soft, hard; } set_t;
typedef struct { const char *folder; unsigned long long soft, hard, used; } get_t;

_Static_assert(sizeof(set_t) == 24 && sizeof(get_t) == 32, "as pynvml's");

enum { LONGEST_LINE = 4400 };

static FILE *limits_file(const char *mode)
{
    char path[4200];

    snprintf(path, sizeof path, "%s.limits", machine_path());
    return fopen(path, mode);
}

static int can_be_limited(const device_t *device)
{
    return !device->parent && device->facts.limits == 1 && device->facts.mig_mode != 1;
}

API int nvmlDeviceSetMemoryLimits_v1(device_t *device, const set_t *limits)
{
    QUESTION(device, "setlimits");
    if (!can_be_limited(device))
        return NOT_SUPPORTED;
    FILE *file = limits_file("a");
    if (!file)
        return UNKNOWN;
    fprintf(file, "%s %llu %llu %s\n", device->facts.uuid, limits->soft, limits->hard, limits->folder);
    fclose(file);
    return SUCCESS;
}

static int is_limit(const device_t *device, char *line, get_t *limits)
{
    unsigned long long soft, hard;
    char uuid[TEXT];
    int read = 0;

    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%95s %llu %llu %n", uuid, &soft, &hard, &read) < 3 || strcmp(uuid, device->facts.uuid) ||
        strcmp(line + read, limits->folder))
        return 0;
    limits->soft = soft;
    limits->hard = hard;
    return 1;
}

API int nvmlDeviceGetMemoryLimits_v1(device_t *device, get_t *limits)
{
    char line[LONGEST_LINE];
    int is_known = 0;

    QUESTION(device, "getlimits");
    if (!can_be_limited(device))
        return NOT_SUPPORTED;
    FILE *file = limits_file("r");
    while (file && fgets(line, sizeof line, file))
        is_known |= is_limit(device, line, limits);
    if (file)
        fclose(file);
    limits->used = 0;
    return is_known ? SUCCESS : NOT_FOUND;
}

#endif
