/* What pairs of measurements say, and how surely. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>

#include "bench/paired.h"

#define MANY 1001u

static struct paired counting(unsigned n)
{
	static double values[MANY];

	for (unsigned i = 0; i < n; i++)
		values[i] = n - i; /* n, ..., 1 */
	return paired_of(values, n);
}

static void the_median_is_the_middle_or_between_the_two(void **state)
{
	double odd[] = {5, 1, 3}, even[] = {4, 1, 2, 3};

	(void)state;
	assert_true(bench_median(odd, 3) == 3);
	assert_true(bench_median(even, 4) == 2.5);
}

static void five_pairs_are_too_few_for_an_interval_and_six_are_all_within_it(void **state)
{
	struct paired five = counting(5), six = counting(6);

	(void)state;
	assert_true(isinf(five.low) && isinf(five.high));
	assert_true(six.low == 1 && six.high == 6); /* 2 / 2^6 < 5 % */
	assert_true(isinf(six.sure_low));
}

/* Of 20 tosses fewer than 6 show heads with 2.07 %, fewer than 7 with 5.77 %; fewer than 3 with 0.02 %. */
static void the_interval_is_that_of_the_sign_test(void **state)
{
	struct paired twenty = counting(20);

	(void)state;
	assert_true(twenty.median == 10.5);
	assert_true(twenty.low == 6 && twenty.high == 15);
	assert_true(twenty.sure_low == 3 && twenty.sure_high == 18);
}

static void many_pairs_go_by_the_normal_distribution(void **state)
{
	struct paired many = counting(MANY), exact = counting(499);

	(void)state;
	assert_true(many.low > 465 && many.low < 475 && many.high > 527 && many.high < 537);
	assert_true(exact.low > 225 && exact.low < 231);
	assert_true(many.sure_low < many.low && many.sure_high > many.high);
}

static void a_few_wild_pairs_move_nothing(void **state)
{
	double values[21];
	struct paired paired;

	(void)state;
	for (unsigned i = 0; i < 21; i++)
		values[i] = i < 4 ? 1e6 : 1;
	paired = paired_of(values, 21);
	assert_true(paired.median == 1 && paired.low == 1 && paired.high == 1);
}

static void a_bar_is_met_above_the_interval_missed_below_it_and_undecided_within(void **state)
{
	struct paired paired = counting(20), none = {0};

	(void)state;
	assert_int_equal(paired_judge(&paired, 18), PAIRED_MET);
	assert_int_equal(paired_judge(&paired, 2.9), PAIRED_MISSED);
	assert_int_equal(paired_judge(&paired, 3), PAIRED_UNDECIDED);
	assert_int_equal(paired_judge(&paired, 17.9), PAIRED_UNDECIDED);
	assert_int_equal(paired_judge(&none, 1), PAIRED_UNDECIDED);
	assert_int_equal(paired_judge_once(&paired, 15), PAIRED_MET);
	assert_int_equal(paired_judge_once(&paired, 5.9), PAIRED_MISSED);
	assert_int_equal(paired_judge_once(&paired, 14.9), PAIRED_UNDECIDED);
}

static void the_inverse_has_its_ends_exchanged(void **state)
{
	struct paired paired = counting(20), inverse = paired_inverse(&paired);

	(void)state;
	assert_true(inverse.median == 1 / paired.median);
	assert_true(inverse.low == 1 / paired.high && inverse.high == 1 / paired.low);
	paired.low = -INFINITY;
	paired.high = INFINITY;
	inverse = paired_inverse(&paired);
	assert_true(isinf(inverse.low) && isinf(inverse.high) && inverse.low < inverse.high);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_median_is_the_middle_or_between_the_two),
		cmocka_unit_test(five_pairs_are_too_few_for_an_interval_and_six_are_all_within_it),
		cmocka_unit_test(the_interval_is_that_of_the_sign_test),
		cmocka_unit_test(many_pairs_go_by_the_normal_distribution),
		cmocka_unit_test(a_few_wild_pairs_move_nothing),
		cmocka_unit_test(a_bar_is_met_above_the_interval_missed_below_it_and_undecided_within),
		cmocka_unit_test(the_inverse_has_its_ends_exchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
