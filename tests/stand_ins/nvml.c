/* Stands in for NVIDIA's management library: its symbols and its structures (nvml.h of CUDA 12), answers by a script.
 *
 * SCRIPT (-DSCRIPT="...") is a file of lines `figure device value...`, read anew at each call. A device is `0`, or `0.1`
 * for part 1 of GPU 0; `-` is the machine. A value that begins with E is the error of that number; a figure without a line
 * is not supported. Events are told once, in the order of their lines. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int Return;
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };

/* The line'th line of a figure; 1 where there is one. */
static int line_of(const char *figure, const char *device, int line, char *value, size_t size) {
    FILE *file = fopen(SCRIPT, "r");
    char text[512];
    int found = 0;
    while (file && fgets(text, sizeof text, file)) {
        char name[64], of[64];
        int at = 0;
        if (sscanf(text, "%63s %63s %n", name, of, &at) < 2 || strcmp(name, figure) || strcmp(of, device)) continue;
        if (line-- > 0) continue;
        text[strcspn(text, "\n")] = 0;
        snprintf(value, size, "%s", text + at);
        found = 1;
        break;
    }
    if (file) fclose(file);
    return found;
}

static Return text_of(const char *figure, const char *device, char *value, size_t size) {
    if (!line_of(figure, device, 0, value, size)) return NOT_SUPPORTED;
    return value[0] == 'E' ? atoi(value + 1) : SUCCESS;
}

static Return number(const char *figure, const char *device, unsigned long long *value) {
    char text[256];
    Return answer = text_of(figure, device, text, sizeof text);
    if (answer == SUCCESS) *value = strtoull(text, NULL, 0);
    return answer;
}

static Return unsigned_of(const char *figure, const char *device, unsigned *value) {
    unsigned long long wide = 0;
    Return answer = number(figure, device, &wide);
    if (answer == SUCCESS) *value = (unsigned)wide;
    return answer;
}

/* A handle is its device's name. */
static const char *handle(const char *name) {
    static char names[64][16];
    for (int i = 0; i < 64; i++) {
        if (!names[i][0]) snprintf(names[i], sizeof names[i], "%s", name);
        if (!strcmp(names[i], name)) return names[i];
    }
    return NULL;
}

Return nvmlInit_v2(void) {
    unsigned long long ignored;
    Return answer = number("init", "-", &ignored);
    return answer == NOT_SUPPORTED ? SUCCESS : answer;
}
Return nvmlShutdown(void) { return SUCCESS; }
Return nvmlSystemGetDriverVersion(char *version, unsigned length) { return text_of("driver", "-", version, length); }
Return nvmlDeviceGetCount_v2(unsigned *count) { return unsigned_of("count", "-", count); }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, const char **device) {
    char name[16];
    unsigned long long ignored;
    snprintf(name, sizeof name, "%u", index);
    *device = handle(name);
    Return answer = number("handle", name, &ignored);
    return answer == NOT_SUPPORTED ? SUCCESS : answer;
}
Return nvmlDeviceGetUUID(const char *d, char *uuid, unsigned length) { return text_of("uuid", d, uuid, length); }
Return nvmlDeviceGetName(const char *d, char *name, unsigned length) { return text_of("name", d, name, length); }

