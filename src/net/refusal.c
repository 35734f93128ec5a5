#include "net/refusal.h"

#include "base/ensure.h"

static const struct {
	const char *here, *there;
} words[REFUSALS] = {
	[REFUSAL_NONE] = {"no reason", "it gives no reason"},
	[REFUSAL_SECRET_MISSING] = {"that node has no secret and this node has one; give both the same secret_file",
		"that node has a secret and this node has none; give both the same secret_file"},
	[REFUSAL_SECRET_UNKNOWN] = {"that node has a secret and this node has none; give both the same secret_file",
		"that node has no secret and this node has one; give both the same secret_file"},
	[REFUSAL_SECRET_DIFFERS] = {"its proof does not match the secret of this node; give both the same secret_file",
		"the proof of this node does not match the secret there; give both the same secret_file"},
	[REFUSAL_OTHER_HOST] = {"that node is on another host and this node has neither secret nor TLS; "
				"give both nodes the same secret_file, or \"tls\"",
		"that node has neither secret nor TLS and accepts only nodes of its own host; "
		"give both nodes the same secret_file, or \"tls\""},
	[REFUSAL_TLS] = {"that node uses TLS and this node does not; give both nodes \"tls\", or none",
		"this node uses TLS and that node does not; give both nodes \"tls\", or none"},
	[REFUSAL_NAME] = {"that node has the name of this node; give every node a name of its own",
		"that node has the name of this node; give every node a name of its own"},
};

const char *refusal_here(enum refusal refusal)
{
	ensure(refusal < REFUSALS);
	return words[refusal].here;
}

const char *refusal_there(uint32_t code)
{
	return code < REFUSALS ? words[code].there : "for a reason that this version does not know";
}
