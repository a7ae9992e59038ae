/* The command line of the training job. */
#ifndef STANDIN_OPTIONS_H
#define STANDIN_OPTIONS_H

#include "control.h"

#define MAX_BURNERS 16

extern const char *const fault_names[], *const comms_names[];

struct options parse_options(int argc, char **argv); /* ends the process when they are wrong */

#endif
