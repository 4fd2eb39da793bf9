/* secrecy.c -- keeps the process's memory private: no core dump, no debugger of the same user. */
#include "om_base.h"

#include <sys/prctl.h>

int om_forbid_dumps(void) {
    return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0 ? OM_OK : OM_E_IO;
}
