/* Damage, or a torn tail. */
#include "broker/log/log_verdict.h"

int64_t log_verdict_proven(const struct log_proof *proof)
{
	if (!proof->known)
		return 0;
	return proof->same_boot && proof->written > proof->synced ? proof->written : proof->synced;
}

/* Memory outlives a process, so in the same boot a hole among whole batches is damage also above the mark. After a loss
 * of power it is what the disk had not written yet. */
static const char *fault_of(const struct log_proof *proof, const struct log_found *found, int64_t proven)
{
	bool whole = proof->closed || (proof->known && (proof->same_boot || proof->damaged));

	if (proof->known && found->start > proof->start)
		return "its first records are missing";
	if (found->end < proven && proof->closed)
		return "records are missing that were there when it was closed";
	if (found->end < proven && found->end < proof->synced)
		return "records are missing that were synced";
	if (found->end < proven)
		return "records are missing that were written since the host started";
	return whole && found->more ? "a record batch is not right, and right ones follow it" : NULL;
}

struct log_verdict log_verdict_of(const struct log_proof *proof, const struct log_found *found, bool more_bytes)
{
	int64_t proven = log_verdict_proven(proof);
	struct log_verdict verdict = {.state = more_bytes || found->more ? LOG_TORN : LOG_WHOLE,
		.end = found->end,
		.proven = proven,
		.fault = fault_of(proof, found, proven)};

	if (verdict.fault == NULL)
		return verdict;
	verdict.state = LOG_DAMAGED;
	if (found->start > proof->start && proof->known)
		verdict.end = proof->start;
	if (verdict.proven <= verdict.end)
		verdict.proven = verdict.end + 1;
	return verdict;
}
