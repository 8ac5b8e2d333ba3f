/*
 * A libnvidia-ml.so.1 for tests: the part of NVML's interface that nvml_inventory uses, answering for a machine that a
 * text file describes (FAKE_NVML_MACHINE). Structures and numbers are those of NVIDIA's public NVML reference.
 *
 * One "key value" a line. "gpu" begins a GPU, "mig" a MIG device of the GPU above, "link" an NVLink of it; what is not
 * said is answered with "not supported".
 *
 *   driver 550.54.15        fault init 18     return this error from nvmlInit, or from the first question to the
 *   cuda 12040              fault count 999   GPU above ("fault name 15"), or for its handle ("fault handle 15")
 *   gpu                     hang init         never return from there
 *   name NVIDIA H100        uuid GPU-1        pci 00000000:3B:00.0
 *   memory 85520809984      compute 9 0       ecc 1   persistence 1   migmode 1   virtualization 2
 *   link 0 00000000:4C:00.0 (type of the remote device: 0 GPU, 2 switch; "link off" is inactive)
 *   p2p 0 5 6               status of NVLink to each GPU by index, as in nvmlGpuP2PStatus_t; "fault p2p 999"
 *   lost 15                 this error to every question about the GPU above; it is counted as before
 *   mig                     name ...          uuid MIG-1
 *   attributes 14 1 0 0 0 0 1 1 4864         as in nvmlDeviceAttributes_t, memory in MiB last
 *
 * nvmlInit and nvmlShutdown append their names to the file FAKE_NVML_LOG. Built with -DWITHOUT_P2P it is a library of an
 * old driver, without nvmlDeviceGetP2PStatus.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
enum { P2P_CAPS_NVLINK = 2 };
enum { MAX_GPUS = 16, MAX_MIGS = 7, MAX_LINKS = 18, MAX_FAULTS = 8, TEXT = 96 };

typedef struct { char where[16]; int code; } fault_t;   /* code -1: hang */
typedef struct { int is_active, type; char pci[32]; } link_t;

typedef struct device {
    char name[TEXT], uuid[TEXT], pci[32];
    unsigned long long memory;
    int major, minor, ecc, persistence, mig_mode, virtualization;   /* -1: not supported */
    int lost, p2p_count, p2p[MAX_GPUS];
    unsigned int attributes[8];
    unsigned long long mig_memory;
    link_t links[MAX_LINKS];
    int link_count, mig_count, fault_count;
    fault_t faults[MAX_FAULTS];
    struct device *migs[MAX_MIGS];
} device_t;

static struct {
    char driver[80];
    int cuda, gpu_count, fault_count;
    fault_t faults[MAX_FAULTS];
    device_t *gpus[MAX_GPUS];
} machine;

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info_t;

typedef struct { unsigned long long total, free, used; } memory_t;

typedef struct {
    unsigned int multiprocessors, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mib;
} attributes_t;

static device_t *new_device(void)
{
    device_t *made = calloc(1, sizeof *made);
    made->major = made->ecc = made->persistence = made->mig_mode = made->virtualization = -1;
    return made;
}

static void note(const char *name)
{
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", name);
        fclose(log);
    }
}

static int fault(const fault_t *faults, int count, const char *where)
{
    for (int i = 0; i < count; i++)
        if (strcmp(faults[i].where, where) == 0) {
            while (faults[i].code < 0)
                pause();
            return faults[i].code;
        }
    return SUCCESS;
}

static void parse_link(device_t *device, const char *text)
{
    link_t *link = &device->links[device->link_count++];
    link->is_active = sscanf(text, "%d %31s", &link->type, link->pci) == 2;
}

static void parse_p2p(device_t *device, const char *text)
{
    int read = 0;

    while (device->p2p_count < MAX_GPUS && sscanf(text, "%d%n", &device->p2p[device->p2p_count], &read) == 1) {
        device->p2p_count++;
        text += read;
    }
}

static void parse_value(device_t *gpu, device_t *device, const char *key, const char *value)
{
    unsigned int *a = device ? device->attributes : NULL;
    fault_t *faults = gpu ? gpu->faults : machine.faults;
    int *fault_count = gpu ? &gpu->fault_count : &machine.fault_count;

    if (!strcmp(key, "fault") && sscanf(value, "%15s %d", faults[*fault_count].where, &faults[*fault_count].code) == 2)
        (*fault_count)++;
    else if (!strcmp(key, "hang") && sscanf(value, "%15s", faults[*fault_count].where) == 1)
        faults[(*fault_count)++].code = -1;
    else if (!strcmp(key, "driver"))
        snprintf(machine.driver, sizeof machine.driver, "%s", value);
    else if (!strcmp(key, "cuda"))
        machine.cuda = atoi(value);
    else if (!device)
        return;
    else if (!strcmp(key, "name"))
        snprintf(device->name, sizeof device->name, "%s", value);
    else if (!strcmp(key, "uuid"))
        snprintf(device->uuid, sizeof device->uuid, "%s", value);
    else if (!strcmp(key, "pci"))
        snprintf(device->pci, sizeof device->pci, "%s", value);
    else if (!strcmp(key, "memory"))
        device->memory = strtoull(value, NULL, 10);
    else if (!strcmp(key, "compute"))
        sscanf(value, "%d %d", &device->major, &device->minor);
    else if (!strcmp(key, "ecc"))
        device->ecc = atoi(value);
    else if (!strcmp(key, "persistence"))
        device->persistence = atoi(value);
    else if (!strcmp(key, "migmode"))
        device->mig_mode = atoi(value);
    else if (!strcmp(key, "virtualization"))
        device->virtualization = atoi(value);
    else if (!strcmp(key, "link"))
        parse_link(device, value);
    else if (!strcmp(key, "p2p"))
        parse_p2p(device, value);
    else if (!strcmp(key, "lost"))
        device->lost = atoi(value);
    else if (!strcmp(key, "attributes"))
        sscanf(value, "%u %u %u %u %u %u %u %u %llu", a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7,
               &device->mig_memory);
}

