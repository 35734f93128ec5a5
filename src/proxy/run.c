#include "proxy/run.h"

#include "proxy/objects.h"

void proxy_run_init(struct run *run, struct proxy *proxy, enum run_kind kind)
{
	run->proxy = proxy;
	run->kind = kind;
	run->commands = 0;
	run->raw.bytes = run->reply.bytes = 0;
	list_init(&run->node);
}

void proxy_run_free(struct run *run)
{
	resp_out_free(&run->raw);
	resp_out_free(&run->reply);
	resp_out_free(&run->entry);
	resp_out_free(&run->gather.out);
}

bool proxy_run_writes(const struct run *run)
{
	return run->kind == RUN_WRITE || run->kind == RUN_MULTI || run->kind == RUN_DRAW;
}

bool proxy_run_next(const struct run *run, struct run_cursor *cursor)
{
	struct proxy *proxy = run->proxy;
	struct resp_request request;
	size_t used;

	if (cursor->at >= run->raw.bytes)
		return false;
	resp_request_init(&request, proxy->args, PROXY_ARGS_MAX, UINT32_MAX);
	if (resp_request_read(&request, run->raw.data + cursor->at, run->raw.bytes - cursor->at, &used) != RESP_WHOLE ||
		request.arg_count == 0)
		return false;
	cursor->request = (struct command_args){
		.data = run->raw.data + cursor->at, .args = proxy->args, .count = request.arg_count};
	cursor->command = proxy->protocol->find(cursor->request.data + proxy->args[0].at, proxy->args[0].bytes);
	cursor->at += used;
	return cursor->command != NULL;
}
