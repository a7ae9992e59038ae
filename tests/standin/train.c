/* A training job on the stand-in libraries: the parent, which starts one process per rank as torchrun does, carries out
 * the faults that a process cannot do to itself, and reports. Nothing it starts outlives it, however it ends. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "options.h"
#include "report.h"

#define RANK_ARGUMENT "--be-rank"

struct parent {
    struct control *control;
    int control_fd, attention_fd, children_fd;
    pid_t burners[MAX_BURNERS + 1]; /* up to the first 0 */
    int status[MAX_RANKS];
    int running;
    uint32_t stops_served;
    bool started;
    cpu_set_t cpus, faulty_cpu; /* contention is for one CPU, which is the faulty rank's alone */
};

static _Noreturn void fail(const char *what) {
    perror(what);
    exit(1);
}

static size_t control_size(const struct options *o) {
    return sizeof(struct control) + (size_t)o->steps * (size_t)o->ranks * sizeof(struct step_record);
}

static struct control *map_control(int fd, size_t size) {
    struct control *control = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (control == MAP_FAILED) {
        fail("train: mmap");
    }
    return control;
}

static void die_with(pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it went before the line above */
        _exit(1);
    }
}

static pid_t fork_child(const cpu_set_t *cpus) {
    pid_t parent = getpid(), child = fork();
    if (child < 0) {
        fail("train: fork");
    }
    if (child == 0) {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        die_with(parent);
        sched_setaffinity(0, sizeof *cpus, cpus);
    }
    return child;
}

static void choose_cpus(struct parent *p) {
    sched_getaffinity(0, sizeof p->cpus, &p->cpus);
    p->faulty_cpu = p->cpus;
    if (p->control->options.fault != CONTENTION) {
        return;
    }
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &p->cpus)) {
        last--;
    }
    CPU_ZERO(&p->faulty_cpu);
    CPU_SET(last, &p->faulty_cpu);
    if (CPU_COUNT(&p->cpus) > 1) {
        CPU_CLR(last, &p->cpus);
    }
}

static void start_burners(struct parent *p) {
    for (int i = 0; i < p->control->options.burners; i++) {
        p->burners[i] = fork_child(&p->faulty_cpu);
        if (p->burners[i] == 0) {
            prctl(PR_SET_NAME, "burner");
            burn(p->control);
        }
    }
}

static void set_number(const char *name, long number) {
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    setenv(name, text, 1);
}

/* exec, since what a process knows of its own environment is not what others read in /proc: they see the one it was
 * started with. */
static _Noreturn void exec_rank(struct parent *p, int rank) {
    const struct options *o = &p->control->options;
    char fds[2][16], self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    snprintf(fds[0], sizeof fds[0], "%d", p->control_fd);
    snprintf(fds[1], sizeof fds[1], "%d", p->attention_fd);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank % o->ranks_per_node);
    set_number("GROUP_RANK", rank / o->ranks_per_node);
    set_number("WORLD_SIZE", o->ranks);
    set_number("LOCAL_WORLD_SIZE", o->ranks_per_node);
    setenv("TORCHELASTIC_RUN_ID", o->job, 1);
    if (o->fault == ALLOC) {
        set_number("STANDIN_ALLOC_NS", (long)(o->fault_ms * NS_PER_MS / 20));
    }
    execl(self, "train", RANK_ARGUMENT, fds[0], fds[1], (char *)NULL);
    fail("train: exec");
}

static void start_ranks(struct parent *p) {
    const struct options *o = &p->control->options;
    for (int rank = 0; rank < o->ranks; rank++) {
        pid_t child = fork_child(rank == o->fault_rank ? &p->faulty_cpu : &p->cpus);
        if (child == 0) {
            exec_rank(p, rank);
        }
        p->control->rank[rank].pid = child;
        p->running++;
    }
}

