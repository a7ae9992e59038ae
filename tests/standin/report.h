/* What the training job prints. */
#ifndef STANDIN_REPORT_H
#define STANDIN_REPORT_H

#include "control.h"

void report_start(struct control *control, const pid_t *burners);
bool report_end(struct control *control, const int *status); /* true: all ranks ended well */

#endif
