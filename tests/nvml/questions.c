/* What is asked of the machine, its GPUs and their MIG devices. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nvml.h"

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info_t;

typedef struct {
    unsigned int multiprocessors, copy, decoder, encoder, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mib;
} attributes_t;

typedef struct {
    unsigned int field_id, scope_id;
    long long timestamp, latency;
    unsigned int value_type;
    int answer;
    union { double real; unsigned int number; unsigned long long big; } value;
} field_value_t;

typedef struct {
    unsigned int version;
    unsigned char cluster_uuid[16];
    int status;
    unsigned int clique, state, health_mask;
} fabric_t;   /* versions 2 and 3 begin alike */

_Static_assert(sizeof(pci_info_t) == 68 && sizeof(attributes_t) == 40, "as pynvml's");
_Static_assert(sizeof(field_value_t) == 40 && sizeof(fabric_t) == 36, "as pynvml's");

enum { P2P_CAPS_NVLINK = 2, FIELD_MEMORY_TEMPERATURE = 82, FIELD_RECOVERY_ACTION = 230, VALUE_UNSIGNED_INT = 1 };

void note(const char *name)
{
    const char *path = getenv("FAKE_NVML_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) {
        fprintf(log, "%s\n", name);
        fclose(log);
    }
}

/* ---------------------------------------------------------------- the machine */

API int nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    note("init");
    return open_machine();
}

API int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API int nvmlShutdown(void)
{
    note("shutdown");
    return close_machine();
}

API const char *nvmlErrorString(int code)
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

int number(int value, unsigned int *to)
{
    if (value < 0)
        return NOT_SUPPORTED;
    *to = (unsigned int)value;
    return SUCCESS;
}

API int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    MACHINE_QUESTION("driver");
    return text(machine.driver, version, size);
}

API int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    MACHINE_QUESTION("cuda");
    *version = machine.cuda;
    return SUCCESS;
}

API int nvmlDeviceGetCount_v2(unsigned int *count)
{
    MACHINE_QUESTION("count");
    *count = (unsigned int)machine.gpus.count;
    return SUCCESS;
}

/* ---------------------------------------------------------------- handles */

API int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t **device)
{
    GUARD;
    if (index >= (unsigned int)machine.gpus.count)
        return INVALID_ARGUMENT;
    *device = machine.gpus.at[index];
    return failing(*device, "handle");
}

static device_t *named(const devices_t *devices, const char *uuid)
{
    for (int i = 0; i < devices->count; i++)
        if (!strcmp(devices->at[i]->facts.uuid, uuid))
            return devices->at[i];
    return NULL;
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, device_t **device)
{
    GUARD;
    *device = named(&machine.gpus, uuid);
    for (int i = 0; !*device && i < machine.gpus.count; i++)
        *device = named(&machine.gpus.at[i]->migs, uuid);
    return *device ? failing(*device, "handle") : NOT_FOUND;
}

API int nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned int *count)
{
    QUESTION(device, "migcount");
    *count = MAX_MIGS + 1;
    return SUCCESS;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned int index, device_t **mig)
{
    QUESTION(device, "mig");
    /* The first place is empty, as one is from which a MIG device was taken away. */
    if (index == 0 || index > (unsigned int)device->migs.count)
        return NOT_FOUND;
    *mig = device->migs.at[index - 1];
    return SUCCESS;
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t *mig, device_t **device)
{
    QUESTION(mig, "handle");
    *device = mig->parent;
    return *device ? SUCCESS : INVALID_ARGUMENT;
}

/* ---------------------------------------------------------------- a GPU or a MIG device */

API int nvmlDeviceGetName(device_t *device, char *name, unsigned int size)
{
    QUESTION(device, "name");
    return text(device->facts.name, name, size);
}

API int nvmlDeviceGetUUID(device_t *device, char *uuid, unsigned int size)
{
    QUESTION(device, "uuid");
    return text(device->facts.uuid, uuid, size);
}

static void fill_pci(pci_info_t *info, const char *bus_id)
{
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "%s", bus_id);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%s", strlen(bus_id) > 12 ? bus_id + 4 : bus_id);
}

API int nvmlDeviceGetPciInfo_v3(device_t *device, pci_info_t *info)
{
    QUESTION(device, "pci");
    fill_pci(info, device->facts.pci);
    info->pci_device_id = device->facts.pci_id;
    return SUCCESS;
}

API int nvmlDeviceGetMinorNumber(device_t *device, unsigned int *minor)
{
    QUESTION(device, "minor");
    return number(device->facts.device_minor, minor);
}

API int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor)
{
    QUESTION(device, "compute");
    *major = device->facts.major;
    *minor = device->facts.minor;
    return device->facts.major < 0 ? NOT_SUPPORTED : SUCCESS;
}

API int nvmlDeviceGetEccMode(device_t *device, unsigned int *current, unsigned int *pending)
{
    QUESTION(device, "ecc");
    *pending = 0;
    return number(device->facts.ecc, current);
}