static void load(FILE *file)
{
    char line[256];
    device_t *gpu = NULL, *device = NULL;

    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *value = strchr(line, ' ');
        if (value)
            *value++ = '\0';
        if (!strcmp(line, "gpu") && machine.gpu_count < MAX_GPUS)
            machine.gpus[machine.gpu_count++] = gpu = device = new_device();
        else if (!strcmp(line, "mig") && gpu && gpu->mig_count < MAX_MIGS)
            gpu->migs[gpu->mig_count++] = device = new_device();
        else if (value)
            parse_value(gpu, device, line, value);
    }
}

int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    note("init");
    const char *path = getenv("FAKE_NVML_MACHINE");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return UNKNOWN;
    load(file);
    fclose(file);
    return fault(machine.faults, machine.fault_count, "init");
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    note("shutdown");
    return fault(machine.faults, machine.fault_count, "shutdown");
}

const char *nvmlErrorString(int code)
{
    (void)code;
    return "an error of the test library";
}

static int text(const char *value, char *to, unsigned int size)
{
    if (!*value)
        return NOT_SUPPORTED;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(to, value);
    return SUCCESS;
}

static int number(int value, unsigned int *to)
{
    if (value < 0)
        return NOT_SUPPORTED;
    *to = (unsigned int)value;
    return SUCCESS;
}

static int failing(const device_t *device, const char *where)
{
    return device->lost ? device->lost : fault(device->faults, device->fault_count, where);
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    int code = fault(machine.faults, machine.fault_count, "driver");
    return code ? code : text(machine.driver, version, size);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = machine.cuda;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)machine.gpu_count;
    return fault(machine.faults, machine.fault_count, "count");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t **device)
{
    if (index >= (unsigned int)machine.gpu_count)
        return INVALID_ARGUMENT;
    *device = machine.gpus[index];
    return failing(*device, "handle");
}

int nvmlDeviceGetName(device_t *device, char *name, unsigned int size)
{
    int code = failing(device, "name");
    return code ? code : text(device->name, name, size);
}

int nvmlDeviceGetUUID(device_t *device, char *uuid, unsigned int size)
{
    int code = failing(device, "uuid");
    return code ? code : text(device->uuid, uuid, size);
}

static void fill_pci(pci_info_t *info, const char *bus_id)
{
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "%s", bus_id);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%s", strlen(bus_id) > 12 ? bus_id + 4 : bus_id);
}

int nvmlDeviceGetPciInfo_v3(device_t *device, pci_info_t *info)
{
    fill_pci(info, device->pci);
    return failing(device, "pci");
}

int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory)
{
    memory->total = memory->free = device->memory;
    memory->used = 0;
    int code = failing(device, "memory");
    return code ? code : device->memory ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor)
{
    *major = device->major;
    *minor = device->minor;
    int code = failing(device, "compute");
    return code ? code : device->major < 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetEccMode(device_t *device, unsigned int *current, unsigned int *pending)
{
    int code = failing(device, "ecc");
    *pending = 0;
    return code ? code : number(device->ecc, current);
}

int nvmlDeviceGetPersistenceMode(device_t *device, unsigned int *mode)
{
    int code = failing(device, "persistence");
    return code ? code : number(device->persistence, mode);
}

int nvmlDeviceGetMigMode(device_t *device, unsigned int *current, unsigned int *pending)
{
    int code = failing(device, "migmode");
    *pending = 0;
    return code ? code : number(device->mig_mode, current);
}

int nvmlDeviceGetVirtualizationMode(device_t *device, unsigned int *mode)
{
    int code = failing(device, "virtualization");
    return code ? code : number(device->virtualization, mode);
}

int nvmlDeviceGetNvLinkState(device_t *device, unsigned int link, unsigned int *is_active)
{
    int code = failing(device, "link");
    if (code)
        return code;
    if (!device->link_count)
        return NOT_SUPPORTED;
    if (link >= (unsigned int)device->link_count)
        return INVALID_ARGUMENT;
    *is_active = (unsigned int)device->links[link].is_active;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(device_t *device, unsigned int link, unsigned int *type)
{
    *type = (unsigned int)device->links[link].type;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *device, unsigned int link, pci_info_t *info)
{
    fill_pci(info, device->links[link].pci);
    return SUCCESS;
}

#ifndef WITHOUT_P2P
int nvmlDeviceGetP2PStatus(device_t *one, device_t *other, int caps_index, int *status)
{
    int at = 0, code = failing(one, "p2p");

    if (!code)
        code = failing(other, "p2p");
    if (code)
        return code;
    while (at < machine.gpu_count && machine.gpus[at] != other)
        at++;
    if (caps_index != P2P_CAPS_NVLINK || at == machine.gpu_count || one == other)
        return INVALID_ARGUMENT;
    if (at >= one->p2p_count)
        return NOT_SUPPORTED;
    *status = one->p2p[at];
    return SUCCESS;
}
#endif

int nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned int *count)
{
    (void)device;
    *count = MAX_MIGS + 1;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned int index, device_t **mig)
{
    /* The first place is empty, as one is from which a MIG device was taken away. */
    if (index == 0 || index > (unsigned int)device->mig_count)
        return NOT_FOUND;
    *mig = device->migs[index - 1];
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(device_t *mig, attributes_t *attributes)
{
    memcpy(attributes, mig->attributes, sizeof mig->attributes);
    attributes->memory_mib = mig->mig_memory;
    return SUCCESS;
}
