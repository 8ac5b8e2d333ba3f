/* The machine that the file describes: its devices, which stay the same ones, its faults, and the lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_nvml.h"

machine_t machine;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_t *known;
static struct stat last, last_mig;
static int opened;
static int control = -1;

/* ---------------------------------------------------------------- devices */

static int is_in(device_t *const *devices, int count, const device_t *device)
{
    for (int i = 0; i < count; i++)
        if (devices[i] == device)
            return 1;
    return 0;
}

static device_t *find(const device_t *parent, const char *uuid)
{
    device_t *device = known;

    while (device && (device->parent != parent || strcmp(device->facts.uuid, uuid)))
        device = device->next;
    return *uuid ? device : NULL;
}

device_t *new_device(device_t *parent)
{
    device_t *made = calloc(1, sizeof *made);

    if (!made)
        abort();
    made->parent = parent;
    made->next = known;
    return known = made;
}

static void take(device_t *device, const facts_t *fresh)
{
    const facts_t *old = &device->facts;
    int was_reset = fresh->profile_count && old->mig_mode != fresh->mig_mode;
    int was_away = *old->uuid && (!device->is_there || was_reset || (old->lost && !fresh->lost));

    if (was_away && !fresh->lost) {
        device->registration++;
        device->forgotten_after = old->xid_count ? old->xids[old->xid_count - 1].sequence : 0;
    }
    free(device->facts.processes);
    free(device->facts.samples);
    device->facts = *fresh;
}

static void settle(devices_t *here, const facts_t *fresh, int count, device_t *parent)
{
    device_t *chosen[MAX_DEVICES] = {NULL};

    for (int i = 0; i < count; i++) {
        device_t *same = find(parent, fresh[i].uuid);
        chosen[i] = is_in(chosen, i, same) ? NULL : same;
    }
    for (int i = 0; i < count; i++)
        if (!chosen[i])
            chosen[i] = i < here->count && !is_in(chosen, count, here->at[i]) ? here->at[i] : new_device(parent);
    for (int i = 0; i < count; i++)
        take(chosen[i], &fresh[i]);
    for (int i = 0; i < here->count; i++)
        here->at[i]->is_there = 0;
    for (int i = 0; i < count; i++)
        chosen[i]->is_there = 1;
    memcpy(here->at, chosen, sizeof chosen);
    here->count = count;
}

/* ---------------------------------------------------------------- the file */

const char *machine_path(void)
{
    static char beside[4096];
    const char *path = getenv("FAKE_NVML_MACHINE");
    Dl_info self;

    if (path || *beside || !dladdr(&machine, &self))
        return path ? path : beside;
    const char *slash = strrchr(self.dli_fname, '/');
    snprintf(beside, sizeof beside, "%.*sfake_nvml_machine", slash ? (int)(slash - self.dli_fname + 1) : 0,
             self.dli_fname);
    return beside;
}

static int is_same(const struct stat *one, const struct stat *other)
{
    return one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

static struct stat stat_mig(void)
{
    struct stat now;

    memset(&now, 0, sizeof now);
    if (stat(mig_path(), &now))
        memset(&now, 0, sizeof now);
    return now;
}

/* Keeps what was read before when the file is not there. */
int refresh(void)
{
    struct stat now, mig = stat_mig();

    if (stat(machine_path(), &now))
        return UNKNOWN;
    if (is_same(&now, &last) && is_same(&mig, &last_mig))
        return SUCCESS;
    FILE *file = fopen(machine_path(), "r");
    reading_t *found = calloc(1, sizeof *found);
    if (file && found && !fstat(fileno(file), &last)) {
        last_mig = mig;
        parse(found, file);
        read_mig(found);
        machine.points = found->machine.points;
        machine.writes = found->machine.writes;
        machine.die_at = found->machine.die_at;
        memcpy(machine.proc, found->machine.proc, sizeof machine.proc);
        machine.faults = found->machine.faults;
        machine.cuda = found->machine.cuda;
        memcpy(machine.driver, found->machine.driver, sizeof machine.driver);
        memcpy(machine.control, found->machine.control, sizeof machine.control);
        settle(&machine.gpus, found->gpus, found->gpu_count, NULL);
        for (int i = 0; i < found->gpu_count; i++)
            settle(&machine.gpus.at[i]->migs, found->migs[i], found->mig_counts[i], machine.gpus.at[i]);
        write_proc();
    }
    if (file)
        fclose(file);
    free(found);
    return file ? SUCCESS : UNKNOWN;
}

/* ---------------------------------------------------------------- faults */

static int code_of(const faults_t *faults, const char *where)
{
    for (int i = 0; i < faults->count; i++)
        if (!strcmp(faults->at[i].where, where))
            return faults->at[i].code;
    return SUCCESS;
}

static int run_a_program(void)
{
    char *arguments[] = {"sleep", "1000000", NULL};
    pid_t program;

    if (posix_spawnp(&program, *arguments, NULL, NULL, arguments, environ))
        return UNKNOWN;
    waitpid(program, NULL, 0);
    return SUCCESS;
}

static int fault(const faults_t *faults, const char *where)
{
    int code;

    while ((code = code_of(faults, where)) == HANG)
        sleep_outside(20000);
    if (code == CRASH)
        abort();
    if (code == KILL)
        raise(SIGKILL);
    return code == RUN ? run_a_program() : code;
}

int machine_fault(const char *where)
{
    return fault(&machine.faults, where);
}

int failing(const device_t *device, const char *where)
{
    const device_t *one = known;

    while (one && one != device)
        one = one->next;
    if (!one)
        return INVALID_ARGUMENT;
    if (device->parent)
        return device->is_there ? failing(device->parent, where) : NOT_FOUND;
    if (device->facts.lost || !device->is_there)
        return device->facts.lost ? device->facts.lost : GPU_IS_LOST;
    return fault(&device->facts.faults, where);
}

/* ---------------------------------------------------------------- the lock, and the beginning and end of it all */

int enter(void)
{
    pthread_mutex_lock(&lock);
    if (!opened)
        return UNINITIALIZED;
    refresh();
    return SUCCESS;
}

void leave(int *unused)
{
    (void)unused;
    pthread_mutex_unlock(&lock);
}

void sleep_outside(unsigned int microseconds)
{
    pthread_mutex_unlock(&lock);
    usleep(microseconds);
    pthread_mutex_lock(&lock);
    refresh();
}

static int open_control(void)
{
    if (!*machine.control || control >= 0)
        return SUCCESS;
    control = open(machine.control, O_RDWR | O_CLOEXEC);
    return control < 0 ? DRIVER_NOT_LOADED : SUCCESS;
}

static void close_control(void)
{
    if (control >= 0)
        close(control);
    control = -1;
}

int open_machine(void)
{
    pthread_mutex_lock(&lock);
    int code = refresh();
    if (!code)
        code = machine_fault("init");
    if (!code)
        code = open_control();
    opened += !code;
    pthread_mutex_unlock(&lock);
    return code;
}

int close_machine(void)
{
    MACHINE_QUESTION("shutdown");
    if (--opened)
        return SUCCESS;
    forget_event_sets();
    close_control();
    return SUCCESS;
}
