/* A library without anything in it: what an rdma-core that is too old looks like to the loader. */
extern int nothing;
int nothing;
