#include <holdfast/error.h>

#include <stdarg.h>
#include <stdio.h>

int hf_error_set(struct hf_error *error, int code, const char *format, ...)
{
	va_list arguments;

	if (error == NULL)
		return code;
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return code;
}
