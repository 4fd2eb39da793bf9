/* segment.h -- one file of record batches with its two indexes.
 *
 *   00000000000000012345.log        | batch | batch | batch |  blocks allocated ahead  |
 *                                   0                      EOF
 *
 * Blocks are allocated past the end of the file (FALLOC_FL_KEEP_SIZE), so the file itself is at
 * any moment exactly the batches written: Kafka's own tools read it while it grows, a scan ends
 * at EOF. Zeros at the end (a power loss can leave them) end a scan just as cleanly.
 *
 * Two halves, two owners. The *store* (under its lock, memory only) decides where a batch
 * goes: om_segment_place gives the position and keeps the index. The *writer* thread later
 * puts the bytes there: om_segment_write and friends touch the file. Since the place is
 * decided once, a write that failed is simply tried again, and a segment whose sync failed can
 * be rewritten from the WAL into a new file, byte for byte.
 *
 * Files and mappings are held by an om_file_cache cache, LRU-bounded: an om_segment itself costs
 * some 200 bytes. Segments are counted: a view or a range holds one, so that a deleted
 * segment's file stays readable until the last reader lets go.
 *
 * Where the index lives: an active segment's in the segment, it grows with each place. Once the
 * segment is sealed and all entries are saved, that copy goes, and look-ups load the files into
 * memory that is counted with the segment's mapping and evicted with it.
 */
#ifndef OM_SEGMENT_H
#define OM_SEGMENT_H
#include "om_inspect.h"
#include "segment/index.h"
#include <sys/uio.h>

/* ---- the cache of open files and mappings (file_cache.c); its own lock, any thread ---- */
typedef struct om_file_cache om_file_cache;
typedef struct om_file_cache_stat {
    uint64_t open_files, mappings, mapped_bytes, evictions;
} om_file_cache_stat;
om_file_cache *om_file_cache_new(uint32_t max_open, uint64_t max_mapped);
void om_file_cache_free(om_file_cache *files); /* after the last segment */
void om_file_cache_stat_get(om_file_cache *files, om_file_cache_stat *out);
/* Evicting or letting go never closes or unmaps anything itself: the engine may be what
 * lets go, and the last close of a deleted file waits for the disk. This does it; so do the
 * writer's calls below, om_view_load, and a look-up that finds too much of it waiting. */
void om_file_cache_reap(om_file_cache *files);

/* Stretches of the file that can't be read, in order (segment_damage.c). */
typedef struct om_damages {
    struct om_damages *older;
    uint32_t count;
    om_bad items[];
} om_damages;

typedef struct om_segment_limits {
    uint64_t segment_size; /* roll when the next batch would pass it (64 MiB; up to 1 GiB) */
    uint64_t initial_size; /* first allocation (64 KiB), doubled up to segment_size */
    int64_t max_age_ms;    /* roll when the first record is older; 0: never */
    uint32_t index_max;    /* roll when the offset index has that many entries; 0: never */
    int pre_allocate;      /* fallocate ahead */
    int write_back;        /* send it to the disk as it grows: somebody waits for the disk */
} om_segment_limits;

typedef struct om_segment {
    om_file_cache *files;
    const char *dir; /* the log's folder: outlives the segment */
    int64_t base_offset;
    /* -- placed: under the store's lock; changed under the cache's lock too, since look-ups of other
     *    threads search the index -- */
    int64_t next_offset;     /* one past the last offset placed; base_offset when empty */
    uint64_t size;           /* bytes placed */
    int64_t first_timestamp; /* of the first batch, -1 when empty */
    int64_t max_timestamp;
    int64_t max_timestamp_offset; /* last offset of the batch that brought it; -1: not known */
    uint64_t since_index;         /* bytes placed since the last index entry, its batch included */
    om_index index;
    uint8_t sealed;       /* takes no more batches */
    uint8_t index_loaded; /* `index` is this segment's, whole; else it is loaded on first use */
    uint8_t index_stale;  /* the index files hold entries that `index` doesn't */
    int64_t snapshot;     /* the producers' that was taken when it was full, and goes with it; -1: none */
    uint64_t inherited;   /* bytes from before this process: what they are now is not known */
    /* -- the writer's -- */
    uint64_t allocated;
    uint32_t index_saved, time_saved; /* entries already in the files */
    /* -- atomic -- */
    uint8_t exists;           /* the file has been created */
    uint8_t unsynced_folders; /* how many folders, from dir upwards, got an entry not yet synced */
    uint64_t written;         /* bytes that are in the file: readable through it */
    uint8_t fenced;           /* set aside or given up: reads answer OM_E_UNREADABLE */
    uint8_t doubtful;         /* a send of its bytes failed: to be surveyed before the next read */
    uint8_t deleted;          /* unlinked or set aside: nothing opens its file again */
    uint8_t suspect;          /* a sync failed: its bytes after the recovery point prove nothing */
    om_damages *damages;      /* NULL: it hasn't been surveyed; the last survey's, and those before */
    uint32_t surveys;         /* so many there were: what a reader met before the last one is answered */
    uint32_t doubts;          /* surveys that found nothing where a reader did; the surveyor's */
    int refs;
    void *file_slot; /* the cache's entries, guarded by its lock */
    void *map_slot;
} om_segment;

