/*
 * A libnvidia-ml.so.1 for tests: the part of NVML's interface that nvml_inventory uses, answering for a machine that a
 * text file describes. Structures and numbers are those of NVIDIA's public NVML reference.
 *
 * The file is FAKE_NVML_MACHINE, or fake_nvml_machine beside the library. It is read again whenever it has changed, by
 * each process that has loaded the library: replace it by a rename. A handle stays that of its GPU: of the one with the
 * same UUID, otherwise of the one in the same place. One "key value" a line. "gpu" begins a GPU, "mig" a MIG device of
 * the GPU above, "link" an NVLink of it; what is not said is answered with "not supported".
 *
 *   driver 550.54.15        cuda 12040
 *   control /dev/nvidiactl  what the library has open from nvmlInit to nvmlShutdown; without it no driver is loaded
 *   gpu
 *   name NVIDIA H100        uuid GPU-1        pci 00000000:3B:00.0      minor 0
 *   memory 85520809984      compute 9 0       ecc 1   persistence 1     migmode 1   virtualization 2
 *   link 0 00000000:4C:00.0 (type of the remote device: 0 GPU, 2 switch; "link off" is inactive)
 *   p2p 0 5 6               status of NVLink to each GPU by index, as in nvmlGpuP2PStatus_t
 *   recovery 0              field 230, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
 *   rows 0 1 0 1            remapped rows: correctable, uncorrectable, pending, failed
 *   fabric 3 0              state and status of the registration with the fabric
 *   events 8                types of events that the GPU supports
 *   xid 7 79                Xid 79; 7 is its number in the file, each is greater than those that appeared before
 *   xid 8 94 1 0            Xid 94 of GPU instance 1, compute instance 0
 *   lost 15                 this error to every question about the GPU, also to a wait for its events; it is counted as
 *                           before. When it is no longer lost, its events have to be registered again
 *   mig                     name ...          uuid MIG-1      gi 1     ci 0
 *   attributes 14 1 0 0 0 0 1 1 4864         as in nvmlDeviceAttributes_t, memory in MiB last
 *
 * How much a GPU or a MIG device is used; names are those of device_agent/gpu_state/use.py as far as units agree:
 *
 *   temperature_c 41        see AMOUNT_NAMES in parse.c; without memory_used it is what the processes have together
 *   sm_active 0.25          by GPM, see GPM_NAMES in parse.c; gpm 1 of a GPU: it supports GPM
 *   process 4242 1048576    a process and its memory, or "none" where NVML does not know it; "graphics" behind that
 *                           puts it into that list instead of compute's
 *   busy 4242 37            a sample of a process' SM utilization, which each question finds new;
 *   busy 4242 37 1000       one of this time
 *   nosamples 6             the answer where no sample is new, 0 or 6; without it the question is not supported
 *   limits 1                memory limits of cgroups are supported: limits.c keeps them in the file with .limits added
 *
 * A GPU with profiles is one whose MIG mode and instances programs may change. What they made of it is in the file with
 * .mig added (mig_file.c), which all processes share, and each change is a line of the one with .changes added:
 *
 *   profile 9 15 1 4 2 14 1 1 0 0 0 9856 1g.10gb 0 2 4 6
 *                           NVML's index, id, compute slices, how many fit, memory slices, multiprocessors, engines (copy,
 *                           decoder, encoder, JPEG, OFA), memory in MiB, name or -, and where one may start
 *   migmode 1               the mode until a program changes it
 *   mig                     with uuid and how much it is used: of an instance that a program made, if it is there
 *   newminor 9              the minor number while in MIG mode
 *   activation 19           what a switch of the mode answers as its status; nothing is switched but what is pending
 *   resetrequired 1         a switch is pending until the machine boots
 *   pciid 20b010de          device and vendor
 *   proc /x                 of the machine: where instances and minors are written as in /proc/driver/nvidia
 *   dieat 7                 of the machine: SIGKILL at the seventh point: there is one before each change and one after it
 *
 * Above the first "gpu" for the machine, below it for that GPU and its MIG devices:
 *
 *   fault PLACE 999         answer with this error        hang PLACE    do not answer while the file says so
 *   crash PLACE             abort                         run PLACE     start a program that does not end, and wait for
 *   kill PLACE              SIGKILL                                     it, as NVIDIA's library does with nvidia-modprobe
 *
 * PLACE is for the machine: init shutdown driver cuda count eventset wait gpmalloc gpmmetrics; for a GPU: handle and what
 * the other files name in their QUESTIONs; "setmig+" and the like are behind the change that they are named after.
 *
 * nvmlInit, nvmlShutdown, nvmlGpmSampleAlloc and nvmlGpmSampleFree append what they did to the file FAKE_NVML_LOG.
 * Built with -DOLD_DRIVER it is the library of a driver that lacks newer functions: see OLD_DRIVER.
 */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#include <stdio.h>

#define API __attribute__((visibility("default")))

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16, IN_USE = 19, INSUFFICIENT_RESOURCES = 23,
    VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { HANG = -1, CRASH = -2, RUN = -3, KILL = -4 };
