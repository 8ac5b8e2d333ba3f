/* The processes of a GPU or a MIG device, and samples of how busy each of them keeps it. */
#include <string.h>
#include <time.h>

#include "fake_nvml.h"

typedef struct { unsigned int pid; unsigned long long memory; unsigned int gi, ci; } info_t;
typedef struct { unsigned int pid; unsigned long long time; unsigned int sm, memory, encoder, decoder; } sample_t;

_Static_assert(sizeof(info_t) == 24 && sizeof(sample_t) == 32, "as pynvml's");

/* ---------------------------------------------------------------- lists */

static unsigned int instance(int id)
{
    return id < 0 ? 0xFFFFFFFF : (unsigned int)id;
}

/* Puts in as many as there is room for; returns how many there are. A GPU in MIG mode has those of its MIG devices. */
static unsigned int collect(const device_t *device, int is_graphics, info_t *to, unsigned int room)
{
    const facts_t *facts = &device->facts;
    unsigned int count = 0;

    for (int i = 0; i < facts->process_count; i++) {
        const process_t *process = &facts->processes[i];
        if (process->is_graphics != is_graphics)
            continue;
        if (count < room)
            to[count] = (info_t){process->pid, process->memory, instance(facts->gi), instance(facts->ci)};
        count++;
    }
    for (int i = 0; i < device->migs.count; i++) {
        unsigned int taken = count < room ? count : room;
        count += collect(device->migs.at[i], is_graphics, to + taken, room - taken);
    }
    return count;
}

static int list(const device_t *device, int is_graphics, unsigned int *count, info_t *to)
{
    unsigned int room = to ? *count : 0;

    *count = collect(device, is_graphics, to, room);
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

API int nvmlDeviceGetComputeRunningProcesses_v2(device_t *device, unsigned int *count, info_t *to)
{
    QUESTION(device, "compute_list");
    return list(device, 0, count, to);
}

API int nvmlDeviceGetGraphicsRunningProcesses_v2(device_t *device, unsigned int *count, info_t *to)
{
    QUESTION(device, "graphics_list");
    return list(device, 1, count, to);
}

#ifndef OLD_DRIVER

API int nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned int *count, info_t *to)
{
    return nvmlDeviceGetComputeRunningProcesses_v2(device, count, to);
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *device, unsigned int *count, info_t *to)
{
    return nvmlDeviceGetGraphicsRunningProcesses_v2(device, count, to);
}

#endif

/* ---------------------------------------------------------------- samples */

static unsigned long long microseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

static unsigned int new_samples(const facts_t *facts, unsigned long long after, sample_t *to, unsigned int room)
{
    unsigned long long now = microseconds();
    unsigned int count = 0;

    for (int i = 0; i < facts->sample_count; i++) {
        const busy_t *sample = &facts->samples[i];
        unsigned long long time = sample->time ? sample->time : now;
        if (time <= after)
            continue;
        if (count < room)
            to[count] = (sample_t){sample->pid, time, sample->percent, 0, 0, 0};
        count++;
    }
    return count;
}

API int nvmlDeviceGetProcessUtilization(device_t *device, sample_t *to, unsigned int *count, unsigned long long after)
{
    QUESTION(device, "samples");
    const facts_t *facts = &device->facts;
    if (facts->no_samples < 0 || facts->mig_mode == 1)
        return NOT_SUPPORTED;
    unsigned int room = to ? *count : 0;
    *count = new_samples(facts, after, to, room);
    if (!*count)
        return facts->no_samples;
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
