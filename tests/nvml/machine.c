/* The file that describes the machine, and the devices that it speaks of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_nvml.h"

/* What one reading of the file found: too much for the stack. */
typedef struct {
    machine_t machine;
    int gpu_count, mig_counts[MAX_GPUS];
    facts_t gpus[MAX_GPUS], migs[MAX_GPUS][MAX_MIGS];
} reading_t;

machine_t machine;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_t *known;
static struct stat last;
static int opened;

/* ---------------------------------------------------------------- lines */

static void parse_link(facts_t *facts, const char *text)
{
    if (facts->link_count == MAX_LINKS)
        return;
    link_t *link = &facts->links[facts->link_count++];
    link->is_active = sscanf(text, "%d %31s", &link->type, link->pci) == 2;
}

static void parse_p2p(facts_t *facts, const char *text)
{
    int read = 0;

    while (facts->p2p_count < MAX_GPUS && sscanf(text, "%d%n", &facts->p2p[facts->p2p_count], &read) == 1) {
        facts->p2p_count++;
        text += read;
    }
}

static void parse_xid(facts_t *facts, const char *text)
{
    xid_t xid = {0, 0, 0xFFFFFFFF, 0xFFFFFFFF};

    if (facts->xid_count < MAX_XIDS && sscanf(text, "%llu %llu %u %u", &xid.sequence, &xid.number, &xid.gi, &xid.ci) >= 2)
        facts->xids[facts->xid_count++] = xid;
}

static int parse_fault(faults_t *faults, const char *key, const char *text)
{
    if (strcmp(key, "fault") && strcmp(key, "hang") && strcmp(key, "crash"))
        return 0;
    if (faults->count == MAX_FAULTS)
        return 1;
    fault_t *fault = &faults->at[faults->count];
    fault->code = *key == 'h' ? HANG : CRASH;
    faults->count += sscanf(text, "%23s %d", fault->where, &fault->code) == (*key == 'f' ? 2 : 1);
    return 1;
}

static int parse_number(facts_t *facts, const char *key, const char *text)
{
    const struct { const char *key; int *to; } numbers[] = {
        {"ecc", &facts->ecc}, {"persistence", &facts->persistence}, {"migmode", &facts->mig_mode},
        {"virtualization", &facts->virtualization}, {"minor", &facts->device_minor}, {"gi", &facts->gi},
        {"ci", &facts->ci}, {"recovery", &facts->recovery}, {"events", &facts->events}, {"lost", &facts->lost},
    };

    for (unsigned int i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) {
            *numbers[i].to = atoi(text);
            return 1;
        }
    return 0;
}

static void parse_fact(facts_t *facts, const char *key, const char *text)
{
    unsigned int *a = facts->attributes;
    int *rows = facts->rows;

    if (!strcmp(key, "name"))
        snprintf(facts->name, sizeof facts->name, "%s", text);
    else if (!strcmp(key, "uuid"))
        snprintf(facts->uuid, sizeof facts->uuid, "%s", text);
    else if (!strcmp(key, "pci"))
        snprintf(facts->pci, sizeof facts->pci, "%s", text);
    else if (!strcmp(key, "memory"))
        facts->memory = strtoull(text, NULL, 10);
    else if (!strcmp(key, "compute"))
        sscanf(text, "%d %d", &facts->major, &facts->minor);
    else if (!strcmp(key, "rows"))
        sscanf(text, "%d %d %d %d", rows, rows + 1, rows + 2, rows + 3);
    else if (!strcmp(key, "fabric"))
        sscanf(text, "%d %d", &facts->fabric_state, &facts->fabric_status);
    else if (!strcmp(key, "link"))
        parse_link(facts, text);
    else if (!strcmp(key, "p2p"))
        parse_p2p(facts, text);
    else if (!strcmp(key, "xid"))
        parse_xid(facts, text);
    else if (!strcmp(key, "attributes"))
        sscanf(text, "%u %u %u %u %u %u %u %u %llu", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7,
               &facts->mig_memory);
}

static facts_t *no_facts(facts_t *facts)
{
    facts->major = facts->ecc = facts->persistence = facts->mig_mode = facts->virtualization = -1;
    facts->device_minor = facts->gi = facts->ci = facts->recovery = facts->events = -1;
    facts->fabric_state = facts->rows[0] = -1;
    return facts;
}

static void parse(reading_t *found, FILE *file)
{
    char line[256];
    facts_t *facts = NULL;
    int gpu = -1;

    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, ' ');
        if (text)
            *text++ = '\0';
        if (!strcmp(line, "gpu") && found->gpu_count < MAX_GPUS)
            facts = no_facts(&found->gpus[gpu = found->gpu_count++]);
        else if (!strcmp(line, "mig") && gpu >= 0 && found->mig_counts[gpu] < MAX_MIGS)
            facts = no_facts(&found->migs[gpu][found->mig_counts[gpu]++]);
        else if (!text || parse_fault(gpu < 0 ? &found->machine.faults : &found->gpus[gpu].faults, line, text))
            continue;
        else if (!strcmp(line, "driver"))
            snprintf(found->machine.driver, sizeof found->machine.driver, "%s", text);
        else if (!strcmp(line, "cuda"))
            found->machine.cuda = atoi(text);
        else if (facts && !parse_number(facts, line, text))
            parse_fact(facts, line, text);
    }
}

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

static device_t *new_device(device_t *parent)
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
    int was_away = *old->uuid && (!device->is_there || (old->lost && !fresh->lost));

    if (was_away && !fresh->lost) {
        device->registration++;
        device->forgotten_after = old->xid_count ? old->xids[old->xid_count - 1].sequence : 0;
    }
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

static const char *machine_path(void)
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

/* Keeps what was read before when the file is not there. */
static int refresh(void)
{
    struct stat now;

    if (stat(machine_path(), &now))
        return UNKNOWN;
    if (is_same(&now, &last))
        return SUCCESS;
    FILE *file = fopen(machine_path(), "r");
    reading_t *found = calloc(1, sizeof *found);
    if (file && found && !fstat(fileno(file), &last)) {
        parse(found, file);
        machine.faults = found->machine.faults;
        machine.cuda = found->machine.cuda;
        memcpy(machine.driver, found->machine.driver, sizeof machine.driver);
        settle(&machine.gpus, found->gpus, found->gpu_count, NULL);
        for (int i = 0; i < found->gpu_count; i++)
            settle(&machine.gpus.at[i]->migs, found->migs[i], found->mig_counts[i], machine.gpus.at[i]);
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

static int fault(const faults_t *faults, const char *where)
{
    int code;

    while ((code = code_of(faults, where)) == HANG)
        sleep_outside(20000);
    if (code == CRASH)
        abort();
    return code;
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

int open_machine(void)
{
    pthread_mutex_lock(&lock);
    int code = refresh();
    if (!code)
        code = machine_fault("init");
    opened += !code;
    pthread_mutex_unlock(&lock);
    return code;
}

int close_machine(void)
{
    MACHINE_QUESTION("shutdown");
    if (!--opened)
        forget_event_sets();
    return SUCCESS;
}
