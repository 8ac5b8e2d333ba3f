// SPDX-License-Identifier: GPL-2.0
/* The second module of the test pair: exports a symbol, in a namespace, that dw_probe imports. */
#include <linux/module.h>

int dw_helper_double(int value);

int dw_helper_double(int value)
{
	return 2 * value;
}
EXPORT_SYMBOL_NS_GPL(dw_helper_double, DW_HELPER);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Test data: a module that another module depends on");
MODULE_VERSION("1.0");
