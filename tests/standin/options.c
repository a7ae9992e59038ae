/* The command line of the training job. */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

const char *const fault_names[] = {"none", "sleep", "cpu", "stop", "contention", "alloc", "die", "corrupt", NULL};
const char *const comms_names[] = {"world", "dp-tp", "pp", NULL};
static const char *const init_names[] = {"split", "id", NULL};

static const char usage[] =
    "train [--ranks 8] [--steps 42] [--step-ms 3] [--kernel-ms 1] [--floats 1024]\n"
    "      [--comms world|dp-tp|pp] [--comm-init split|id] [--ranks-per-node RANKS]\n"
    "      [--fault none|sleep|cpu|stop|contention|alloc|die|corrupt] [--rank 5] [--every 14] [--fault-ms 290]\n"
    "      [--burners 3] [--calls N] [--timings] [--job NAME] [--wait-for FILE]\n"
    "Runs a training job of so many processes on the stand-in libraries and prints what was wrong with it, as lines\n"
    "of JSON. The fault hits one rank in each step with step % every == every - 1, counted from 0: it sleeps,\n"
    "computes, is stopped, has its CPU taken by others, or allocates, for --fault-ms; or it dies, or adds 1 to its\n"
    "gradient. --calls N: instead, one process calls each function N times. --wait-for FILE: the ranks have mapped\n"
    "the libraries when the first line is printed, and call nothing before FILE exists. --timings: a line per step.\n"
    "Exit code: 0, or 1 when a rank failed or a sum was wrong, or 2 for wrong usage.\n";

enum {
    RANKS = 1, STEPS, STEP_MS, KERNEL_MS, FLOATS, COMMS, COMM_INIT, PER_NODE, FAULT, RANK, EVERY, FAULT_MS, BURNERS,
    CALLS, TIMINGS, JOB, WAIT_FOR, HELP,
};

static const struct option known[] = {
    {"ranks", 1, NULL, RANKS},
    {"steps", 1, NULL, STEPS},
    {"step-ms", 1, NULL, STEP_MS},
    {"kernel-ms", 1, NULL, KERNEL_MS},
    {"floats", 1, NULL, FLOATS},
    {"comms", 1, NULL, COMMS},
    {"comm-init", 1, NULL, COMM_INIT},
    {"ranks-per-node", 1, NULL, PER_NODE},
    {"fault", 1, NULL, FAULT},
    {"rank", 1, NULL, RANK},
    {"every", 1, NULL, EVERY},
    {"fault-ms", 1, NULL, FAULT_MS},
    {"burners", 1, NULL, BURNERS},
    {"calls", 1, NULL, CALLS},
    {"timings", 0, NULL, TIMINGS},
    {"job", 1, NULL, JOB},
    {"wait-for", 1, NULL, WAIT_FOR},
    {"help", 0, NULL, HELP},
    {NULL, 0, NULL, 0},
};

static _Noreturn void wrong_usage(const char *name, const char *text) {
    fprintf(stderr, "train: --%s: cannot be %s\n%s", name, text, usage);
    exit(2);
}

static double number(const char *name, const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || value < least || value > most) {
        wrong_usage(name, text);
    }
    return value;
}

static int one_of(const char *name, const char *text, const char *const names[]) {
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    wrong_usage(name, text);
}

static void copy_text(const char *name, const char *text, char *into, size_t room) {
    if (strlen(text) >= room || strpbrk(text, "\"\\\n")) { /* it is printed between quotes */
        wrong_usage(name, text);
    }
    strcpy(into, text);
}

static void set_option(struct options *o, int which, const char *name, const char *text) {
    switch (which) {
    case RANKS: o->ranks = (int)number(name, text, 1, MAX_RANKS); break;
    case STEPS: o->steps = (int)number(name, text, 1, 1e6); break;
    case STEP_MS: o->step_ms = number(name, text, 0, 1e5); break;
    case KERNEL_MS: o->kernel_ms = number(name, text, 0, 1e5); break;
    case FLOATS: o->floats = (int)number(name, text, 1, 1e8); break;
    case COMMS: o->comms = (enum comms)one_of(name, text, comms_names); break;
    case COMM_INIT: o->split = one_of(name, text, init_names) == 0; break;
    case PER_NODE: o->ranks_per_node = (int)number(name, text, 1, MAX_RANKS); break;
    case FAULT: o->fault = (enum fault)one_of(name, text, fault_names); break;
    case RANK: o->fault_rank = (int)number(name, text, 0, MAX_RANKS - 1); break;
    case EVERY: o->every = (int)number(name, text, 1, 1e6); break;
    case FAULT_MS: o->fault_ms = number(name, text, 0, 1e5); break;
    case BURNERS: o->burners = (int)number(name, text, 1, MAX_BURNERS); break;
    case CALLS: o->calls = (int)number(name, text, 1, 1e6); break;
    case TIMINGS: o->timings = true; break;
    case JOB: copy_text(name, text, o->job, sizeof o->job); break;
    case WAIT_FOR: copy_text(name, text, o->wait_for, sizeof o->wait_for); break;
    case HELP: fputs(usage, stdout); exit(0);
    default: fputs(usage, stderr); exit(2);
    }
}

struct options parse_options(int argc, char **argv) {
    struct options o = {.ranks = 8, .steps = 42, .fault_rank = 5, .every = 14, .burners = 3, .step_ms = 3,
                        .kernel_ms = 1, .fault_ms = 290, .split = true, .floats = 1024};
    int which, index = 0;
    snprintf(o.job, sizeof o.job, "standin-%d", getpid());
    while ((which = getopt_long(argc, argv, "", known, &index)) != -1) {
        set_option(&o, which, which == '?' ? "" : known[index].name, optarg);
    }
    if (o.calls) {
        o.ranks = 1;
        o.steps = 0;
        o.fault = NONE;
    }
    if (optind < argc || (o.fault != NONE && o.fault_rank >= o.ranks)) {
        wrong_usage("rank", optind < argc ? argv[optind] : "a rank that there is not");
    }
    o.ranks_per_node = o.ranks_per_node ? o.ranks_per_node : o.ranks;
    return o;
}
