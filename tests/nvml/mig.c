/* MIG as programs change it: the mode of a GPU with profiles, GPU instances with their places, compute instances. */
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

typedef struct { unsigned int start, size; } placement_t;
typedef struct {
    unsigned int version, id, p2p, slices, instances, multiprocessors, engines[ENGINES];
    unsigned long long memory_mib;
    char name[96];
} info_v2_t;
typedef struct { unsigned int id, slices, instances, multiprocessors, engines[ENGINES]; } ci_profile_t;

typedef struct gpu_instance { device_t *device; unsigned int id; struct gpu_instance *next; } gpu_instance_t;
typedef struct compute_instance {
    gpu_instance_t *gi;
    unsigned int id;
    struct compute_instance *next;
} compute_instance_t;
typedef struct { device_t *device; unsigned int id, profile; placement_t placement; } gi_info_t;
typedef struct { device_t *device; gpu_instance_t *gi; unsigned int id, profile; placement_t placement; } ci_info_t;

_Static_assert(sizeof(info_v2_t) == 152 && sizeof(gi_info_t) == 24 && sizeof(ci_info_t) == 32, "as pynvml's");
_Static_assert(sizeof(ci_profile_t) == 36, "as pynvml's");

enum { INFO_V2 = 0x02000098, NVML_PROFILES = 18 };

/* Compute slices of NVML's profiles of compute instances, whose indexes are their ids as well. */
static const unsigned int CI_SLICES[] = {1, 2, 3, 4, 7};
enum { CI_PROFILES = sizeof CI_SLICES / sizeof *CI_SLICES };

/* Handles are never freed. */
static gpu_instance_t *gpu_instances;
static compute_instance_t *compute_instances;

/* ---------------------------------------------------------------- handles */

static const gi_t *gi_of(const device_t *device, unsigned int id)
{
    for (int i = 0; i < device->facts.gi_count; i++)
        if (device->facts.gis[i].id == id)
            return &device->facts.gis[i];
    return NULL;
}

static const facts_t *ci_of(const device_t *device, unsigned int gi, unsigned int ci)
{
    for (int i = 0; i < device->migs.count; i++)
        if (device->migs.at[i]->facts.gi == (int)gi && device->migs.at[i]->facts.ci == (int)ci)
            return &device->migs.at[i]->facts;
    return NULL;
}

static gpu_instance_t *gi_handle(device_t *device, unsigned int id)
{
    gpu_instance_t *one = gpu_instances;

    while (one && (one->device != device || one->id != id))
        one = one->next;
    if (!one && (one = calloc(1, sizeof *one))) {
        *one = (gpu_instance_t){device, id, gpu_instances};
        gpu_instances = one;
    }
    return one;
}

static compute_instance_t *ci_handle(gpu_instance_t *gi, unsigned int id)
{
    compute_instance_t *one = compute_instances;

    while (one && (one->gi != gi || one->id != id))
        one = one->next;
    if (!one && (one = calloc(1, sizeof *one))) {
        *one = (compute_instance_t){gi, id, compute_instances};
        compute_instances = one;
    }
    return one;
}

static int failing_gi(const gpu_instance_t *gi, const char *where)
{
    const gpu_instance_t *one = gpu_instances;

    while (one && one != gi)
        one = one->next;
    int code = one ? failing(gi->device, where) : INVALID_ARGUMENT;
    return code ? code : gi_of(gi->device, gi->id) ? SUCCESS : INVALID_ARGUMENT;
}

static int failing_ci(const compute_instance_t *ci, const char *where)
{
    const compute_instance_t *one = compute_instances;

    while (one && one != ci)
        one = one->next;
    int code = one ? failing_gi(ci->gi, where) : INVALID_ARGUMENT;
    return code ? code : ci_of(ci->gi->device, ci->gi->id, ci->id) ? SUCCESS : INVALID_ARGUMENT;
}

#define GI_QUESTION(gi, where) GUARD; if ((code = failing_gi(gi, where))) return code
#define CI_QUESTION(ci, where) GUARD; if ((code = failing_ci(ci, where))) return code

static int is_in_mig_mode(const device_t *device)
{
    return !device->parent && device->facts.profile_count && device->facts.mig_mode == 1;
}

/* ---------------------------------------------------------------- ends of changes */

static int refused(int code)
{
    abandon_change();
    return code;
}

static int changed(const device_t *device, const char *where, const char *line)
{
    int code = end_change(line);

    return code ? code : failing(device, where);
}

/* ---------------------------------------------------------------- the mode */

