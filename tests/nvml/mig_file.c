/*
 * What programs made of the GPUs that have profiles: the file beside the machine's with .mig added, which is replaced by
 * a rename while the one with .lock behind that is locked. Whoever is killed leaves what was there, or what is to be.
 *
 *   points 4 9                  how many points were passed, and how often this was written, which is its time as well
 *   gpu UUID 1 0                MIG mode: current, pending
 *   gi UUID 7 19 0              a GPU instance: id, profile, first slice
 *   ci UUID 7 0 1 0 MIG-...     a compute instance: GPU instance, id, compute slices, first of them, UUID of its device
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_nvml.h"

enum { PATH = 4200, MOST_GI = 15, MOST_CI = 8 };

static int lock = -1;

static const char *beside(const char *suffix, char *path)
{
    snprintf(path, PATH, "%s%s", machine_path(), suffix);
    return path;
}

const char *mig_path(void)
{
    static char path[PATH];

    return beside(".mig", path);
}

const profile_t *profile_of(const facts_t *facts, unsigned int id)
{
    for (int i = 0; i < facts->profile_count; i++)
        if (facts->profiles[i].id == id)
            return &facts->profiles[i];
    return NULL;
}

/* ---------------------------------------------------------------- reading */

static facts_t *changeable(reading_t *found, const char *uuid, int *at)
{
    for (*at = 0; *at < found->gpu_count; ++*at)
        if (found->gpus[*at].profile_count && !strcmp(found->gpus[*at].uuid, uuid))
            return &found->gpus[*at];
    return NULL;
}

static void take_gi(facts_t *facts, gi_t gi)
{
    if (facts->gi_count < MAX_SLICES)
        facts->gis[facts->gi_count++] = gi;
}

static const profile_t *profile_of_gi(const facts_t *facts, int id)
{
    for (int i = 0; i < facts->gi_count; i++)
        if (facts->gis[i].id == (unsigned int)id)
            return profile_of(facts, facts->gis[i].profile);
    return NULL;
}

static void describe(facts_t *mig, const facts_t *gpu, const profile_t *profile)
{
    unsigned int *a = mig->attributes, slices = mig->ci_slices;
    char part[8] = "", model[49], kind[24];

    snprintf(model, sizeof model, "%.48s", gpu->name);
    snprintf(kind, sizeof kind, "%s", profile->name);
    if (slices != profile->slices)
        snprintf(part, sizeof part, "%uc.", slices);
    snprintf(mig->name, sizeof mig->name, "%s MIG %s%s", model, part, kind);
    a[0] = profile->multiprocessors * slices / profile->slices;
    memcpy(a + 1, profile->engines, sizeof profile->engines);
    a[6] = profile->slices;
    a[7] = slices;
    mig->mig_memory = profile->memory_mib;
}

static void take_ci(reading_t *found, int gpu, const facts_t *ci, const facts_t *known, int known_count)
{
    const profile_t *profile = profile_of_gi(&found->gpus[gpu], ci->gi);
    facts_t *mig = &found->migs[gpu][found->mig_counts[gpu]];

    if (!profile || found->mig_counts[gpu] == MAX_MIGS)
        return;
    memset(mig, 0, sizeof *mig);
    no_facts(mig);
    for (int i = 0; i < known_count; i++)
        if (!strcmp(known[i].uuid, ci->uuid))
            *mig = known[i];
    snprintf(mig->uuid, sizeof mig->uuid, "%s", ci->uuid);
    mig->gi = ci->gi;
    mig->ci = ci->ci;
    mig->ci_slices = ci->ci_slices;
    mig->ci_start = ci->ci_start;
    describe(mig, &found->gpus[gpu], profile);
    found->mig_counts[gpu]++;
}