enum { MAX_GPUS = 16, MAX_MIGS = 7, MAX_DEVICES = MAX_GPUS, MAX_LINKS = 18, MAX_FAULTS = 8, MAX_XIDS = 64, TEXT = 96 };
enum { MAX_PROFILES = 8, MAX_SLICES = 8, ENGINES = 5 };
enum {
    SM_CLOCK, MEMORY_CLOCK, TEMPERATURE, MEMORY_TEMPERATURE, POWER, ENERGY, BUSY, MEMORY_BUSY, ENCODER, DECODER,
    MEMORY_USED, MEMORY_RESERVED, PCIE_REPLAYS, ECC_ERRORS, THROTTLE = ECC_ERRORS + 4, AMOUNTS
};
enum { GPM_METRICS = 4 };

typedef struct { char where[24]; int code; } fault_t;
typedef struct { fault_t at[MAX_FAULTS]; int count; } faults_t;
typedef struct { int is_active, type; char pci[32]; } link_t;
typedef struct { unsigned long long sequence, number; unsigned int gi, ci; } xid_t;
typedef struct { int is_said; unsigned long long number; } amount_t;
typedef struct { int is_said; double share; } share_t;
typedef struct { unsigned int pid; int is_graphics; unsigned long long memory; } process_t;
typedef struct { unsigned int pid, percent; unsigned long long time; } busy_t;
typedef struct {
    unsigned int index, id, slices, instances, size, multiprocessors, engines[ENGINES], starts[MAX_SLICES];
    int start_count;
    unsigned long long memory_mib;
    char name[24];
} profile_t;
typedef struct { unsigned int id, profile, start; } gi_t;

/* What the file says of a GPU or a MIG device; numbers are -1 where it says nothing. */
typedef struct {
    char name[TEXT], uuid[TEXT], pci[32];
    unsigned long long memory;
    int major, minor, ecc, persistence, mig_mode, virtualization, device_minor, gi, ci, recovery, events;
    int fabric_state, fabric_status, rows[4];
    int lost, p2p_count, p2p[MAX_GPUS];
    unsigned int attributes[8];
    unsigned long long mig_memory;
    link_t links[MAX_LINKS];
    int link_count, xid_count;
    xid_t xids[MAX_XIDS];
    faults_t faults;
    amount_t amounts[AMOUNTS];
    share_t shares[GPM_METRICS];
    int gpm, limits, no_samples;
    profile_t profiles[MAX_PROFILES];
    gi_t gis[MAX_SLICES];
    int profile_count, gi_count, mig_pending, new_minor, text_minor, activation, reset_required;
    unsigned int pci_id, ci_slices, ci_start;
    process_t *processes;                  /* this and samples: of the heap */
    busy_t *samples;
    int process_count, sample_count;
} facts_t;

typedef struct { struct device *at[MAX_DEVICES]; int count; } devices_t;

/* What a handle points to. It is never freed. */
typedef struct device {
    facts_t facts;
    struct device *parent, *next;
    devices_t migs;
    int is_there;
    unsigned int registration;             /* grows when registered events are forgotten */
    unsigned long long forgotten_after;    /* the newest Xid that an older registration still gets */
} device_t;

typedef struct {
    char driver[80], control[TEXT], proc[160];
    int cuda;
    unsigned int points, writes, die_at;
    faults_t faults;
    devices_t gpus;
} machine_t;

/* What one reading of the file found: too much for the stack. */
typedef struct {
    machine_t machine;
    int gpu_count, mig_counts[MAX_GPUS];
    facts_t gpus[MAX_GPUS], migs[MAX_GPUS][MAX_MIGS];
} reading_t;

extern machine_t machine;

void parse(reading_t *found, FILE *file);
facts_t *no_facts(facts_t *facts);
void read_mig(reading_t *found);                          /* put in what programs made of GPUs with profiles */
device_t *new_device(device_t *parent);
const char *mig_path(void);
int begin_change(void);                                   /* wait for others, read anew, pass a point */
int end_change(const char *line);                         /* write, pass a point, let others in */
void abandon_change(void);                                /* let others in; nothing has changed */
void write_proc(void);
int refresh(void);
const profile_t *profile_of(const facts_t *facts, unsigned int id);

int enter(void);                                           /* lock, read the file if it has changed */
void leave(int *unused);                                   /* unlock */
void sleep_outside(unsigned int microseconds);             /* unlock, sleep, lock, read the file if it has changed */
int open_machine(void);                                    /* for nvmlInit: what it answers */
int close_machine(void);                                   /* for nvmlShutdown */
int machine_fault(const char *where);
int failing(const device_t *device, const char *where);   /* the error for a question about a device */
void forget_event_sets(void);
const char *machine_path(void);
void note(const char *name);                              /* append to FAKE_NVML_LOG */
int number(int value, unsigned int *to);                  /* not supported when it is negative */
int small_amount(const device_t *device, int which, unsigned int *to);

/* The beginning of each function: code is the error, and holds the lock until the function ends. */
#define GUARD __attribute__((cleanup(leave))) int code = enter(); if (code) return code
#define MACHINE_QUESTION(where) GUARD; if ((code = machine_fault(where))) return code
#define QUESTION(device, where) GUARD; if ((code = failing(device, where))) return code

#endif
