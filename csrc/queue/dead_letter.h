/* dead_letter.h -- messages that leave a queue without a consumer. */
#ifndef OM_DEAD_LETTER_H
#define OM_DEAD_LETTER_H

#include "format/content.h"
#include "om_engine.h"
#include "queue/reject_publish.h"
#include "store/store.h"

/* A message that is to leave its queue another way than to a consumer (dead_letter.c). */
typedef struct om_dead_letter {
    int64_t offset;
    uint32_t weight;
    uint8_t lane;
    uint8_t reason;  /* enum om_x_death_reason, or OM_DEAD_LETTER_DELAYED */
    uint8_t refused; /* it was never ready: see om_lane */
} om_dead_letter;
#define OM_DEAD_LETTER_DELAYED 255

/* Of this tick: they leave in one record. */
typedef struct om_dead_letters {
    om_atomic *record; /* NULL: none yet */
    uint64_t bytes;
    struct om_staged_dead_letter *staged; /* what to give back if the record is refused */
    uint32_t count, cap;
    om_rejected_list rejects;
} om_dead_letters;

/* Acquired or in flight: it leaves for the dead-letter exchange, or for nowhere. */
void om_dead_letter_add(om_queue *queue, int lane, int64_t offset, uint32_t weight, int reason);
/* It was never ready: no consumer may be given it meanwhile (reject-publish-dlx). */
void om_dead_letter_add_refused(om_queue *queue, int lane, int64_t offset, uint32_t weight);
void om_dead_letter_pump(om_queue *queue);
/* Python knows the route. */
int om_dead_letter_answer(om_queue *queue, const uint64_t *queues, int32_t count, uint32_t flags);
int64_t om_dead_letter_purge(om_queue *queue); /* forget those that wait; how many they were */
void om_dead_letter_commit(om_engine *engine); /* what gathered in this tick */
int om_dead_letter_is_expired(const om_queue *queue, const om_content *content, int64_t now_ms, int64_t *deadline);
void om_dead_letters_free(om_engine *engine);

#endif