static void read_line(reading_t *found, const char *line, facts_t (*known)[MAX_MIGS], const int *known_counts)
{
    char uuid[TEXT];
    facts_t ci, *gpu;
    gi_t gi;
    int at, current, pending;

    memset(&ci, 0, sizeof ci);
    if (sscanf(line, "points %u %u", &found->machine.points, &found->machine.writes) == 2)
        return;
    if (sscanf(line, "%*s %95s", uuid) != 1 || !(gpu = changeable(found, uuid, &at)))
        return;
    if (sscanf(line, "gpu %*s %d %d", &current, &pending) == 2) {
        gpu->mig_mode = current;
        gpu->mig_pending = pending;
    } else if (sscanf(line, "gi %*s %u %u %u", &gi.id, &gi.profile, &gi.start) == 3) {
        take_gi(gpu, gi);
    } else if (sscanf(line, "ci %*s %d %d %u %u %95s", &ci.gi, &ci.ci, &ci.ci_slices, &ci.ci_start, ci.uuid) == 5) {
        take_ci(found, at, &ci, known[at], known_counts[at]);
    }
}

/* What the text says of MIG devices that are not there is forgotten. */
static void forget_unused(const reading_t *found, int gpu, facts_t *known, int known_count)
{
    for (int i = 0; i < known_count; i++) {
        int is_used = 0;
        for (int j = 0; j < found->mig_counts[gpu]; j++)
            is_used |= found->migs[gpu][j].processes == known[i].processes && !strcmp(found->migs[gpu][j].uuid, known[i].uuid);
        if (!is_used) {
            free(known[i].processes);
            free(known[i].samples);
        }
    }
}

void read_mig(reading_t *found)
{
    facts_t (*known)[MAX_MIGS] = calloc(MAX_GPUS, sizeof *known);
    int counts[MAX_GPUS] = {0};
    char line[256];

    for (int i = 0; known && i < found->gpu_count; i++) {
        found->gpus[i].mig_pending = found->gpus[i].mig_mode;
        if (!found->gpus[i].profile_count)
            continue;
        memcpy(known[i], found->migs[i], sizeof known[i]);
        counts[i] = found->mig_counts[i];
        found->mig_counts[i] = 0;
    }
    FILE *file = known ? fopen(mig_path(), "r") : NULL;
    while (file && fgets(line, sizeof line, file))
        read_line(found, line, known, counts);
    if (file)
        fclose(file);
    for (int i = 0; known && i < found->gpu_count; i++) {
        facts_t *gpu = &found->gpus[i];
        gpu->text_minor = gpu->device_minor;
        forget_unused(found, i, known[i], counts[i]);
        if (gpu->profile_count && gpu->mig_mode == 1 && gpu->new_minor >= 0)
            gpu->device_minor = gpu->new_minor;
    }
    free(known);
}

/* ---------------------------------------------------------------- writing */

static void write_gpu(const device_t *device, FILE *file)
{
    const facts_t *gpu = &device->facts;

    fprintf(file, "gpu %s %d %d\n", gpu->uuid, gpu->mig_mode, gpu->mig_pending);
    for (int i = 0; i < gpu->gi_count; i++)
        fprintf(file, "gi %s %u %u %u\n", gpu->uuid, gpu->gis[i].id, gpu->gis[i].profile, gpu->gis[i].start);
    for (int i = 0; i < device->migs.count; i++) {
        const facts_t *ci = &device->migs.at[i]->facts;
        if (device->migs.at[i]->is_there)
            fprintf(file, "ci %s %d %d %u %u %s\n", gpu->uuid, ci->gi, ci->ci, ci->ci_slices, ci->ci_start, ci->uuid);
    }
}

static int write_mig(void)
{
    struct timespec times[2] = {{0, UTIME_OMIT}, {++machine.writes, 0}};
    char fresh[PATH];
    FILE *file = fopen(beside(".mig.new", fresh), "w");

    if (!file)
        return UNKNOWN;
    fprintf(file, "points %u %u\n", machine.points, machine.writes);
    for (int i = 0; i < machine.gpus.count; i++)
        if (machine.gpus.at[i]->facts.profile_count)
            write_gpu(machine.gpus.at[i], file);
    if (fflush(file) || futimens(fileno(file), times) || fclose(file) || rename(fresh, mig_path()))
        return UNKNOWN;
    return refresh();
}

static int pass_a_point(void)
{
    machine.points++;
    int code = write_mig();
    if (!code && machine.points == machine.die_at)
        raise(SIGKILL);
    return code;
}

