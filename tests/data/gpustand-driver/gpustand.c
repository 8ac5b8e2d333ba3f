// SPDX-License-Identifier: GPL-2.0
/*
 * Stands for a GPU's driver on machines without one: character devices and files in /proc under the names by which
 * programs know NVIDIA's driver. It is not NVIDIA's, has none of its code, and drives nothing.
 *
 * Each device counts its opens (the module is in use meanwhile) and answers a read with its name and minor number.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>

#define CARDS_MAJOR 195
#define MOST_CARDS 8
#define FOLDER "driver/nvidia"

static unsigned int cards = 1;
module_param(cards, uint, 0444);
MODULE_PARM_DESC(cards, "How many cards there are, 8 at most");

static int uvm_major;
module_param(uvm_major, int, 0444);
MODULE_PARM_DESC(uvm_major, "Major number of nvidia-uvm; 0: a free one; -1: there is no nvidia-uvm");

static unsigned int stranger_major;
module_param(stranger_major, uint, 0444);
MODULE_PARM_DESC(stranger_major, "Major number of devices of another name; 0: there are none");

static unsigned int modify_device_files = 1;
module_param(modify_device_files, uint, 0444);
MODULE_PARM_DESC(modify_device_files, "Whether programs may make device nodes");

static unsigned int device_file_uid;
module_param(device_file_uid, uint, 0444);
static unsigned int device_file_gid;
module_param(device_file_gid, uint, 0444);
static unsigned int device_file_mode = 0666;
module_param(device_file_mode, uint, 0444);
MODULE_PARM_DESC(device_file_mode, "Permissions of device nodes");

struct region {
	const char *name;
	unsigned int major;	/* 0: a free one */
	unsigned int minor;
	unsigned int count;
	dev_t first;
	bool registered;
	bool left_out;
	struct cdev cdev;
};

enum { CARDS, MODESET, CONTROL, CAPABILITIES, UVM, STRANGER };

static struct region regions[] = {
	[CARDS] = { .name = "nvidia", .major = CARDS_MAJOR, .minor = 0, .count = 248 },
	[MODESET] = { .name = "nvidia-modeset", .major = CARDS_MAJOR, .minor = 254, .count = 1 },
	[CONTROL] = { .name = "nvidiactl", .major = CARDS_MAJOR, .minor = 255, .count = 1 },
	[CAPABILITIES] = { .name = "nvidia-caps", .minor = 0, .count = 8192 },
	[UVM] = { .name = "nvidia-uvm", .minor = 0, .count = 2 },
	[STRANGER] = { .name = "gpustand-stranger", .minor = 0, .count = 2 },
};

static int gpustand_open(struct inode *inode, struct file *file)
{
	struct region *region = container_of(inode->i_cdev, struct region, cdev);

	if (region == &regions[CARDS] && iminor(inode) >= cards)
		return -ENODEV;
	file->private_data = region;
	return 0;
}

static ssize_t gpustand_read(struct file *file, char __user *buffer, size_t count, loff_t *position)
{
	struct region *region = file->private_data;
	char text[48];
	int length = scnprintf(text, sizeof(text), "%s %u\n", region->name, iminor(file_inode(file)));

	return simple_read_from_buffer(buffer, count, position, text, length);
}

static const struct file_operations gpustand_operations = {
	.owner = THIS_MODULE,
	.open = gpustand_open,
	.read = gpustand_read,
};

static int show_params(struct seq_file *file, void *unused)
{
	seq_printf(file, "ModifyDeviceFiles: %u\n", modify_device_files);
	seq_printf(file, "DeviceFileUID: %u\n", device_file_uid);
	seq_printf(file, "DeviceFileGID: %u\n", device_file_gid);
	seq_printf(file, "DeviceFileMode: %u\n", device_file_mode);
	seq_puts(file, "RegistryDwords: \"\"\n");
	return 0;
}

static int show_card(struct seq_file *file, void *unused)
{
	unsigned int minor = (unsigned long)file->private;

	seq_puts(file, "Model: \t\t A stand-in for a GPU\n");
	seq_printf(file, "Bus Location: \t 0000:00:%02x.0\n", minor + 4);
	seq_printf(file, "Device Minor: \t %u\n", minor);
	return 0;
}