API int nvmlDeviceGetPersistenceMode(device_t *device, unsigned int *mode)
{
    QUESTION(device, "persistence");
    return number(device->facts.persistence, mode);
}

API int nvmlDeviceGetMigMode(device_t *device, unsigned int *current, unsigned int *pending)
{
    QUESTION(device, "migmode");
    *pending = (unsigned int)device->facts.mig_pending;
    return number(device->facts.mig_mode, current);
}

API int nvmlDeviceGetVirtualizationMode(device_t *device, unsigned int *mode)
{
    QUESTION(device, "virtualization");
    return number(device->facts.virtualization, mode);
}

API int nvmlDeviceGetAttributes_v2(device_t *device, attributes_t *attributes)
{
    QUESTION(device, "attributes");
    if (!device->parent)
        return NOT_SUPPORTED;
    memcpy(attributes, device->facts.attributes, sizeof device->facts.attributes);
    attributes->memory_mib = device->facts.mig_memory;
    return SUCCESS;
}

API int nvmlDeviceGetGpuInstanceId(device_t *device, unsigned int *id)
{
    QUESTION(device, "gi");
    return number(device->facts.gi, id);
}

API int nvmlDeviceGetComputeInstanceId(device_t *device, unsigned int *id)
{
    QUESTION(device, "ci");
    return number(device->facts.ci, id);
}

/* ---------------------------------------------------------------- links */

API int nvmlDeviceGetNvLinkState(device_t *device, unsigned int link, unsigned int *is_active)
{
    QUESTION(device, "link");
    if (!device->facts.link_count)
        return NOT_SUPPORTED;
    if (link >= (unsigned int)device->facts.link_count)
        return INVALID_ARGUMENT;
    *is_active = (unsigned int)device->facts.links[link].is_active;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType(device_t *device, unsigned int link, unsigned int *type)
{
    QUESTION(device, "linktype");
    if (link >= (unsigned int)device->facts.link_count)
        return INVALID_ARGUMENT;
    *type = (unsigned int)device->facts.links[link].type;
    return SUCCESS;
}

API int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t *device, unsigned int link, pci_info_t *info)
{
    QUESTION(device, "linkpci");
    if (link >= (unsigned int)device->facts.link_count)
        return INVALID_ARGUMENT;
    fill_pci(info, device->facts.links[link].pci);
    return SUCCESS;
}

/* ---------------------------------------------------------------- what older drivers lack */

#ifndef OLD_DRIVER

API int nvmlDeviceGetP2PStatus(device_t *one, device_t *other, int caps_index, int *status)
{
    int at = 0;

    QUESTION(one, "p2p");
    if ((code = failing(other, "p2p")))
        return code;
    while (at < machine.gpus.count && machine.gpus.at[at] != other)
        at++;
    if (caps_index != P2P_CAPS_NVLINK || at == machine.gpus.count || one == other)
        return INVALID_ARGUMENT;
    if (at >= one->facts.p2p_count)
        return NOT_SUPPORTED;
    *status = one->facts.p2p[at];
    return SUCCESS;
}

static void fill_field(const device_t *device, field_value_t *field, int fault)
{
    field->value_type = VALUE_UNSIGNED_INT;
    field->answer = fault ? fault : NOT_SUPPORTED;
    if (!fault && field->field_id == FIELD_RECOVERY_ACTION)
        field->answer = number(device->facts.recovery, &field->value.number);
    if (!fault && field->field_id == FIELD_MEMORY_TEMPERATURE)
        field->answer = small_amount(device, MEMORY_TEMPERATURE, &field->value.number);
}

/* Each field has a result of its own: "fault field" is that of each, "fault fields" that of the whole question. */
API int nvmlDeviceGetFieldValues(device_t *device, int count, field_value_t *fields)
{
    QUESTION(device, "fields");
    for (int i = 0; i < count; i++)
        fill_field(device, &fields[i], failing(device, "field"));
    return SUCCESS;
}

API int nvmlDeviceGetRemappedRows(device_t *device, unsigned int *correctable, unsigned int *uncorrectable,
                                  unsigned int *pending, unsigned int *failed)
{
    QUESTION(device, "rows");
    const int *rows = device->facts.rows;
    if (rows[0] < 0)
        return NOT_SUPPORTED;
    *correctable = (unsigned int)rows[0];
    *uncorrectable = (unsigned int)rows[1];
    *pending = (unsigned int)rows[2];
    *failed = (unsigned int)rows[3];
    return SUCCESS;
}

API int nvmlDeviceGetGpuFabricInfoV(device_t *device, fabric_t *fabric)
{
    QUESTION(device, "fabric");
    if (fabric->version >> 24 != 2 && fabric->version >> 24 != 3)
        return VERSION_MISMATCH;
    fabric->status = device->facts.fabric_status;
    fabric->clique = fabric->health_mask = 0;
    return number(device->facts.fabric_state, &fabric->state);
}

#endif
