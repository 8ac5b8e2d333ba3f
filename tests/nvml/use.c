/* How much a GPU or a MIG device is used: clocks, temperatures, power, utilization, memory and counters of errors. */
#include <string.h>

#include "fake_nvml.h"

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int version; int sensor, temperature; } temperature_t;

_Static_assert(sizeof(memory_t) == 24 && sizeof(memory_v2_t) == 40 && sizeof(temperature_t) == 12, "as pynvml's");

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, MEMORY_V2 = 0x02000028, TEMPERATURE_V1 = 0x0100000C };

static int amount(const device_t *device, int which, unsigned long long *to)
{
    if (!device->facts.amounts[which].is_said)
        return NOT_SUPPORTED;
    *to = device->facts.amounts[which].number;
    return SUCCESS;
}

int small_amount(const device_t *device, int which, unsigned int *to)
{
    unsigned long long found = 0;
    int code = amount(device, which, &found);

    *to = (unsigned int)found;
    return code;
}

/* ---------------------------------------------------------------- clocks, temperature, power */

API int nvmlDeviceGetClockInfo(device_t *device, int type, unsigned int *mhz)
{
    QUESTION(device, "clock");
    if (type != CLOCK_SM && type != CLOCK_MEMORY)
        return INVALID_ARGUMENT;
    return small_amount(device, type == CLOCK_SM ? SM_CLOCK : MEMORY_CLOCK, mhz);
}

API int nvmlDeviceGetTemperature(device_t *device, int sensor, unsigned int *celsius)
{
    QUESTION(device, "temperature");
    return sensor ? INVALID_ARGUMENT : small_amount(device, TEMPERATURE, celsius);
}

API int nvmlDeviceGetPowerUsage(device_t *device, unsigned int *milliwatts)
{
    QUESTION(device, "power");
    return small_amount(device, POWER, milliwatts);
}

API int nvmlDeviceGetTotalEnergyConsumption(device_t *device, unsigned long long *millijoules)
{
    QUESTION(device, "energy");
    return amount(device, ENERGY, millijoules);
}

API int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *device, unsigned long long *reasons)
{
    QUESTION(device, "throttle");
    return amount(device, THROTTLE, reasons);
}

/* ---------------------------------------------------------------- utilization */

static int is_in_mig_mode(const device_t *device)
{
    return device->parent || device->facts.mig_mode == 1;
}

API int nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *rates)
{
    QUESTION(device, "utilization");
    if (is_in_mig_mode(device) || small_amount(device, MEMORY_BUSY, &rates->memory))
        return NOT_SUPPORTED;
    return small_amount(device, BUSY, &rates->gpu);
}

static int engine(const device_t *device, int which, unsigned int *percent, unsigned int *microseconds)
{
    *microseconds = 167000;
    return is_in_mig_mode(device) ? NOT_SUPPORTED : small_amount(device, which, percent);
}

API int nvmlDeviceGetEncoderUtilization(device_t *device, unsigned int *percent, unsigned int *microseconds)
{
    QUESTION(device, "encoder");
    return engine(device, ENCODER, percent, microseconds);
}

API int nvmlDeviceGetDecoderUtilization(device_t *device, unsigned int *percent, unsigned int *microseconds)
{
    QUESTION(device, "decoder");
    return engine(device, DECODER, percent, microseconds);
}

/* ---------------------------------------------------------------- memory */

/* A process that is in both lists counts once: with what it has more than in the lines before. */
static unsigned long long share_of(const process_t *processes, int place)
{
    unsigned long long before = 0, its = processes[place].memory;

    for (int i = 0; i < place; i++)
        if (processes[i].pid == processes[place].pid && ~processes[i].memory && processes[i].memory > before)
            before = processes[i].memory;
    return ~its && its > before ? its - before : 0;
}

static unsigned long long of_processes(const device_t *device)
{
    unsigned long long sum = 0;

    for (int i = 0; i < device->facts.process_count; i++)
        sum += share_of(device->facts.processes, i);
    for (int i = 0; i < device->migs.count; i++)
        sum += of_processes(device->migs.at[i]);
    return sum;
}

static int fill_memory(const device_t *device, memory_v2_t *memory)
{
    memory->total = device->parent ? device->facts.mig_memory << 20 : device->facts.memory;
    memory->reserved = device->facts.amounts[MEMORY_RESERVED].number;
    memory->used = of_processes(device);
    amount(device, MEMORY_USED, &memory->used);
    unsigned long long taken = memory->used + memory->reserved;
    memory->free = taken < memory->total ? memory->total - taken : 0;
    return memory->total ? SUCCESS : NOT_SUPPORTED;
}

/* Its used memory includes what the driver has reserved for itself, unlike that of the second version. */
API int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory)
{
    memory_v2_t all;

    QUESTION(device, "memory");
    code = fill_memory(device, &all);
    *memory = (memory_t){all.total, all.free, all.used + all.reserved};
    return code;
}

/* ---------------------------------------------------------------- errors */

API int nvmlDeviceGetPcieReplayCounter(device_t *device, unsigned int *count)
{
    QUESTION(device, "replays");
    return small_amount(device, PCIE_REPLAYS, count);
}

API int nvmlDeviceGetTotalEccErrors(device_t *device, unsigned int type, unsigned int counter,
                                    unsigned long long *count)
{
    QUESTION(device, "eccerrors");
    if (type > 1 || counter > 1)
        return INVALID_ARGUMENT;
    return amount(device, ECC_ERRORS + 2 * (int)counter + (int)type, count);
}

/* ---------------------------------------------------------------- what older drivers lack */

#ifndef OLD_DRIVER

API int nvmlDeviceGetTemperatureV(device_t *device, temperature_t *temperature)
{
    QUESTION(device, "temperaturev");
    if (temperature->version != TEMPERATURE_V1)
        return VERSION_MISMATCH;
    return small_amount(device, TEMPERATURE, (unsigned int *)&temperature->temperature);
}

API int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *reasons)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}

API int nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *memory)
{
    QUESTION(device, "memory2");
    return memory->version == MEMORY_V2 ? fill_memory(device, memory) : VERSION_MISMATCH;
}

#endif
