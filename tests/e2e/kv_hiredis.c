/* A program on hiredis, built by kv_clients.py: pipelines at one member, answers at another one.
 * Arguments: HOST PORT of each member. */
#include <hiredis/hiredis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 500

static redisContext *open_member(char **at)
{
	redisContext *context = redisConnect(at[0], (int)strtol(at[1], NULL, 10));

	if (context == NULL || context->err != 0) {
		fprintf(stderr, "%s: %s\n", at[0], context == NULL ? "no memory" : context->errstr);
		exit(1);
	}
	return context;
}

static void expect(redisReply *reply, int type, long long number, const char *text)
{
	if (reply == NULL || reply->type != type || (type == REDIS_REPLY_INTEGER && reply->integer != number) ||
		(text != NULL && strcmp(reply->str, text) != 0)) {
		fprintf(stderr, "expected type %d, %lld, %s; found type %d, %lld, %s\n", type, number,
			text == NULL ? "" : text, reply == NULL ? -1 : reply->type, reply == NULL ? 0 : reply->integer,
			reply == NULL || reply->str == NULL ? "" : reply->str);
		exit(1);
	}
	freeReplyObject(reply);
}

int main(int argc, char **argv)
{
	redisContext *first, *second;
	redisReply *reply;
	char text[32];

	if (argc < 5)
		return 2;
	first = open_member(argv + 1);
	second = open_member(argv + 3);
	expect(redisCommand(first, "SET %s %b", "binary", "a\0b", (size_t)3), REDIS_REPLY_STATUS, 0, "OK");
	reply = redisCommand(second, "GET binary");
	if (reply == NULL || reply->len != 3 || memcmp(reply->str, "a\0b", 3) != 0)
		return 1;
	freeReplyObject(reply);
	for (int i = 0; i < COUNT; i++) {
		redisAppendCommand(first, "SET key:%d %d", i, i);
		redisAppendCommand(first, "INCR counter");
	}
	for (int i = 0; i < COUNT; i++) {
		if (redisGetReply(first, (void **)&reply) != REDIS_OK)
			return 1;
		expect(reply, REDIS_REPLY_STATUS, 0, "OK");
		if (redisGetReply(first, (void **)&reply) != REDIS_OK)
			return 1;
		expect(reply, REDIS_REPLY_INTEGER, i + 1, NULL);
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(text, sizeof(text), "%d", i);
		expect(redisCommand(second, "GET key:%d", i), REDIS_REPLY_STRING, 0, text);
	}
	expect(redisCommand(second, "GET none"), REDIS_REPLY_NIL, 0, NULL);
	expect(redisCommand(second, "LPUSH list 1"), REDIS_REPLY_ERROR, 0, NULL);
	expect(redisCommand(second, "EXISTS key:1 key:2 none"), REDIS_REPLY_INTEGER, 2, NULL);
	redisFree(first);
	redisFree(second);
	return 0;
}