static int take_lock(void)
{
    char path[PATH];

    lock = open(beside(".mig.lock", path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    return lock < 0 || flock(lock, LOCK_EX) ? UNKNOWN : SUCCESS;
}

int begin_change(void)
{
    int code = take_lock();

    if (!code)
        code = refresh();
    if (!code)
        code = pass_a_point();
    if (code)
        abandon_change();
    return code;
}

void abandon_change(void)
{
    if (lock >= 0)
        close(lock);
    lock = -1;
}

int end_change(const char *line)
{
    char path[PATH];
    int code = write_mig();
    FILE *changes = fopen(beside(".changes", path), "a");

    if (changes) {
        fprintf(changes, "%s\n", line);
        fclose(changes);
    }
    if (!code)
        code = pass_a_point();
    abandon_change();
    return code;
}

/* ---------------------------------------------------------------- /proc/driver/nvidia */

static void write_text(const char *path, const char *text)
{
    char folder[PATH], fresh[PATH + 8];

    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = folder + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(folder, 0777);
    }
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "w");
    if (file) {
        fputs(text, file);
        fclose(file);
        rename(fresh, path);
    }
}

static void set_access(const char *folder, unsigned int minor, int is_there)
{
    char path[PATH + 16], text[80];

    snprintf(path, sizeof path, "%s/access", folder);
    if (is_there && access(path, F_OK)) {
        snprintf(text, sizeof text, "DeviceFileMinor: %u\nDeviceFileMode: 292\nDeviceFileModify: 1\n", minor);
        write_text(path, text);
    } else if (!is_there && !unlink(path)) {
        rmdir(folder);
    }
}

static int has_ci(const device_t *device, int gi, int ci)
{
    for (int i = 0; i < device->migs.count; i++)
        if (device->migs.at[i]->facts.gi == gi && device->migs.at[i]->facts.ci == ci)
            return 1;
    return 0;
}

/* Numbers are those of the driver's nv-caps.c. */
static void write_instances(const device_t *device, int gpu_minor, int is_here)
{
    char folder[PATH - 64], inner[PATH];

    for (int gi = 0; gi < MOST_GI; gi++) {
        unsigned int minor = 3 + ((unsigned int)gpu_minor * MOST_GI + (unsigned int)gi) * (MOST_CI + 1);
        snprintf(folder, sizeof folder, "%s/capabilities/gpu%d/mig/gi%d", machine.proc, gpu_minor, gi);
        for (int ci = 0; ci < MOST_CI; ci++) {
            snprintf(inner, sizeof inner, "%s/ci%d", folder, ci);
            set_access(inner, minor + 1 + (unsigned int)ci, is_here && has_ci(device, gi, ci));
        }
        set_access(folder, minor, is_here && profile_of_gi(&device->facts, gi));
    }
}

static void write_information(const facts_t *gpu)
{
    char path[PATH], text[400];

    snprintf(path, sizeof path, "%s/gpus/%.20s/information", machine.proc, strlen(gpu->pci) > 12 ? gpu->pci + 4 : gpu->pci);
    for (char *at = path + strlen(machine.proc); *at; at++)
        *at = (char)(*at >= 'A' && *at <= 'F' ? *at + 'a' - 'A' : *at);
    snprintf(text, sizeof text, "Model: \t\t %s\nGPU UUID: \t %s\nBus Location: \t %.12s\nDevice Minor: \t %d\n",
             gpu->name, gpu->uuid, strrchr(path, '/') - 12, gpu->device_minor);
    text[sizeof text - 1] = '\0';
    write_text(path, text);
}

static void write_all(void)
{
    for (int i = 0; i < machine.gpus.count; i++) {
        const device_t *device = machine.gpus.at[i];
        const facts_t *gpu = &device->facts;
        if (!gpu->profile_count)
            continue;
        for (int minor = 0; minor < 2 * MAX_GPUS; minor++)
            if (minor == gpu->device_minor || minor == gpu->text_minor || minor == gpu->new_minor)
                write_instances(device, minor, minor == gpu->device_minor);
        write_information(gpu);
    }
}

/* What is written is never older than what another process has written. */
void write_proc(void)
{
    if (!*machine.proc)
        return;
    if (lock >= 0) {
        write_all();
    } else if (!take_lock()) {
        refresh();
        write_all();
        abandon_change();
    }
}
