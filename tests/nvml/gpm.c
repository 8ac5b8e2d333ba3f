/* GPM: how busy parts of a GPU, or of a GPU instance, were between two samples: here, what the file says now. */
#include <stdlib.h>
#include <time.h>

#include "fake_nvml.h"

#ifndef OLD_DRIVER

enum { VERSION = 1 };

typedef struct { const device_t *device; long long time; } sample_t;
typedef struct { unsigned int id; int answer; double value; const char *names[3]; } metric_t;
typedef struct { unsigned int version, count; sample_t *one, *other; metric_t metrics[]; } metrics_t;
typedef struct { unsigned int version, is_supported; } support_t;

_Static_assert(sizeof(metric_t) == 40 && sizeof(metrics_t) == 24, "as pynvml's");

/* nvmlGpmMetricId_t of each of GPM_NAMES in parse.c. */
static const unsigned int IDS[GPM_METRICS] = {1, 2, 5, 10};

API int nvmlGpmQueryDeviceSupport(device_t *device, support_t *support)
{
    QUESTION(device, "gpm");
    if (support->version != VERSION)
        return VERSION_MISMATCH;
    support->is_supported = device->facts.gpm == 1;
    return SUCCESS;
}

API int nvmlGpmSampleAlloc(sample_t **sample)
{
    MACHINE_QUESTION("gpmalloc");
    note("gpm alloc");
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : UNKNOWN;
}

API int nvmlGpmSampleFree(sample_t *sample)
{
    GUARD;
    note("gpm free");
    free(sample);
    return SUCCESS;
}

static int take(const device_t *device, sample_t *sample)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    *sample = (sample_t){device, now.tv_sec * 1000LL + now.tv_nsec / 1000000};
    return SUCCESS;
}

API int nvmlGpmSampleGet(device_t *device, sample_t *sample)
{
    QUESTION(device, "gpmsample");
    if (device->facts.gpm != 1 || device->facts.mig_mode == 1)
        return NOT_SUPPORTED;
    return take(device, sample);
}

API int nvmlGpmMigSampleGet(device_t *device, unsigned int gi, sample_t *sample)
{
    QUESTION(device, "gpmsample");
    if (device->facts.gpm != 1)
        return NOT_SUPPORTED;
    for (int i = 0; i < device->migs.count; i++)
        if (device->migs.at[i]->facts.gi == (int)gi)
            return take(device->migs.at[i], sample);
    return INVALID_ARGUMENT;
}

static void fill_metric(const device_t *device, metric_t *metric)
{
    metric->answer = NOT_SUPPORTED;
    for (int i = 0; i < GPM_METRICS; i++)
        if (IDS[i] == metric->id && device->facts.shares[i].is_said) {
            metric->answer = SUCCESS;
            metric->value = 100 * device->facts.shares[i].share;
        }
}

/* Refuses two samples that are less than 100 ms apart, as the reference asks for. */
API int nvmlGpmMetricsGet(metrics_t *metrics)
{
    MACHINE_QUESTION("gpmmetrics");
    if (metrics->version != VERSION)
        return VERSION_MISMATCH;
    if (metrics->one->device != metrics->other->device || metrics->other->time - metrics->one->time < 100) {
        note("gpm refused");
        return INVALID_ARGUMENT;
    }
    for (unsigned int i = 0; i < metrics->count; i++)
        fill_metric(metrics->one->device, &metrics->metrics[i]);
    return SUCCESS;
}

#endif
