// SPDX-License-Identifier: GPL-2.0
// What stack_transport stands on: the spec of the driver does not name it.
#include <linux/module.h>
#include <linux/stringify.h>

#include "version.h"

int stack_core_version(void);

int stack_core_version(void)
{
	return STACK_VERSION;
}
EXPORT_SYMBOL_GPL(stack_core_version);

static int __init stack_core_init(void)
{
	return 0;
}

static void __exit stack_core_exit(void)
{
}

module_init(stack_core_init);
module_exit(stack_core_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The lower half of a test driver");
MODULE_VERSION(__stringify(STACK_VERSION));