/* A new, empty segment in memory: no file yet. NULL: out of memory. */
om_segment *om_segment_new(om_file_cache *files, const char *dir, int64_t base_offset);
/* An existing file (recovery): sizes from stat, nothing read yet. next_offset and timestamps
 * are known after om_segment_scan, or given by om_segment_trust (from a manifest). */
om_segment *om_segment_open(om_file_cache *files, const char *dir, int64_t base_offset, int *result);
/* A checkpoint's state: the segment up to `size`. To scan only the bytes after it: trust,
 * then om_segment_scan from that very size and offset. */
void om_segment_trust(om_segment *segment, int64_t next_offset, uint64_t size, int64_t first_timestamp,
                      int64_t max_timestamp);
void om_segment_ref(om_segment *segment);
void om_segment_unref(om_segment *segment);

/* ---- the store's half: memory only ---- */
/* Must this batch open a new segment (size, age, index full, relative offset too large)? An
 * empty segment takes any batch. */
int om_segment_must_roll(const om_segment *segment, const om_segment_limits *limits, const om_batch_info *batch,
                         int64_t now_ms);
/* Decide its place; index entries are made here. Returns the position or OM_E_*. */
int64_t om_segment_place(om_segment *segment, const om_batch_info *batch);
/* No more batches: the time index gets its closing entry, as Kafka's does. For a segment that
 * was opened it only sets the mark. */
void om_segment_seal(om_segment *segment);
/* Forget what was placed from `size` on, a batch border; next_offset is the first offset that
 * goes. The file is cut by om_segment_trim_file after that. */
void om_segment_cut(om_segment *segment, uint64_t size, int64_t next_offset);
/* The entries not yet in the files, copied for om_segment_save_index (om_index_free it). */
int om_segment_unsaved_index(om_segment *segment, om_index *copy);

/* ---- the writer's half: may block, never under the store's lock. One call at a time for a
 *      segment; only syncs and index saves may run at the same time as the others ---- */
/* Create (with its folder) and allocate as needed, then write all of iov at position. A short
 * write is carried on. `written` moves on when the bytes join what is there. OM_OK,
 * OM_E_NO_SPACE, OM_E_DELETED, OM_E_IO (errno kept). */
int om_segment_write(om_segment *segment, const om_segment_limits *limits, const struct iovec *iov, int iovcnt,
                     uint64_t position);
/* fdatasync, and once after it was created also its folder's entry. A file with unsynced bytes
 * is evicted from the cache only when nothing else is left; where many are dirty, one syncfs is
 * faster and its error state is the file system's own. */
int om_segment_sync(om_segment *segment);
/* Append the index entries not yet in the files: offsets/times point to a copy of them. What
 * another thread saved or a cut dropped meanwhile is left out. No entries, no file. A sealed segment
 * that has all its entries saved lets its copy go. */
int om_segment_save_index(om_segment *segment, const uint8_t *offsets, uint32_t offset_count, const uint8_t *times,
                          uint32_t time_count);
int om_segment_trim_file(om_segment *segment, uint64_t size); /* sealed or cut: ftruncate to size */
int om_segment_unlink(om_segment *segment);                   /* .log .index .timeindex; open readers keep theirs */
/* A sync failed: the next write goes to a new file that replaces this one when it has all the
 * bytes. Copies [0, good) -- the part synced by an earlier checkpoint -- and gives a file to
 * write the rest into; commit renames it into place after its sync. Commit takes the descriptor
 * over, whatever it answers; abort gives up instead. New readers see the new file, old views
 * stay with the old one; a fence is lifted. */
int om_segment_rewrite_begin(om_segment *segment, uint64_t good, int *fd);
int om_segment_rewrite_commit(om_segment *segment, int fd);
void om_segment_rewrite_abort(om_segment *segment, int fd);

/* ---- reading: any thread, takes a reference ---- */
typedef struct om_view {
    const uint8_t *data;
    size_t len;
    om_segment *segment;
    void *mapping;
} om_view;
/* Map [position, position + len) (clipped to `written`). Give it back with om_view_release.
 * OM_END: nothing written there yet. */
int om_view_open(om_segment *segment, uint64_t position, size_t len, om_view *view);
void om_view_release(om_view *view);
/* To [position, position + len), clipped; position counts from the view's beginning and lies in it. */
void om_view_narrow(om_view *view, uint64_t position, size_t len);
/* Are all its pages in memory (mincore), and the segment's index as well? 1, 0 or OM_E_*. */
int om_view_resident(const om_view *view);
/* Fault the pages in and load the index (the reader thread; guarded by itself). OM_E_UNREADABLE
 * if the file can't give them. */
