/* removal_journal.h -- the journal of removals: every segment the broker removes is named in a file first.
 *
 *   data/removals/0000000000000001.removals
 *   | "OTTERRMV" version u32, zero u32 | record | record | record |
 *
 *   record   | len u32 | crc u32 | seq u64 | time i64 | log id u64 | segment i64 | first i64 | next i64 |
 *            | bytes u64 | left u64 | first timestamp i64 | max timestamp i64 |
 *            | rule u8 | zero u8 | folder len u16 | name len u16 | zero u16 | folder | name | zeros to 8 |
 *
 * Promise: om_removal_journal_write has synced its records when it answers OM_OK, and files go only after
 * that. A removal that a crash interrupts is finished, and may be recorded again, by the next start:
 * the same log and segment twice is one removal. Sequences grow by one over all files, so what is
 * missing shows. A torn end is never written behind: a new file begins.
 *
 * Bounded: files of one size, OM_REMOVED_FILES of them; before the oldest goes, a record says which
 * sequences went with it. Space for the next records is reserved ahead: removing must be possible on
 * a full disk.
 */
#ifndef OM_REMOVAL_JOURNAL_H
#define OM_REMOVAL_JOURNAL_H
#include "om_store.h"

#define OM_REMOVED_FILES 32

typedef struct om_removal_journal_file om_removal_journal_file; /* its own lock, any thread */
/* fresh: nothing was ever recorded here. */
om_removal_journal_file *om_removal_journal_open(const char *data, uint64_t file_size, int *fresh, char *err,
                                                 size_t err_len);
void om_removal_journal_close(om_removal_journal_file *file);
/* All of them with one write and one sync. */
int om_removal_journal_write(om_removal_journal_file *file, const om_removal *items, size_t count);
#endif