typedef struct { unsigned gpu, memory; } Utilization;
Return nvmlDeviceGetUtilizationRates(const char *d, Utilization *rates) {
    Return answer = unsigned_of("busy", d, &rates->gpu);
    return answer == SUCCESS ? unsigned_of("memory_busy", d, &rates->memory) : answer;
}
Return nvmlDeviceGetEncoderUtilization(const char *d, unsigned *busy, unsigned *period) {
    *period = 167000;
    return unsigned_of("encoder", d, busy);
}
Return nvmlDeviceGetDecoderUtilization(const char *d, unsigned *busy, unsigned *period) {
    *period = 167000;
    return unsigned_of("decoder", d, busy);
}

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
Return nvmlDeviceGetMemoryInfo_v2(const char *d, Memory *memory) {
    char text[256];
    if (memory->version != (sizeof *memory | 2u << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    Return answer = text_of("memory", d, text, sizeof text);
    if (answer == SUCCESS)
        sscanf(text, "%llu %llu %llu %llu", &memory->total, &memory->reserved, &memory->free, &memory->used);
    return answer;
}

Return nvmlDeviceGetPowerUsage(const char *d, unsigned *mw) { return unsigned_of("power", d, mw); }
Return nvmlDeviceGetEnforcedPowerLimit(const char *d, unsigned *mw) { return unsigned_of("power_limit", d, mw); }
Return nvmlDeviceGetTotalEnergyConsumption(const char *d, unsigned long long *mj) { return number("energy", d, mj); }
Return nvmlDeviceGetTemperature(const char *d, int sensor, unsigned *celsius) {
    return sensor == 0 ? unsigned_of("temperature", d, celsius) : NOT_SUPPORTED;
}
Return nvmlDeviceGetClockInfo(const char *d, unsigned domain, unsigned *mhz) {
    static const char *const names[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
    return domain < 4 ? unsigned_of(names[domain], d, mhz) : NOT_SUPPORTED;
}
Return nvmlDeviceGetCurrentClocksThrottleReasons(const char *d, unsigned long long *reasons) {
    return number("throttles", d, reasons);
}
Return nvmlDeviceGetPcieThroughput(const char *d, unsigned counter, unsigned *kilobytes) {
    return unsigned_of(counter == 0 ? "pcie_sent" : "pcie_received", d, kilobytes);
}
Return nvmlDeviceGetTotalEccErrors(const char *d, unsigned kind, unsigned counter, unsigned long long *count) {
    if (counter != 0) return NOT_SUPPORTED;
    return number(kind == 0 ? "ecc_corrected" : "ecc_uncorrected", d, count);
}

typedef struct {
    unsigned id, scope;
    long long timestamp, latency;
    unsigned type;
    Return answer;
    union { double d; unsigned u; unsigned long long ull; } value;
} Field;
Return nvmlDeviceGetFieldValues(const char *d, int count, Field *fields) {
    for (int i = 0; i < count; i++) {
        const char *figure = fields[i].id == 138 ? "nvlink_sent" : fields[i].id == 139 ? "nvlink_received" : "";
        fields[i].type = 3; /* unsigned long long */
        /* All links together only. */
        fields[i].answer = fields[i].scope == 0xffffffffu ? number(figure, d, &fields[i].value.ull) : NOT_SUPPORTED;
    }
    return SUCCESS;
}

Return nvmlDeviceGetMigMode(const char *d, unsigned *current, unsigned *pending) {
    Return answer = unsigned_of("mig", d, current);
    *pending = *current;
    return answer;
}
Return nvmlDeviceGetMaxMigDeviceCount(const char *d, unsigned *count) { return unsigned_of("mig_count", d, count); }
Return nvmlDeviceGetMigDeviceHandleByIndex(const char *d, unsigned index, const char **part) {
    char name[16], ignored[64];
    snprintf(name, sizeof name, "%s.%u", d, index);
    *part = handle(name);
    return line_of("uuid", name, 0, ignored, sizeof ignored) ? SUCCESS : NOT_FOUND;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
static Return processes(const char *figure, const char *d, unsigned *count, Process *list) {
    unsigned room = *count, have = 0;
    char text[128];
    while (line_of(figure, d, (int)have, text, sizeof text)) {
        if (text[0] == 'E') return atoi(text + 1);
        if (have < room && list) {
            unsigned pid = 0;
            unsigned long long memory = 0;
            int told = sscanf(text, "%u %llu", &pid, &memory);
            list[have] = (Process){pid, told > 1 ? memory : ~0ull, 0xffffffffu, 0xffffffffu};
        }
        have++;
    }
    *count = have;
    return have > room ? INSUFFICIENT_SIZE : SUCCESS;
}
Return nvmlDeviceGetComputeRunningProcesses_v3(const char *d, unsigned *count, Process *list) {
    return processes("process", d, count, list);
}
Return nvmlDeviceGetMPSComputeRunningProcesses_v3(const char *d, unsigned *count, Process *list) {
    return processes("mps", d, count, list);
}

typedef struct { unsigned pid; unsigned long long timestamp; unsigned sm, memory, encoder, decoder; } Sample;
Return nvmlDeviceGetProcessUtilization(const char *d, Sample *list, unsigned *count, unsigned long long since) {
    unsigned room = *count, have = 0;
    char text[128];
    for (int line = 0; line_of("sample", d, line, text, sizeof text); line++) {
        Sample sample = {0};
        sscanf(text, "%u %llu %u", &sample.pid, &sample.timestamp, &sample.sm);
        if (sample.timestamp <= since) continue;
        if (have < room && list) list[have] = sample;
        have++;
    }
    *count = have;
    if (have == 0) return NOT_FOUND;
    return have > room ? INSUFFICIENT_SIZE : SUCCESS;
}

typedef struct { const char *device; int told; } Set;
typedef struct { const char *device; unsigned long long type, data; unsigned instance, compute; } Event;
Return nvmlEventSetCreate(Set **set) { *set = calloc(1, sizeof **set); return SUCCESS; }
Return nvmlDeviceRegisterEvents(const char *d, unsigned long long types, Set *set) {
    if (types != 8) return NOT_SUPPORTED; /* critical XID errors */
    set->device = d;
    return SUCCESS;
}
Return nvmlEventSetWait_v2(Set *set, Event *event, unsigned milliseconds) {
    char text[64];
    (void)milliseconds;
    if (!line_of("xid", set->device, set->told, text, sizeof text)) return TIMEOUT;
    set->told++;
    *event = (Event){set->device, 8, strtoull(text, NULL, 0), 0, 0};
    return SUCCESS;
}
Return nvmlEventSetFree(Set *set) { free(set); return SUCCESS; }
