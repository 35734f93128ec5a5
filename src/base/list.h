/* list.h - intrusive doubly linked list; the head is a node of its own. Not thread safe. */
#ifndef HOLDFAST_BASE_LIST_H
#define HOLDFAST_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *next, *prev;
};

#define container_of(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
	list->next = list->prev = list;
}

static inline bool list_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_insert_before(struct list *at, struct list *node)
{
	node->prev = at->prev;
	node->next = at;
	at->prev->next = node;
	at->prev = node;
}

static inline void list_push_back(struct list *list, struct list *node)
{
	list_insert_before(list, node);
}

static inline void list_push_front(struct list *list, struct list *node)
{
	list_insert_before(list->next, node);
}

/* Legal on a node that is in no list, when it was initialised: removing twice is harmless. */
static inline void list_remove(struct list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

/* The first node, removed; NULL when the list is empty. */
static inline struct list *list_pop_front(struct list *list)
{
	struct list *node = list->next;

	if (node == list)
		return NULL;
	list_remove(node);
	return node;
}

#define list_for_each(at, head) for (struct list *at = (head)->next; at != (head); at = at->next)

/* The current node may be removed (and freed) in the body; no other one may. */
#define list_for_each_safe(at, head)                                                                                   \
	for (struct list *at = (head)->next, *at##_next = at->next; at != (head); at = at##_next, at##_next = at->next)

#endif
