/* Event sets: Xid errors that appear in the file while a GPU is registered. */
#include <stdlib.h>
#include <time.h>

#include "fake_nvml.h"

#ifdef OLD_DRIVER

void forget_event_sets(void)
{
}

#else

enum { XID_CRITICAL_ERROR = 8, POLL_MICROSECONDS = 30000 };

typedef struct { device_t *device; unsigned int registration; unsigned long long seen; } watched_t;

typedef struct event_set {
    watched_t watched[MAX_GPUS];
    int count;
    struct event_set *next;
} event_set_t;

typedef struct {
    device_t *device;
    unsigned long long type, data;
    unsigned int gi, ci;
} event_data_t;

_Static_assert(sizeof(event_data_t) == 32, "as pynvml's");

static event_set_t *sets;

static event_set_t **place_of(const event_set_t *set)
{
    event_set_t **at = &sets;

    while (*at && *at != set)
        at = &(*at)->next;
    return *at ? at : NULL;
}

static void forget(event_set_t **at)
{
    event_set_t *set = *at;

    *at = set->next;
    free(set);
}

void forget_event_sets(void)
{
    while (sets)
        forget(&sets);
}

API int nvmlEventSetCreate(event_set_t **set)
{
    MACHINE_QUESTION("eventset");
    *set = calloc(1, sizeof **set);
    if (!*set)
        return UNKNOWN;
    (*set)->next = sets;
    sets = *set;
    return SUCCESS;
}

API int nvmlEventSetFree(event_set_t *set)
{
    GUARD;
    event_set_t **at = place_of(set);
    if (!at)
        return INVALID_ARGUMENT;
    forget(at);
    return SUCCESS;
}

API int nvmlDeviceGetSupportedEventTypes(device_t *device, unsigned long long *types)
{
    QUESTION(device, "events");
    *types = device->facts.events < 0 ? 0 : (unsigned long long)device->facts.events;
    return device->facts.events < 0 ? NOT_SUPPORTED : SUCCESS;
}

static unsigned long long newest(const device_t *device)
{
    unsigned long long found = 0;

    for (int i = 0; i < device->facts.xid_count; i++)
        if (device->facts.xids[i].sequence > found)
            found = device->facts.xids[i].sequence;
    return found;
}

API int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, event_set_t *set)
{
    int at = 0;

    QUESTION(device, "register");
    if (!place_of(set) || device->parent)
        return INVALID_ARGUMENT;
    if (device->facts.events < 0 || types & ~(unsigned long long)device->facts.events)
        return NOT_SUPPORTED;
    while (at < set->count && set->watched[at].device != device)
        at++;
    if (at == MAX_GPUS)
        return UNKNOWN;
    if (at == set->count || set->watched[at].registration != device->registration)
        set->watched[at] = (watched_t){device, device->registration, newest(device)};
    set->count += at == set->count;
    return SUCCESS;
}

static const xid_t *next_of(const watched_t *watched)
{
    const facts_t *facts = &watched->device->facts;
    const xid_t *found = NULL;

    for (int i = 0; i < facts->xid_count; i++)
        if (facts->xids[i].sequence > watched->seen && (!found || facts->xids[i].sequence < found->sequence))
            found = &facts->xids[i];
    int is_forgotten = watched->registration != watched->device->registration;
    return found && is_forgotten && found->sequence > watched->device->forgotten_after ? NULL : found;
}

static int deliver(event_set_t *set, event_data_t *data)
{
    watched_t *first = NULL;
    const xid_t *xid = NULL;

    for (int i = 0; i < set->count; i++) {
        const xid_t *one = next_of(&set->watched[i]);
        if (one && (!xid || one->sequence < xid->sequence)) {
            first = &set->watched[i];
            xid = one;
        }
    }
    if (!xid)
        return 0;
    *data = (event_data_t){first->device, XID_CRITICAL_ERROR, xid->number, xid->gi, xid->ci};
    first->seen = xid->sequence;
    return 1;
}

static int failing_in(const event_set_t *set)
{
    for (int i = 0; i < set->count; i++) {
        int code = failing(set->watched[i].device, "wait");
        if (code)
            return code;
    }
    return SUCCESS;
}

static long long milliseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

API int nvmlEventSetWait_v2(event_set_t *set, event_data_t *data, unsigned int timeout)
{
    long long end = milliseconds() + timeout;

    GUARD;
    while (place_of(set)) {
        if ((code = machine_fault("wait")))
            return code;
        if (deliver(set, data))
            return SUCCESS;
        if ((code = failing_in(set)))
            return code;
        if (milliseconds() >= end)
            return TIMEOUT;
        sleep_outside(POLL_MICROSECONDS);
    }
    return INVALID_ARGUMENT;
}

#endif
