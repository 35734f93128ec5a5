/* rewrite.h - a client's write as records of an entry that depend neither on a clock nor on chance. Pure.
 *
 *   SET k v EX 10        SET k v PXAT (time + 10 s + shift)       times are absolute, and beyond any server's clock
 *   EXPIRE k 10          PEXPIREAT k (time + 10 s + shift)
 *   XADD k * f v         a script: XADD with the entry's time, or behind the last id where that is later
 *   XTRIM k MAXLEN ~ 9   XTRIM k MAXLEN = 9                       `~` depends on how nodes are filled
 *   SPOP k 2             a script: SREM of the members that the leader drew, if they are still there
 *
 * A command that Redis would refuse becomes a reply with Redis' text (ENTRY_TEXT). Reads of deadlines are shifted
 * back. */
#ifndef HOLDFAST_PROXY_REWRITE_H
#define HOLDFAST_PROXY_REWRITE_H

#include "proxy/redis/commands.h"
#include "proxy/entry.h"

/* Bytes of an entry that proxy_rewrite appends, at most. */
size_t proxy_rewrite_bytes(const struct command *command, const struct command_args *request);
/* Appends the records of a write. */
void proxy_rewrite(
	const struct command *command, const struct command_args *request, uint64_t now_ms, struct resp_out *entry);
/* A read: writes the command for the server, and returns what to do with its reply. */
enum entry_reply proxy_rewrite_read(
	const struct command *command, const struct command_args *request, struct resp_out *out);

/* SPOP: the question by which the leader draws; and the record, from the server's answer to it. */
void proxy_rewrite_draw(const struct command_args *request, struct resp_out *out);
void proxy_rewrite_drawn(
	const struct command_args *request, const uint8_t *answer, size_t bytes, struct resp_out *entry);
/* The reply of that record when the members had gone: draw again. */
#define REWRITE_AGAIN "-HOLDFASTDRAW again"

/* A record that deletes the key if this is still its deadline, as the servers have it. */
void proxy_rewrite_due(struct resp_out *entry, const uint8_t *key, size_t key_bytes, int64_t shifted_ms);
/* The question for a key's deadline. */
void proxy_rewrite_ask_deadline(struct resp_out *out, const uint8_t *key, size_t key_bytes);

#endif
