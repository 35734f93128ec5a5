/* council_parts.h - shared by council.c, council_decide.c, council_leases.c and council_reports.c only. */
#ifndef HOLDFAST_KV_COUNCIL_PARTS_H
#define HOLDFAST_KV_COUNCIL_PARTS_H

#include "kv/council.h"

#define MS_NS 1000000ull

/* council_reports.c */
/* A message of the member arrived within the time after which a silent one is suspected. */
bool kv_council_is_fresh(const struct hf_kv *kv, unsigned node, uint64_t now_ns);
void kv_council_peer_died(struct hf_peer *peer, void *context); /* hf_node_events */
/* A member that lives is one in an epoch in which this one is none. */
bool kv_council_others_serve(const struct hf_kv *kv, uint64_t now_ns);
void kv_council_ask(struct hf_kv *kv, uint64_t now_ns);
/* A process that stood still judges no member by the time in which it did. */
void kv_council_excuse_log(struct hf_kv *kv, uint64_t now_ns);

/* council_leases.c */
/* This member has a lease, counted from when it sent the ASK. */
void kv_council_take_grant(struct hf_kv *kv, uint64_t asked_ns);
/* Confirms by a read that this member leads, and then grants all leases that were asked for; true: the read began. */
bool kv_council_confirm(struct hf_kv *kv);
/* Until when a lease may last that any leader granted, by hf_env_boot_ns. */
uint64_t kv_council_lease_over_ns(const struct hf_kv *kv, unsigned node);
bool kv_council_lease_is_over(const struct hf_kv *kv, unsigned node);

/* council_decide.c */
/* Proposes what is to be decided next, if this member leads; true: something was. */
bool kv_council_propose(struct hf_kv *kv, uint64_t now_ns);

#endif