static int switched(facts_t *gpu, unsigned int mode)
{
    gpu->mig_pending = (int)mode;
    if (gpu->activation)
        return gpu->activation;
    if (gpu->mig_mode == (int)mode)
        return SUCCESS;
    if (gpu->process_count)
        return IN_USE;
    if (gpu->reset_required)
        return RESET_REQUIRED;
    gpu->mig_mode = (int)mode;
    return SUCCESS;
}

/* A switch that the GPU's users stop stays pending, as that which wants a reset does. */
API int nvmlDeviceSetMigMode(device_t *device, unsigned int mode, unsigned int *activation)
{
    char line[TEXT + 32];

    QUESTION(device, "setmig");
    if (device->parent || !device->facts.profile_count)
        return NOT_SUPPORTED;
    if (mode > 1)
        return INVALID_ARGUMENT;
    if ((code = begin_change()))
        return code;
    if (mode != (unsigned int)device->facts.mig_mode && device->facts.gi_count)
        return refused(IN_USE);
    *activation = (unsigned int)switched(&device->facts, mode);
    snprintf(line, sizeof line, "mode %s %u %u", device->facts.uuid, mode, *activation);
    return changed(device, "setmig+", line);
}

/* ---------------------------------------------------------------- profiles */

static const profile_t *profile_at(const device_t *device, unsigned int index)
{
    for (int i = 0; !device->parent && i < device->facts.profile_count; i++)
        if (device->facts.profiles[i].index == index)
            return &device->facts.profiles[i];
    return NULL;
}

