// SPDX-License-Identifier: GPL-2.0
/* Test data: a PCI driver for the id of QEMU's edu device, with a parameter and an import from dw_helper. */
#include <linux/module.h>
#include <linux/pci.h>

int dw_helper_double(int value);

static int verbosity = 1;
module_param(verbosity, int, 0444);
MODULE_PARM_DESC(verbosity, "How much to say");

static int dw_probe_probe(struct pci_dev *device, const struct pci_device_id *id)
{
	dev_info(&device->dev, "verbosity %d\n", dw_helper_double(verbosity));
	return 0;
}

static const struct pci_device_id dw_probe_ids[] = {
	{ PCI_DEVICE(0x1234, 0x11e8) },
	{ }
};
MODULE_DEVICE_TABLE(pci, dw_probe_ids);

static struct pci_driver dw_probe_driver = {
	.name = "dw_probe",
	.id_table = dw_probe_ids,
	.probe = dw_probe_probe,
};
module_pci_driver(dw_probe_driver);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Test data: a module that binds to a device");
MODULE_VERSION("2.5");
MODULE_IMPORT_NS(DW_HELPER);
