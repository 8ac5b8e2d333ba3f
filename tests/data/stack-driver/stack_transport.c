// SPDX-License-Identifier: GPL-2.0
// Needs stack_core, and asks for a module of the kernel that it does not need.
#include <linux/module.h>
#include <linux/stringify.h>

#include "version.h"

int stack_core_version(void);

static int __init stack_transport_init(void)
{
	pr_info("transport %d on core %d\n", STACK_VERSION, stack_core_version());
	return 0;
}

static void __exit stack_transport_exit(void)
{
}

module_init(stack_transport_init);
module_exit(stack_transport_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("The upper half of a test driver");
MODULE_VERSION(__stringify(STACK_VERSION));
MODULE_SOFTDEP("pre: llc");