/* The rank computes until this is served, so the stop lands in its compute phase and nowhere else. */
static void serve_stop(struct parent *p) {
    const struct options *o = &p->control->options;
    uint32_t wanted = atomic_load(&p->control->stop_wanted);
    pid_t pid = p->control->rank[o->fault_rank].pid;
    int status = 0;

    if (wanted == p->stops_served || kill(pid, SIGSTOP)) {
        return;
    }
    if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) { /* it died meanwhile */
        p->status[o->fault_rank] = status;
        p->running--;
        p->stops_served = wanted;
        return;
    }
    uint64_t stopped = now_ns();
    sleep_until(stopped + (uint64_t)(o->fault_ms * NS_PER_MS));
    record_of(p->control, (int)wanted - 1, o->fault_rank)->fault_ns = now_ns() - stopped;
    p->stops_served = wanted;
    atomic_store(&p->control->stop_served, wanted);
    kill(pid, SIGCONT);
}

static void reap(struct parent *p) {
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (int rank = 0; rank < p->control->options.ranks; rank++) {
            if (p->control->rank[rank].pid == pid) {
                p->status[rank] = status;
                p->running--;
            }
        }
    }
}

static void start_when_all_are_loaded(struct parent *p) {
    const struct options *o = &p->control->options;
    int loaded = 0;
    for (int rank = 0; rank < o->ranks; rank++) {
        loaded += atomic_load(&p->control->rank[rank].loaded);
    }
    if (!p->started && loaded == o->ranks) {
        p->started = true;
        report_start(p->control, p->burners);
    }
}

static void serve_ranks(struct parent *p) {
    struct pollfd polled[] = {{.fd = p->attention_fd, .events = POLLIN}, {.fd = p->children_fd, .events = POLLIN}};
    struct signalfd_siginfo child;
    uint64_t calls;
    while (p->running) {
        if (poll(polled, 2, -1) < 0 && errno != EINTR) {
            fail("train: poll");
        }
        /* Both are non-blocking and only say that there is something to look at. */
        while (read(p->attention_fd, &calls, sizeof calls) > 0 || read(p->children_fd, &child, sizeof child) > 0) {
        }
        start_when_all_are_loaded(p);
        serve_stop(p);
        reap(p);
    }
}

static void end_burners(struct parent *p) {
    for (int i = 0; p->burners[i]; i++) {
        kill(p->burners[i], SIGKILL);
        waitpid(p->burners[i], NULL, 0);
    }
}

static int run_parent(int argc, char **argv) {
    struct options options = parse_options(argc, argv);
    struct parent parent = {.control_fd = memfd_create("standin-control", 0)};
    struct parent *p = &parent;
    sigset_t child_signal;

    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal, NULL);
    p->children_fd = signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK);
    p->attention_fd = eventfd(0, EFD_NONBLOCK);
    if (p->control_fd < 0 || p->children_fd < 0 || p->attention_fd < 0 ||
        ftruncate(p->control_fd, (off_t)control_size(&options))) {
        fail("train: set-up");
    }
    p->control = map_control(p->control_fd, control_size(&options));
    p->control->options = options;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* a rank that gives up calls abort() */
    choose_cpus(p);
    if (options.fault == CONTENTION) {
        start_burners(p);
    }
    start_ranks(p);
    serve_ranks(p);
    end_burners(p);
    return report_end(p->control, p->status) ? 0 : 1;
}

/* Whoever was to make the file may have died: not for ever. */
static void wait_for_file(const char *path) {
    uint64_t deadline = now_ns() + 600 * NS_PER_S;
    while (*path && access(path, F_OK)) {
        if (now_ns() > deadline) {
            fprintf(stderr, "train: %s did not appear in ten minutes\n", path);
            exit(2);
        }
        sleep_until(now_ns() + 5 * NS_PER_MS);
    }
}

static int be_rank(char **argv) {
    struct job job = {.rank = atoi(getenv("RANK")), .attention_fd = atoi(argv[3])};
    int fd = atoi(argv[2]);
    struct control *control = map_control(fd, sizeof *control);
    size_t size = control_size(&control->options);
    munmap(control, sizeof *control);
    job.control = control = map_control(fd, size);
    close(fd);
    atomic_store(&control->rank[job.rank].loaded, true);
    call_parent(&job);
    wait_for_file(control->options.wait_for);
    return control->options.calls ? run_calls(&job) : run_rank(&job);
}

int main(int argc, char **argv) {
    return argc == 4 && strcmp(argv[1], RANK_ARGUMENT) == 0 ? be_rank(argv) : run_parent(argc, argv);
}
