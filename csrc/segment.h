/* segment.h -- one file of record batches with its two indexes.
 *
 *   00000000000000012345.log        | batch | batch | batch | zeros up to the allocation |
 *                                   0                      size                 allocated
 *
 * Two halves, two owners. The *engine* (under its lock, memory only) decides where a batch
 * goes: om_segment_place gives the position and keeps the index. The *writer* thread later
 * puts the bytes there: om_segment_write and friends touch the file. Since the place is
 * decided once, a write that failed is simply tried again, and a segment whose sync failed can
 * be rewritten from the WAL into a new file, byte for byte.
 *
 * Files and mappings are held by an om_files cache, LRU-bounded: an om_segment itself costs
 * some 200 bytes. Segments are counted: a view or a range holds one, so that a deleted
 * segment's file stays readable until the last reader lets go.
 */
#ifndef OM_SEGMENT_H
#define OM_SEGMENT_H
#include "index.h"
#include <sys/uio.h>

/* ---- the cache of open files and mappings (files.c); its own lock, any thread ---- */
typedef struct om_files om_files;
typedef struct om_files_stat { uint64_t open_files, mappings, mapped_bytes, evictions; } om_files_stat;
om_files *om_files_new(uint32_t max_open, uint64_t max_mapped);
void om_files_free(om_files *files);
void om_files_stat_get(om_files *files, om_files_stat *out);

typedef struct om_segment_limits {
    uint64_t segment_size;   /* roll when the next batch would pass it (64 MiB; up to 1 GiB) */
    uint64_t initial_size;   /* first allocation (64 KiB), doubled up to segment_size */
    int64_t max_age_ms;      /* roll when the first record is older; 0: never */
    uint32_t index_max;      /* roll when the offset index has that many entries */
    int pre_allocate;        /* fallocate ahead */
} om_segment_limits;

typedef struct om_segment {
    om_files *files;
    const char *dir;         /* the log's folder: outlives the segment */
    int64_t base_offset;
    /* -- placed: the engine's -- */
    int64_t next_offset;     /* one past the last offset placed; base_offset when empty */
    uint64_t size;           /* bytes placed */
    uint64_t written;        /* bytes that are in the file: readable through it */
    int64_t first_timestamp; /* of the first batch, -1 when empty */
    int64_t max_timestamp;
    int64_t max_timestamp_offset;
    uint64_t since_index;    /* bytes placed since the last index entry */
    om_index index;
    uint8_t sealed;          /* takes no more batches */
    uint8_t fenced;          /* unreadable or damaged: reads answer OM_E_UNREADABLE */
    uint8_t index_loaded;    /* sealed segments load theirs on first use */
    /* -- the writer's -- */
    uint64_t allocated;
    uint32_t index_saved, time_saved;    /* entries already in the files */
    uint8_t exists;          /* the file has been created */
    int refs;                /* atomic */
    void *file_slot;         /* the cache's entries, guarded by its lock */
    void *map_slot;
} om_segment;

/* A new, empty segment in memory: no file yet. */
om_segment *om_segment_new(om_files *files, const char *dir, int64_t base_offset);
/* An existing file (recovery): sizes from stat, nothing read yet. next_offset and timestamps
 * are known after om_segment_scan, or given by om_segment_trust (from a manifest). */
om_segment *om_segment_open(om_files *files, const char *dir, int64_t base_offset, int *result);
void om_segment_trust(om_segment *segment, int64_t next_offset, uint64_t size,
                      int64_t first_timestamp, int64_t max_timestamp);
void om_segment_ref(om_segment *segment);
void om_segment_unref(om_segment *segment);

/* ---- the engine's half: memory only ---- */
/* Must this batch open a new segment (size, age, index full, relative offset too large)? An
 * empty segment takes any batch. */
int om_segment_must_roll(const om_segment *segment, const om_segment_limits *limits,
                         const om_batch_info *batch, int64_t now_ms);
/* Decide its place; index entries are made here. Returns the position or OM_E_*. */
int64_t om_segment_place(om_segment *segment, const om_batch_info *batch);

