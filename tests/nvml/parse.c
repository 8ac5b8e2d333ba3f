/* Reading the file that describes the machine; fake_nvml.h says what stands in it. */
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

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
    if (strcmp(key, "fault") && strcmp(key, "hang") && strcmp(key, "crash") && strcmp(key, "run") &&
        strcmp(key, "kill"))
        return 0;
    if (faults->count == MAX_FAULTS)
        return 1;
    fault_t *fault = &faults->at[faults->count];
    fault->code = *key == 'h' ? HANG : *key == 'r' ? RUN : *key == 'k' ? KILL : CRASH;
    faults->count += sscanf(text, "%23s %d", fault->where, &fault->code) == (*key == 'f' ? 2 : 1);
    return 1;
}

static void parse_profile(facts_t *facts, const char *text)
{
    profile_t *one = &facts->profiles[facts->profile_count];
    unsigned int *e = one->engines;
    int read = 0;

    if (facts->profile_count == MAX_PROFILES ||
        sscanf(text, "%u %u %u %u %u %u %u %u %u %u %u %llu %23s%n", &one->index, &one->id, &one->slices,
               &one->instances, &one->size, &one->multiprocessors, e, e + 1, e + 2, e + 3, e + 4, &one->memory_mib,
               one->name, &read) < 13)
        return;
    for (text += read; one->start_count < MAX_SLICES; text += read, one->start_count++)
        if (sscanf(text, "%u%n", &one->starts[one->start_count], &read) != 1)
            break;
    facts->profile_count++;
}

static const char *const AMOUNT_NAMES[AMOUNTS] = {
    [SM_CLOCK] = "sm_clock_mhz", [MEMORY_CLOCK] = "memory_clock_mhz", [TEMPERATURE] = "temperature_c",
    [MEMORY_TEMPERATURE] = "memory_temperature_c", [POWER] = "power_mw", [ENERGY] = "energy_mj",
    [BUSY] = "busy_percent", [MEMORY_BUSY] = "memory_busy_percent", [ENCODER] = "encoder_percent",
    [DECODER] = "decoder_percent", [MEMORY_USED] = "memory_used", [MEMORY_RESERVED] = "memory_reserved",
    [PCIE_REPLAYS] = "pcie_replays", [ECC_ERRORS] = "ecc_single_volatile", [ECC_ERRORS + 1] = "ecc_double_volatile",
    [ECC_ERRORS + 2] = "ecc_single_aggregate", [ECC_ERRORS + 3] = "ecc_double_aggregate", [THROTTLE] = "throttle",
};
static const char *const GPM_NAMES[GPM_METRICS] = {"engine_active", "sm_active", "tensor_active", "dram_active"};

static int place_in(const char *const *names, int count, const char *key)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], key))
            return i;
    return -1;
}

static void *one_more(void *array, int count, size_t size)
{
    /* Grows at each power of two. */
    if (count & (count - 1))
        return array;
    void *grown = realloc(array, (count ? 2 * (size_t)count : 1) * size);
    if (!grown)
        abort();
    return grown;
}

static void parse_process(facts_t *facts, const char *text)
{
    char memory[32], list[16] = "";
    process_t process = {0, 0, 0};

    if (sscanf(text, "%u %31s %15s", &process.pid, memory, list) < 2)
        return;
    process.is_graphics = !strcmp(list, "graphics");
    process.memory = strcmp(memory, "none") ? strtoull(memory, NULL, 10) : ~0ULL;
    facts->processes = one_more(facts->processes, facts->process_count, sizeof process);
    facts->processes[facts->process_count++] = process;
}

static void parse_busy(facts_t *facts, const char *text)
{
    busy_t sample = {0, 0, 0};

    if (sscanf(text, "%u %u %llu", &sample.pid, &sample.percent, &sample.time) < 2)
        return;
    facts->samples = one_more(facts->samples, facts->sample_count, sizeof sample);
    facts->samples[facts->sample_count++] = sample;
}

static int parse_use(facts_t *facts, const char *key, const char *text)
{
    int amount = place_in(AMOUNT_NAMES, AMOUNTS, key), share = place_in(GPM_NAMES, GPM_METRICS, key);

    if (amount >= 0)
        facts->amounts[amount] = (amount_t){1, strtoull(text, NULL, 10)};
    else if (share >= 0)
        facts->shares[share] = (share_t){1, strtod(text, NULL)};
    else if (!strcmp(key, "process"))
        parse_process(facts, text);
    else if (!strcmp(key, "busy"))
        parse_busy(facts, text);
    else
        return 0;
    return 1;
}

static int parse_number(facts_t *facts, const char *key, const char *text)
{
    const struct { const char *key; int *to; } numbers[] = {
        {"ecc", &facts->ecc}, {"persistence", &facts->persistence}, {"migmode", &facts->mig_mode},
        {"virtualization", &facts->virtualization}, {"minor", &facts->device_minor}, {"gi", &facts->gi},
        {"ci", &facts->ci}, {"recovery", &facts->recovery}, {"events", &facts->events}, {"lost", &facts->lost},
        {"gpm", &facts->gpm}, {"limits", &facts->limits}, {"nosamples", &facts->no_samples},
        {"newminor", &facts->new_minor}, {"activation", &facts->activation}, {"resetrequired", &facts->reset_required},
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
    else if (!strcmp(key, "profile"))
        parse_profile(facts, text);
    else if (!strcmp(key, "pciid"))
        facts->pci_id = (unsigned int)strtoul(text, NULL, 16);
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

facts_t *no_facts(facts_t *facts)
{
    facts->major = facts->ecc = facts->persistence = facts->mig_mode = facts->virtualization = -1;
    facts->device_minor = facts->gi = facts->ci = facts->recovery = facts->events = -1;
    facts->fabric_state = facts->rows[0] = facts->no_samples = facts->new_minor = -1;
    return facts;
}

void parse(reading_t *found, FILE *file)
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
        else if (!strcmp(line, "control"))
            snprintf(found->machine.control, sizeof found->machine.control, "%s", text);
        else if (!strcmp(line, "proc"))
            snprintf(found->machine.proc, sizeof found->machine.proc, "%s", text);
        else if (!strcmp(line, "dieat"))
            found->machine.die_at = (unsigned int)atoi(text);
        else if (!strcmp(line, "cuda"))
            found->machine.cuda = atoi(text);
        else if (facts && !parse_number(facts, line, text) && !parse_use(facts, line, text))
            parse_fact(facts, line, text);
    }
}
