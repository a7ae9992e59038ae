/* What the training job prints: lines of JSON, the truth that a diagnosis is compared with. */
#include "report.h"

#include <stdio.h>
#include <sys/wait.h>

#include "options.h"

void report_start(struct control *control, const pid_t *burners) {
    const struct options *o = &control->options;
    printf("{\"event\":\"start\",\"job\":\"%s\",\"ranks\":%d,\"steps\":%d,\"comms\":\"%s\",\"pids\":[", o->job,
           o->ranks, o->steps, comms_names[o->comms]);
    for (int rank = 0; rank < o->ranks; rank++) {
        printf("%s%d", rank ? "," : "", control->rank[rank].pid);
    }
    printf("],\"burner_pids\":[");
    for (int i = 0; burners[i]; i++) {
        printf("%s%d", i ? "," : "", burners[i]);
    }
    printf("],\"fault\":\"%s\",\"fault_rank\":%d,\"every\":%d,\"fault_ms\":%g}\n", fault_names[o->fault], o->fault_rank,
           o->every, o->fault_ms);
    fflush(stdout);
}

static void report_communicator(struct control *control, int index) {
    const unsigned char *byte = (const unsigned char *)control->id[index].id.internal;
    const char *name = index == 0 ? "world" : index <= MAX_RANKS ? "dp" : "tp";
    int color = index == 0 ? 0 : (index - 1) % MAX_RANKS;
    printf("{\"event\":\"communicator\",\"name\":\"%s\",\"color\":%d,\"unique_id\":\"", name, color);
    for (int i = 0; i < NCCL_UNIQUE_ID_BYTES; i++) {
        printf("%02x", byte[i]);
    }
    printf("\"}\n");
}

static void report_faults(struct control *control) {
    const struct options *o = &control->options;
    for (int step = 0; step < o->steps; step++) {
        if (is_faulty(o, step, o->fault_rank)) {
            uint64_t lasted = record_of(control, step, o->fault_rank)->fault_ns;
            printf("{\"event\":\"fault\",\"step\":%d,\"rank\":%d,\"fault\":\"%s\",\"ms\":%.3f}\n", step, o->fault_rank,
                   fault_names[o->fault], (double)lasted / NS_PER_MS);
        }
    }
}

enum column { ENTER, RETURNED, SYNCED, CPU_NS, RUNQ_NS };

/* CPU and run queue time are of the window from the entry before to this one; the first step's is from the start. */
static uint64_t cell(struct control *control, int step, int rank, enum column column) {
    const struct step_record *here = record_of(control, step, rank), *before = here - control->options.ranks;
    switch (column) {
    case ENTER: return here->enter;
    case RETURNED: return here->returned;
    case SYNCED: return here->synced;
    case CPU_NS: return here->cpu - (step ? before->cpu : 0);
    default: return here->runq - (step ? before->runq : 0);
    }
}

static void report_step(struct control *control, int step) {
    static const char *const names[] = {"enter_ns", "returned_ns", "synced_ns", "cpu_ns", "runq_ns"};
    printf("{\"event\":\"step\",\"step\":%d", step);
    for (int column = ENTER; column <= RUNQ_NS; column++) {
        printf(",\"%s\":", names[column]);
        for (int rank = 0; rank < control->options.ranks; rank++) {
            printf("%c%llu", rank ? ',' : '[', (unsigned long long)cell(control, step, rank, (enum column)column));
        }
        printf("]");
    }
    printf("}\n");
}

static void report_calls(const struct control *control, int rank) {
    printf("{\"event\":\"calls\",\"rank\":%d,\"calls\":{", rank);
    for (const struct function_calls *f = control->rank[rank].functions; f->calls; f++) {
        printf("%s\"%s\":%d", f == control->rank[rank].functions ? "" : ",", f->name, f->calls);
    }
    printf("}}\n");
}

bool report_end(struct control *control, const int *status) {
    const struct options *o = &control->options;
    long checked = 0, wrong = 0;
    const char *comma = "";
    bool ok = true;

    for (int index = 0; index < MAX_IDS; index++) {
        if (atomic_load(&control->id[index].made)) {
            report_communicator(control, index);
        }
    }
    report_faults(control);
    for (int step = 0; o->timings && step < o->steps; step++) {
        report_step(control, step);
    }
    for (int rank = 0; rank < o->ranks; rank++) {
        report_calls(control, rank);
        checked += control->rank[rank].sums_checked;
        wrong += control->rank[rank].sums_wrong;
    }
    printf("{\"event\":\"end\",\"sums_checked\":%ld,\"sums_wrong\":%ld,\"failed\":[", checked, wrong);
    for (int rank = 0; rank < o->ranks; rank++) {
        if (status[rank]) {
            bool killed = WIFSIGNALED(status[rank]);
            printf("%s{\"rank\":%d,\"%s\":%d}", comma, rank, killed ? "signal" : "exit",
                   killed ? WTERMSIG(status[rank]) : WEXITSTATUS(status[rank]));
            comma = ",";
            ok = false;
        }
    }
    printf("],\"ok\":%s}\n", ok ? "true" : "false");
    return ok;
}