int om_view_load(const om_view *view);

/* Guarded access: a mapped page that can't be read (file cut under us, bad sector) raises
 * SIGBUS. Between begin and end a fault in the view is answered with a page of zeros and
 * remembered; end returns OM_E_UNREADABLE then: a survey finds what of the segment is left.
 * Guards don't nest. */
void om_sigbus_begin(const om_view *view);
int om_sigbus_end(const om_view *view);
/* Installs the SIGBUS handler once per process; faults that are not ours go to the one before. */
int om_sigbus_install(void);

/* The batch that holds `offset` (or the first one after it, when it lies in a gap): index,
 * then scan of the mapped file. OM_END when the file has none. Loads or rebuilds a missing
 * index. Guarded by itself. OM_E_CORRUPT, OM_E_UNREADABLE: what it met wants a survey, or is a bad
 * stretch that is known. */
int om_segment_find(om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *batch);
/* The same. OM_OK: view is all that is written, for a reader that narrows it; give it back. */
int om_segment_find_view(om_segment *segment, int64_t offset, uint64_t *position, om_batch_info *batch, om_view *view);
/* Where om_segment_find would start to read, by the index as it is in memory: no page is touched.
 * 0 while the index isn't there (om_view_resident says so then). last: of the batch there, as the index
 * claims; -1: it claims nothing. */
int om_segment_hint(om_segment *segment, int64_t offset, uint64_t *position, int64_t *last);
/* The first record with timestamp >= ts. OM_END: none. A compressed batch isn't decompressed: it
 * answers with its first offset and its largest timestamp. Guarded by itself. */
int om_segment_find_time(om_segment *segment, int64_t timestamp, int64_t *offset, int64_t *found_timestamp);
/* A file range for sendfile: a descriptor that stays valid until the release. */
int om_range_open(om_segment *segment, int *fd);
void om_range_release(om_segment *segment, int fd);

/* ---- damage (segment_damage.c): any thread, but for the survey ---- */
int om_segment_is_damaged(const om_segment *segment);
/* The bad stretch that this position, or this offset, lies in; NULL: none. */
const om_bad *om_segment_bad_at(const om_segment *segment, uint64_t position);
const om_bad *om_segment_bad_for(const om_segment *segment, int64_t offset);
/* Where the next bad stretch begins, from position on; UINT64_MAX: nowhere. */
uint64_t om_segment_good_until(const om_segment *segment, uint64_t position);
int64_t om_segment_lost_records(const om_segment *segment, int64_t from); /* offsets in bad stretches */
uint32_t om_segment_surveys(const om_segment *segment);                   /* how many there were */
/* Read [0, end) of the file and note what of it can't be read; offsets in there lie below limit. suspect:
 * where a reader met something. One at a time per segment; blocks. The caller frees the survey. */
#define OM_NO_SUSPECT UINT64_MAX
int om_segment_survey(om_segment *segment, uint64_t end, int64_t limit, uint64_t suspect, om_survey *survey);
void om_damages_free(om_damages *damages);

/* ---- recovery ---- */
typedef struct om_scan {
    uint64_t valid_size; /* where the first bad batch starts, or the end */
    int64_t next_offset;
    int64_t first_timestamp, max_timestamp; /* of the whole segment */
    int64_t batches, records;               /* of what was scanned */
    int32_t last_epoch;
    int stopped; /* OM_OK: clean end (zeros or EOF). A bad batch: OM_E_SHORT torn,
                              * OM_E_CORRUPT, OM_E_RANGE offsets, OM_E_STALE_EPOCH */
} om_scan;
/* Read [position, end of file) batch by batch: CRC, offsets growing from first_offset on, epochs
 * not going down. Index entries past `position` are made anew. Plain reads, not the mapping; the
 * file is not changed. The segment is then what the scan found, up to valid_size; what the file
 * has beyond that goes by om_segment_trim_file. OM_OK, or OM_E_* when it couldn't be read. */
int om_segment_scan(om_segment *segment, uint64_t position, int64_t first_offset, int32_t first_epoch, om_scan *scan);
/* Bring the index of an opened, trusted segment into memory, so that om_segment_place can go on
 * with it. (A scan has done so already.) */
int om_segment_load_index(om_segment *segment);
/* Set a damaged file aside: renamed to *.log.corrupt-<n>; its indexes removed. */
int om_segment_set_aside(om_segment *segment, char *path, size_t path_len);
/* A copy of that name, before something is cut off the file. */
int om_segment_copy_aside(const om_segment *segment, char *path, size_t path_len);
/* Is there a whole batch behind what is bad at this position, and no crash did that? 1, 0 or OM_E_*. */
int om_segment_goes_on(const om_segment *segment, uint64_t position, int64_t least);
#endif