/* ---- the writer's half: may block, never under the engine's lock ---- */
/* Create (with its folder) and allocate as needed, then write all of iov at position. A short write is
 * carried on. OM_OK, OM_E_NO_SPACE, OM_E_IO (errno kept). */
int om_segment_write(om_segment *segment, const om_segment_limits *limits, const struct iovec *iov,
                     int iovcnt, uint64_t position);
int om_segment_sync(om_segment *segment);            /* fdatasync */
/* Append the index entries not yet in the files. Entries are copied by the caller's lock
 * holder: offsets/times point to them. */
int om_segment_save_index(om_segment *segment, const uint8_t *offsets, uint32_t offset_count,
                          const uint8_t *times, uint32_t time_count);
int om_segment_trim_file(om_segment *segment, uint64_t size);   /* sealed or cut: ftruncate to size */
int om_segment_unlink(om_segment *segment);          /* .log .index .timeindex; open readers keep theirs */
/* A sync failed: the next write goes to a new file that replaces this one when it has all the
 * bytes. Copies [0, good) -- the part synced by an earlier checkpoint -- and gives a file to
 * write the rest into; commit renames it into place after its sync. */
int om_segment_rewrite_begin(om_segment *segment, uint64_t good, int *fd);
int om_segment_rewrite_commit(om_segment *segment, int fd);

/* ---- reading: any thread, takes a reference ---- */
typedef struct om_view {
    const uint8_t *data;
    size_t len;
    om_segment *segment;
    void *mapping;
} om_view;
/* Map [position, position + len) (clipped to `written`). Give it back with om_view_release. */
int om_view_open(om_segment *segment, uint64_t position, size_t len, om_view *view);
void om_view_release(om_view *view);
/* Are all its pages in memory (mincore)? 1, 0 or OM_E_*. */
int om_view_resident(const om_view *view);
/* Fault the pages in (the reader thread). OM_E_UNREADABLE if the file can't give them. */
int om_view_load(const om_view *view);

/* Guarded access: a mapped page that can't be read (file cut under us, bad sector) raises
 * SIGBUS. Between begin and end a fault in the view is answered with a page of zeros and
 * remembered; end returns OM_E_UNREADABLE then, and the segment is fenced. Guards don't nest. */
void om_guard_begin(const om_view *view);
int om_guard_end(const om_view *view);
/* Installs the SIGBUS handler once a process; faults that are not ours go to the one before. */
int om_guard_install(void);

/* The batch that holds `offset` (or the first one after it, when it lies in a gap): index,
 * then scan of the mapped file. OM_END when the segment has none. Loads or rebuilds a
 * missing index. */
int om_segment_find(om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *batch);
/* The first record with timestamp >= ts: the offset of its batch's first such record. OM_END: none. */
int om_segment_find_time(om_segment *segment, int64_t timestamp, int64_t *offset, int64_t *found_timestamp);
/* A file range for sendfile: a descriptor that stays valid until the release. */
int om_range_open(om_segment *segment, int *fd);
void om_range_release(om_segment *segment, int fd);

/* ---- recovery ---- */
typedef struct om_scan {
    uint64_t valid_size;     /* where the first bad batch starts, or the end */
    int64_t next_offset;
    int64_t first_timestamp, max_timestamp;
    int64_t batches, records;
    int32_t last_epoch;
    int stopped;             /* OM_OK: clean end (zeros or EOF); OM_E_*: a bad batch */
} om_scan;
/* Read [position, size) batch by batch: CRC, offsets growing from first_offset on, epochs not
 * going down. Index entries past `position` are made anew. Plain reads, not the mapping. */
int om_segment_scan(om_segment *segment, uint64_t position, int64_t first_offset, int32_t first_epoch, om_scan *scan);
/* Set a damaged file aside: renamed to *.log.corrupt-<n>; its indexes removed. */
int om_segment_set_aside(om_segment *segment, char *path, size_t path_len);
#endif
