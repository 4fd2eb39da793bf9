/* attributes.h -- attributes of functions, for the compiler. */
#ifndef OM_ATTRIBUTES_H
#define OM_ATTRIBUTES_H

/* It runs once per message and has no array on its stack: there is nothing to overrun, and the stack
 * protector, which looks at every function with a local whose address is taken, cost a twentieth
 * of the rate of small messages (docs/notes/performance.md). With an array, don't. */
#define OM_PER_MESSAGE __attribute__((no_stack_protector))

#endif
