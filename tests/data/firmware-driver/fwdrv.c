// SPDX-License-Identifier: GPL-2.0
/* A driver without a device: it asks the kernel for its firmware when it is loaded, and fails without. */
#include <linux/err.h>
#include <linux/firmware.h>
#include <linux/module.h>
#include <linux/platform_device.h>

#define FIRMWARE "fwdrv/greeting.bin"

static struct platform_device *device;

static int __init fwdrv_init(void)
{
	const struct firmware *firmware;
	int error;

	device = platform_device_register_simple("fwdrv", -1, NULL, 0);
	if (IS_ERR(device))
		return PTR_ERR(device);
	error = request_firmware(&firmware, FIRMWARE, &device->dev);
	if (error) {
		platform_device_unregister(device);
		return error;
	}
	pr_info("fwdrv: its firmware says: %.*s\n", (int)firmware->size, firmware->data);
	release_firmware(firmware);
	return 0;
}

static void __exit fwdrv_exit(void)
{
	platform_device_unregister(device);
}

module_init(fwdrv_init);
module_exit(fwdrv_exit);
MODULE_DESCRIPTION("Asks for firmware");
MODULE_VERSION("1.0.0");
MODULE_FIRMWARE(FIRMWARE);
MODULE_LICENSE("GPL");
