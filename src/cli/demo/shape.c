/* How a demo's input is cut into chunks (one WRITE each) and windows. */
#include "cli/demo/node.h"

#define CHUNK_LEAST_BYTES 4096u
#define CHUNK_MOST_BYTES  (256u << 10)
#define CHUNKS_WANTED     64u /* at least, so that a small input has several in flight too */
#define WINDOW_CHUNKS     8u
#define WINDOWS_WANTED    8u

struct demo_shape demo_shape_of(uint64_t bytes)
{
	struct demo_shape shape = {.bytes = bytes};
	uint64_t chunk = (bytes / CHUNKS_WANTED + CHUNK_LEAST_BYTES - 1) / CHUNK_LEAST_BYTES * CHUNK_LEAST_BYTES;

	if (chunk < CHUNK_LEAST_BYTES)
		chunk = CHUNK_LEAST_BYTES;
	if (chunk > CHUNK_MOST_BYTES)
		chunk = CHUNK_MOST_BYTES;
	shape.chunk_bytes = (uint32_t)chunk;
	shape.chunks_per_pass = (bytes + chunk - 1) / chunk;
	shape.chunks_per_window = shape.chunks_per_pass / WINDOWS_WANTED;
	if (shape.chunks_per_window < 1)
		shape.chunks_per_window = 1;
	if (shape.chunks_per_window > WINDOW_CHUNKS)
		shape.chunks_per_window = WINDOW_CHUNKS;
	shape.windows_per_pass = (shape.chunks_per_pass + shape.chunks_per_window - 1) / shape.chunks_per_window;
	return shape;
}

uint64_t demo_chunk_offset(const struct demo_shape *shape, uint64_t n)
{
	return n % shape->chunks_per_pass * shape->chunk_bytes;
}

uint32_t demo_chunk_bytes(const struct demo_shape *shape, uint64_t n)
{
	uint64_t left = shape->bytes - demo_chunk_offset(shape, n);

	return left < shape->chunk_bytes ? (uint32_t)left : shape->chunk_bytes;
}

uint64_t demo_window_offset(const struct demo_shape *shape, uint64_t n)
{
	return n % shape->windows_per_pass * shape->chunks_per_window * shape->chunk_bytes;
}

uint64_t demo_window_bytes(const struct demo_shape *shape, uint64_t n)
{
	uint64_t left = shape->bytes - demo_window_offset(shape, n);
	uint64_t whole = shape->chunks_per_window * shape->chunk_bytes;

	return left < whole ? left : whole;
}

uint64_t demo_windows_of(const struct demo_shape *shape, uint64_t chunks)
{
	return chunks / shape->chunks_per_pass * shape->windows_per_pass +
	       chunks % shape->chunks_per_pass / shape->chunks_per_window;
}
