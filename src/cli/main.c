#include <stdio.h>

int main(void)
{
	puts("holdfast");
	return 0;
}