struct capability {
	const char *path;
	unsigned int minor;
	unsigned int mode;
};

static const struct capability capabilities[] = {
	{ "capabilities/mig/config", 1, 0400 },
	{ "capabilities/mig/monitor", 2, 0444 },
	{ "capabilities/gpu0/mig/gi1/access", 12, 0444 },
	{ "capabilities/gpu0/mig/gi1/ci0/access", 13, 0444 },
};

static const char * const folders[] = {
	"gpus", "capabilities", "capabilities/mig", "capabilities/gpu0", "capabilities/gpu0/mig",
	"capabilities/gpu0/mig/gi1", "capabilities/gpu0/mig/gi1/ci0",
};

static int show_capability(struct seq_file *file, void *unused)
{
	const struct capability *capability = file->private;

	seq_printf(file, "DeviceFileMinor: %u\n", capability->minor);
	seq_printf(file, "DeviceFileMode: %u\n", capability->mode);
	seq_printf(file, "DeviceFileModify: %u\n", modify_device_files);
	return 0;
}

static int make_card_files(struct proc_dir_entry *root)
{
	unsigned long minor;

	for (minor = 0; minor < cards; minor++) {
		char path[40];

		scnprintf(path, sizeof(path), "gpus/0000:00:%02lx.0", minor + 4);
		if (!proc_mkdir(path, root))
			return -ENOMEM;
		scnprintf(path, sizeof(path), "gpus/0000:00:%02lx.0/information", minor + 4);
		if (!proc_create_single_data(path, 0444, root, show_card, (void *)minor))
			return -ENOMEM;
	}
	return 0;
}

static int make_files(void)
{
	struct proc_dir_entry *root = proc_mkdir(FOLDER, NULL);
	int number;

	if (!root || !proc_create_single_data("params", 0444, root, show_params, NULL))
		return -ENOMEM;
	for (number = 0; number < ARRAY_SIZE(folders); number++)
		if (!proc_mkdir(folders[number], root))
			return -ENOMEM;
	for (number = 0; number < ARRAY_SIZE(capabilities); number++)
		if (!proc_create_single_data(capabilities[number].path, 0444, root, show_capability,
					     (void *)&capabilities[number]))
			return -ENOMEM;
	return make_card_files(root);
}

static int register_region(struct region *region)
{
	int error;

	if (region->left_out)
		return 0;
	region->first = MKDEV(region->major, region->minor);
	if (region->major)
		error = register_chrdev_region(region->first, region->count, region->name);
	else
		error = alloc_chrdev_region(&region->first, region->minor, region->count, region->name);
	if (error)
		return error;
	cdev_init(&region->cdev, &gpustand_operations);
	region->cdev.owner = THIS_MODULE;
	error = cdev_add(&region->cdev, region->first, region->count);
	if (error) {
		unregister_chrdev_region(region->first, region->count);
		return error;
	}
	region->registered = true;
	return 0;
}

static void leave(void)
{
	int number;

	for (number = 0; number < ARRAY_SIZE(regions); number++) {
		if (!regions[number].registered)
			continue;
		cdev_del(&regions[number].cdev);
		unregister_chrdev_region(regions[number].first, regions[number].count);
	}
	remove_proc_subtree(FOLDER, NULL);
}

static int __init gpustand_init(void)
{
	int number, error;

	cards = min_t(unsigned int, cards, MOST_CARDS);
	regions[UVM].major = max(uvm_major, 0);
	regions[UVM].left_out = uvm_major < 0;
	regions[STRANGER].major = stranger_major;
	regions[STRANGER].left_out = !stranger_major;
	error = make_files();
	for (number = 0; !error && number < ARRAY_SIZE(regions); number++)
		error = register_region(&regions[number]);
	if (error)
		leave();
	return error;
}

static void __exit gpustand_exit(void)
{
	leave();
}

module_init(gpustand_init);
module_exit(gpustand_exit);
MODULE_DESCRIPTION("Stands for a GPU's driver in tests; not NVIDIA's");
MODULE_VERSION("1.0.0");
MODULE_LICENSE("GPL");
