/* source.h - the source of a sender: the files and directories of one path, at the time of its listing. */
#ifndef HOLDFAST_CLI_TRANSFER_SOURCE_H
#define HOLDFAST_CLI_TRANSFER_SOURCE_H

#include <holdfast/error.h>

#include "cli/tree.h"
#include "cli/transfer/message.h"

struct copy_source {
	struct copy_source_file {
		char *path;       /* to open it */
		const char *name; /* within path; of the root: "" */
		enum copy_entry entry;
		bool sparse;
		uint32_t mode;
		uint64_t bytes, mtime_ns, inode;
		char *target; /* of a link; else NULL */
	} * files;            /* a directory before its entries; files that fit into no pack (pack.h) last */
	uint32_t count, room, packed;
	struct copy_left_out {
		char *path;
		const char *why; /* "a socket" */
	} * left_out;
	uint32_t left_out_count, left_out_room;
	uint64_t bytes;
	bool directory, behind;
	char title[COPY_TITLE_BYTES]; /* the last part of the path */
	struct hf_error *error;       /* of its listing */
};

/* Blocks. With `behind`, in the place of a link what it leads to; else links are sent as links, but for those that lead
 * out of it (copy_link_stays), which are left out. -errno with words: it cannot be read, or has a name that cannot be
 * sent. */
int copy_source_open(struct copy_source *source, const char *path, bool behind, struct hf_error *error);
void copy_source_close(struct copy_source *source);

/* Whether it is still the file that was listed, and has not changed since the first call with this *ctime_ns, which is
 * 0 then. A time of modification can be put back, that of the change of an inode cannot (R-T31). */
bool copy_source_is_same(const struct copy_source_file *file, uint64_t *ctime_ns);
void copy_source_describe(const struct copy_source *source, uint32_t number, struct copy_file *file_out);

#endif
