/* Responses of any key and version. */
#include "kafka_round_trip.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	kafka_round_trip(data, bytes, true);
	return 0;
}
