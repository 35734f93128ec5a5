/* descriptors.h - descriptors that are the device of connection management. */
#ifndef HOLDFAST_PRELOAD_DESCRIPTORS_H
#define HOLDFAST_PRELOAD_DESCRIPTORS_H

int descriptors_open_cm(void); /* -1 and errno, as open(2) */

#endif