API int nvmlDeviceGetGpuInstanceProfileInfoV(device_t *device, unsigned int index, info_v2_t *info)
{
    QUESTION(device, "giprofile");
    const profile_t *one = profile_at(device, index);
    if (index >= NVML_PROFILES)
        return INVALID_ARGUMENT;
    if (!one)
        return NOT_SUPPORTED;
    if (info->version != INFO_V2)
        return VERSION_MISMATCH;
    *info = (info_v2_t){INFO_V2, one->id, 0, one->slices, one->instances, one->multiprocessors, {0}, one->memory_mib, ""};
    memcpy(info->engines, one->engines, sizeof info->engines);
    if (strcmp(one->name, "-"))
        snprintf(info->name, sizeof info->name, "MIG %s", one->name);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstancePossiblePlacements_v2(device_t *device, unsigned int id, placement_t *to,
                                                      unsigned int *count)
{
    QUESTION(device, "placements");
    if (!is_in_mig_mode(device))
        return NOT_SUPPORTED;
    const profile_t *one = profile_of(&device->facts, id);
    if (!one)
        return INVALID_ARGUMENT;
    for (int i = 0; to && i < one->start_count; i++)
        to[i] = (placement_t){one->starts[i], one->size};
    *count = (unsigned int)one->start_count;
    return SUCCESS;
}

/* ---------------------------------------------------------------- GPU instances */

API int nvmlDeviceGetGpuInstances(device_t *device, unsigned int id, gpu_instance_t **to, unsigned int *count)
{
    QUESTION(device, "gis");
    if (!is_in_mig_mode(device))
        return NOT_SUPPORTED;
    if (!profile_of(&device->facts, id))
        return INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < device->facts.gi_count; i++)
        if (device->facts.gis[i].profile == id)
            to[(*count)++] = gi_handle(device, device->facts.gis[i].id);
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceById(device_t *device, unsigned int id, gpu_instance_t **gi)
{
    QUESTION(device, "gis");
    if (!is_in_mig_mode(device))
        return NOT_SUPPORTED;
    *gi = gi_of(device, id) ? gi_handle(device, id) : NULL;
    return *gi ? SUCCESS : NOT_FOUND;
}

API int nvmlGpuInstanceGetInfo(gpu_instance_t *gi, gi_info_t *info)
{
    GI_QUESTION(gi, "giinfo");
    const gi_t *one = gi_of(gi->device, gi->id);
    const profile_t *profile = profile_of(&gi->device->facts, one->profile);
    *info = (gi_info_t){gi->device, one->id, one->profile, {one->start, profile ? profile->size : 0}};
    return SUCCESS;
}

static int overlaps(unsigned int one, unsigned int one_size, unsigned int other, unsigned int other_size)
{
    return one < other + other_size && other < one + one_size;
}

static int is_possible(const profile_t *profile, const placement_t *at)
{
    for (int i = 0; i < profile->start_count; i++)
        if (profile->starts[i] == at->start && profile->size == at->size)
            return 1;
    return 0;
}

/* Slices of memory, slices of compute, the number of its kind, and the one set of media extensions. */
static int has_room(const facts_t *gpu, const profile_t *wanted, const placement_t *at)
{
    unsigned int same = 0, compute = wanted->slices, most = 0, media = 0;

    for (int i = 0; i < gpu->profile_count; i++)
        most = gpu->profiles[i].slices > most ? gpu->profiles[i].slices : most;
    for (int i = 0; i < gpu->gi_count; i++) {
        const profile_t *one = profile_of(gpu, gpu->gis[i].profile);
        if (!one || overlaps(gpu->gis[i].start, one->size, at->start, at->size))
            return 0;
        same += one == wanted;
        compute += one->slices;
        media += strstr(one->name, "+me") != NULL;
    }
    return same < wanted->instances && compute <= most && !(media && strstr(wanted->name, "+me"));
}

/* As in the driver, an id says where the instance is: 0 is all of the GPU, 1 and 2 its halves, and so on. */
static gi_t made(const facts_t *gpu, const profile_t *profile, unsigned int start)
{
    unsigned int all = 0;

    for (int i = 0; i < gpu->profile_count; i++)
        all = gpu->profiles[i].size > all ? gpu->profiles[i].size : all;
    return (gi_t){all / profile->size - 1 + start / profile->size, profile->id, start};
}

API int nvmlDeviceCreateGpuInstanceWithPlacement(device_t *device, unsigned int id, const placement_t *at,
                                                 gpu_instance_t **gi)
{
    char line[TEXT + 64];

    QUESTION(device, "creategi");
    if (!is_in_mig_mode(device))
        return NOT_SUPPORTED;
    if ((code = begin_change()))
        return code;
    facts_t *gpu = &device->facts;
    const profile_t *profile = profile_of(gpu, id);
    if (!profile || !is_possible(profile, at))
        return refused(INVALID_ARGUMENT);
    if (!has_room(gpu, profile, at))
        return refused(INSUFFICIENT_RESOURCES);
    gi_t one = gpu->gis[gpu->gi_count++] = made(gpu, profile, at->start);
    *gi = gi_handle(device, one.id);
    snprintf(line, sizeof line, "create gi %s %u %s %u", gpu->uuid, one.id, profile->name, at->start);
    return changed(device, "creategi+", line);
}

API int nvmlGpuInstanceDestroy(gpu_instance_t *gi)
{
    char line[TEXT + 64];

    GI_QUESTION(gi, "destroygi");
    if ((code = begin_change()))
        return code;
    facts_t *gpu = &gi->device->facts;
    for (int i = 0; i < gi->device->migs.count; i++)
        if (gi->device->migs.at[i]->facts.gi == (int)gi->id)
            return refused(IN_USE);
    int at = 0;
    while (at < gpu->gi_count && gpu->gis[at].id != gi->id)
        at++;
    if (at == gpu->gi_count)
        return refused(INVALID_ARGUMENT);
    memmove(&gpu->gis[at], &gpu->gis[at + 1], (size_t)(--gpu->gi_count - at) * sizeof *gpu->gis);
    snprintf(line, sizeof line, "destroy gi %s %u", gpu->uuid, gi->id);
    return changed(gi->device, "destroygi+", line);
}

/* ---------------------------------------------------------------- compute instances */

static unsigned int slices_of(const gpu_instance_t *gi)
{
    const gi_t *one = gi_of(gi->device, gi->id);
    const profile_t *profile = one ? profile_of(&gi->device->facts, one->profile) : NULL;

    return profile ? profile->slices : 0;
}

static int has_ci_profile(const gpu_instance_t *gi, unsigned int index)
{
    unsigned int of = slices_of(gi);

    return index < CI_PROFILES && CI_SLICES[index] <= of && !(CI_SLICES[index] == 3 && of == 4);
}

static unsigned int step_of(unsigned int slices)
{
    return slices == 3 ? 4 : slices;
}

API int nvmlGpuInstanceGetComputeInstanceProfileInfo(gpu_instance_t *gi, unsigned int index, unsigned int engines,
                                                     ci_profile_t *info)
{
    GI_QUESTION(gi, "ciprofile");
    if (engines)
        return INVALID_ARGUMENT;
    if (!has_ci_profile(gi, index))
        return NOT_SUPPORTED;
    unsigned int slices = CI_SLICES[index], of = slices_of(gi);
    *info = (ci_profile_t){index, slices, (of - slices) / step_of(slices) + 1, 14 * slices, {0}};
    return SUCCESS;
}

API int nvmlGpuInstanceGetComputeInstances(gpu_instance_t *gi, unsigned int id, compute_instance_t **to,
                                           unsigned int *count)
{
    GI_QUESTION(gi, "cis");
    if (!has_ci_profile(gi, id))
        return INVALID_ARGUMENT;
    *count = 0;
    for (int i = 0; i < gi->device->migs.count; i++) {
        const facts_t *ci = &gi->device->migs.at[i]->facts;
        if (ci->gi == (int)gi->id && ci->ci_slices == CI_SLICES[id])
            to[(*count)++] = ci_handle(gi, (unsigned int)ci->ci);
    }
    return SUCCESS;
}

API int nvmlComputeInstanceGetInfo_v2(compute_instance_t *ci, ci_info_t *info)
{
    CI_QUESTION(ci, "ciinfo");
    const facts_t *one = ci_of(ci->gi->device, ci->gi->id, ci->id);
    unsigned int profile = 0;
    while (profile < CI_PROFILES - 1 && CI_SLICES[profile] != one->ci_slices)
        profile++;
    *info = (ci_info_t){ci->gi->device, ci->gi, ci->id, profile, {one->ci_start, one->ci_slices}};
    return SUCCESS;
}

static int is_free(const gpu_instance_t *gi, unsigned int start, unsigned int slices)
{
    for (int i = 0; i < gi->device->migs.count; i++) {
        const facts_t *ci = &gi->device->migs.at[i]->facts;
        if (ci->gi == (int)gi->id && overlaps(ci->ci_start, ci->ci_slices, start, slices))
            return 0;
    }
    return 1;
}

/* The UUID of a MIG device says which instance it is: the same one has the same UUID again. */
static void name_uuid(char *to, const facts_t *gpu, const gi_t *gi, const facts_t *ci)
{
    char text[2 * TEXT];
    unsigned long long hash = 14695981039346656037ULL;

    snprintf(text, sizeof text, "%s/%u/%u/%u/%d/%u", gpu->uuid, gi->id, gi->profile, gi->start, ci->ci, ci->ci_slices);
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211ULL;
    snprintf(to, TEXT, "MIG-%08llx-%04llx-5%03llx-8%03llx-%012llx", hash >> 32, hash >> 16 & 0xFFFF, hash & 0xFFF,
             hash >> 20 & 0xFFF, hash & 0xFFFFFFFFFFFFULL);
}

API int nvmlGpuInstanceCreateComputeInstance(gpu_instance_t *gi, unsigned int id, compute_instance_t **made_one)
{
    char line[TEXT + 64];
    unsigned int start = 0, ci = 0;

    GI_QUESTION(gi, "createci");
    if ((code = begin_change()))
        return code;
    const gi_t *its = gi_of(gi->device, gi->id);
    if (!its || !has_ci_profile(gi, id))
        return refused(INVALID_ARGUMENT);
    unsigned int slices = CI_SLICES[id], of = slices_of(gi);
    while (start + slices <= of && !is_free(gi, start, slices))
        start += step_of(slices);
    devices_t *migs = &gi->device->migs;
    if (start + slices > of || migs->count == MAX_MIGS)
        return refused(INSUFFICIENT_RESOURCES);
    while (ci_of(gi->device, gi->id, ci))
        ci++;
    device_t *mig = new_device(gi->device);
    mig->is_there = 1;
    mig->facts.gi = (int)gi->id;
    mig->facts.ci = (int)ci;
    mig->facts.ci_slices = slices;
    mig->facts.ci_start = start;
    name_uuid(mig->facts.uuid, &gi->device->facts, its, &mig->facts);
    migs->at[migs->count++] = mig;
    *made_one = ci_handle(gi, ci);
    snprintf(line, sizeof line, "create ci %s %u %u %u", gi->device->facts.uuid, gi->id, ci, slices);
    return changed(gi->device, "createci+", line);
}

API int nvmlComputeInstanceDestroy(compute_instance_t *ci)
{
    char line[TEXT + 64];

    CI_QUESTION(ci, "destroyci");
    if ((code = begin_change()))
        return code;
    devices_t *migs = &ci->gi->device->migs;
    int at = 0;
    while (at < migs->count && !(migs->at[at]->facts.gi == (int)ci->gi->id && migs->at[at]->facts.ci == (int)ci->id))
        at++;
    if (at == migs->count)
        return refused(INVALID_ARGUMENT);
    if (migs->at[at]->facts.process_count)
        return refused(IN_USE);
    migs->at[at]->is_there = 0;       /* write_mig leaves it out; it is settled as the file is read again */
    snprintf(line, sizeof line, "destroy ci %s %u %u", ci->gi->device->facts.uuid, ci->gi->id, ci->id);
    return changed(ci->gi->device, "destroyci+", line);
}
