// SPDX-License-Identifier: GPL-2.0
/*
 * PCI driver for the "edu" device of QEMU (docs/specs/edu in QEMU's tree).
 *
 * The device computes factorials. Each one is found as /dev/eduN: write a
 * decimal number, read its factorial. A file that has computed nothing reads
 * the device's last result, so that `echo 5 >/dev/edu0; cat /dev/edu0` works.
 * The arithmetic has 32 bits, so 12 is the largest number it gets right;
 * larger ones are refused with ERANGE.
 */

#include <linux/bits.h>
#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/kernel.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>

#define EDU_VENDOR_ID		0x1234
#define EDU_DEVICE_ID		0x11e8

#define EDU_BAR			0
#define EDU_BAR_SIZE		0x100

/* Registers: 0xRRrr00ed (version), ~value, n and n!, and the interrupt's. */
#define EDU_IDENTIFICATION	0x00
#define EDU_LIVENESS		0x04
#define EDU_FACTORIAL		0x08
#define EDU_STATUS		0x20
#define EDU_IRQ_STATUS		0x24
#define EDU_IRQ_RAISE		0x60
#define EDU_IRQ_ACKNOWLEDGE	0x64

#define EDU_ID_MASK		0x0000ffff
#define EDU_ID_MAGIC		0x000000ed
#define EDU_STATUS_COMPUTING	BIT(0)
#define EDU_STATUS_IRQ		BIT(7)
#define EDU_IRQ_FACTORIAL	BIT(0)

#define EDU_LARGEST		12
#define EDU_TIMEOUT_MS		2000
#define EDU_POLL_US		20
#define EDU_GONE		(~0u)

static bool use_irq = true;
module_param(use_irq, bool, 0444);
MODULE_PARM_DESC(use_irq, "Wait for the device by interrupt (default) instead of by polling");

static DEFINE_IDA(edu_ids);

/*
 * @lock guards the registers, @factorial (the last result) and @gone, which
 * says that the device was removed. An open file keeps the structure alive
 * through @users; the device itself goes away with remove().
 */
struct edu_device {
	struct kref users;
	struct mutex lock;
	struct pci_dev *pdev;
	void __iomem *registers;
	struct completion done;
	struct miscdevice misc;
	char name[16];
	int id;
	u32 factorial;
	bool has_irq;
	bool gone;
};

/* Whoever computes in an open file reads that result, not somebody else's. */
struct edu_file {
	struct edu_device *edu;
	u32 factorial;
};

static void edu_free(struct kref *users)
{
	struct edu_device *edu = container_of(users, struct edu_device, users);

	ida_free(&edu_ids, edu->id);
	mutex_destroy(&edu->lock);
	kfree(edu);
}

static irqreturn_t edu_interrupt(int irq, void *data)
{
	struct edu_device *edu = data;
	u32 pending = readl(edu->registers + EDU_IRQ_STATUS);

	/* All ones is how a device that was pulled out answers. */
	if (!pending || pending == EDU_GONE)
		return IRQ_NONE;

	writel(pending, edu->registers + EDU_IRQ_ACKNOWLEDGE);
	if (pending & EDU_IRQ_FACTORIAL)
		complete(&edu->done);

	return IRQ_HANDLED;
}

static int edu_poll(struct edu_device *edu)
{
	u32 status;

	return readl_poll_timeout(edu->registers + EDU_STATUS, status,
				  !(status & EDU_STATUS_COMPUTING) || status == EDU_GONE,
				  EDU_POLL_US, EDU_TIMEOUT_MS * USEC_PER_MSEC);
}

/* The lock is held: there is one factorial at a time. */
static int edu_factorial(struct edu_device *edu, u32 n, u32 *factorial)
{
	int ret;

	reinit_completion(&edu->done);
	writel(edu->has_irq ? EDU_STATUS_IRQ : 0, edu->registers + EDU_STATUS);
	writel(n, edu->registers + EDU_FACTORIAL);

	if (edu->has_irq &&
	    !wait_for_completion_timeout(&edu->done, msecs_to_jiffies(EDU_TIMEOUT_MS)))
		dev_warn(&edu->pdev->dev, "no interrupt after %d ms, polling\n", EDU_TIMEOUT_MS);

	ret = edu_poll(edu);
	if (ret)
		return ret;

	*factorial = readl(edu->registers + EDU_FACTORIAL);
	return *factorial == EDU_GONE ? -ENODEV : 0;
}

static int edu_open(struct inode *inode, struct file *file)
{
	struct edu_device *edu = container_of(file->private_data, struct edu_device, misc);
	struct edu_file *handle;

	handle = kzalloc(sizeof(*handle), GFP_KERNEL);
	if (!handle)
		return -ENOMEM;

	/* misc_open() holds misc_mtx, so remove() has not deregistered yet. */
	kref_get(&edu->users);
	handle->edu = edu;
	handle->factorial = READ_ONCE(edu->factorial);
	file->private_data = handle;

	return 0;
}

static int edu_release(struct inode *inode, struct file *file)
{
	struct edu_file *handle = file->private_data;

	kref_put(&handle->edu->users, edu_free);
	kfree(handle);

	return 0;
}

static ssize_t edu_write(struct file *file, const char __user *buffer, size_t count, loff_t *offset)
{
	struct edu_file *handle = file->private_data;
	struct edu_device *edu = handle->edu;
	u32 n, factorial;
	int ret;

	ret = kstrtou32_from_user(buffer, count, 10, &n);
	if (ret)
		return ret;
	if (n > EDU_LARGEST)
		return -ERANGE;

	if (mutex_lock_interruptible(&edu->lock))
		return -ERESTARTSYS;
	ret = edu->gone ? -ENODEV : edu_factorial(edu, n, &factorial);
	if (!ret) {
		WRITE_ONCE(handle->factorial, factorial);
		WRITE_ONCE(edu->factorial, factorial);
	}
	mutex_unlock(&edu->lock);
	if (ret)
		return ret;

	/* The answer is read from its beginning, through the same open file. */
	*offset = 0;
	return count;
}

static ssize_t edu_read(struct file *file, char __user *buffer, size_t count, loff_t *offset)
{
	struct edu_file *handle = file->private_data;
	u32 factorial = READ_ONCE(handle->factorial);
	char text[16];
	int length = 0;

	/* No factorial is 0: nothing was computed yet. */
	if (factorial)
		length = scnprintf(text, sizeof(text), "%u\n", factorial);

	return simple_read_from_buffer(buffer, count, offset, text, length);
}

static const struct file_operations edu_fops = {
	.owner = THIS_MODULE,
	.open = edu_open,
	.release = edu_release,
	.read = edu_read,
	.write = edu_write,
	.llseek = default_llseek,
};

static ssize_t identification_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct edu_device *edu = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%08x\n", readl(edu->registers + EDU_IDENTIFICATION));
}
static DEVICE_ATTR_RO(identification);

/* The liveness register answers with the complement of what was written. */
static bool edu_is_live(struct edu_device *edu)
{
	const u32 probe = 0x5a5a1234;
	bool is_live;

	mutex_lock(&edu->lock);
	writel(probe, edu->registers + EDU_LIVENESS);
	is_live = readl(edu->registers + EDU_LIVENESS) == ~probe;
	mutex_unlock(&edu->lock);

	return is_live;
}

static ssize_t live_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", edu_is_live(dev_get_drvdata(dev)));
}
static DEVICE_ATTR_RO(live);

static struct attribute *edu_attrs[] = {
	&dev_attr_identification.attr,
	&dev_attr_live.attr,
	NULL,
};
ATTRIBUTE_GROUPS(edu);

static int edu_identify(struct edu_device *edu)
{
	struct device *dev = &edu->pdev->dev;
	u32 id = readl(edu->registers + EDU_IDENTIFICATION);

	if ((id & EDU_ID_MASK) != EDU_ID_MAGIC)
		return dev_err_probe(dev, -ENODEV, "identification %08x is not edu's\n", id);
	if (!edu_is_live(edu))
		return dev_err_probe(dev, -EIO, "the liveness register does not answer\n");

	return 0;
}

/* Without an interrupt the driver polls: that is no reason to fail. */
static void edu_request_irq(struct edu_device *edu)
{
	struct pci_dev *pdev = edu->pdev;
	int ret;

	if (!use_irq)
		return;

	ret = pci_alloc_irq_vectors(pdev, 1, 1, PCI_IRQ_MSI);
	if (ret < 0) {
		dev_warn(&pdev->dev, "no MSI vector (%d), polling\n", ret);
		return;
	}

	ret = request_irq(pci_irq_vector(pdev, 0), edu_interrupt, 0, edu->name, edu);
	if (ret) {
		dev_warn(&pdev->dev, "no interrupt (%d), polling\n", ret);
		pci_free_irq_vectors(pdev);
		return;
	}

	edu->has_irq = true;
}

static void edu_free_irq(struct edu_device *edu)
{
	if (!edu->has_irq)
		return;

	free_irq(pci_irq_vector(edu->pdev, 0), edu);
	pci_free_irq_vectors(edu->pdev);
	edu->has_irq = false;
}

static struct edu_device *edu_alloc(struct pci_dev *pdev)
{
	struct edu_device *edu;
	int id;

	edu = kzalloc(sizeof(*edu), GFP_KERNEL);
	if (!edu)
		return ERR_PTR(-ENOMEM);

	id = ida_alloc(&edu_ids, GFP_KERNEL);
	if (id < 0) {
		kfree(edu);
		return ERR_PTR(id);
	}

	kref_init(&edu->users);
	mutex_init(&edu->lock);
	init_completion(&edu->done);
	edu->pdev = pdev;
	edu->id = id;
	snprintf(edu->name, sizeof(edu->name), "edu%d", id);
	edu->misc.minor = MISC_DYNAMIC_MINOR;
	edu->misc.name = edu->name;
	edu->misc.fops = &edu_fops;
	edu->misc.parent = &pdev->dev;

	return edu;
}

static int edu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct edu_device *edu;
	int ret;

	ret = pci_enable_device(pdev);
	if (ret)
		return ret;

	ret = pci_request_region(pdev, EDU_BAR, KBUILD_MODNAME);
	if (ret)
		goto disable_device;

	edu = edu_alloc(pdev);
	if (IS_ERR(edu)) {
		ret = PTR_ERR(edu);
		goto release_region;
	}

	edu->registers = pci_iomap(pdev, EDU_BAR, EDU_BAR_SIZE);
	if (!edu->registers) {
		ret = -ENOMEM;
		goto free_edu;
	}

	ret = edu_identify(edu);
	if (ret)
		goto unmap;

	pci_set_drvdata(pdev, edu);
	pci_set_master(pdev);
	edu_request_irq(edu);

	ret = misc_register(&edu->misc);
	if (ret)
		goto free_interrupt;

	dev_info(&pdev->dev, "/dev/%s, %s\n", edu->name, edu->has_irq ? "by interrupt" : "by polling");
	return 0;

free_interrupt:
	edu_free_irq(edu);
	pci_clear_master(pdev);
unmap:
	pci_iounmap(pdev, edu->registers);
free_edu:
	kref_put(&edu->users, edu_free);
release_region:
	pci_release_region(pdev, EDU_BAR);
disable_device:
	pci_disable_device(pdev);
	return ret;
}

static void edu_remove(struct pci_dev *pdev)
{
	struct edu_device *edu = pci_get_drvdata(pdev);

	/* From here on nobody opens it; who has it open is told ENODEV. */
	misc_deregister(&edu->misc);
	mutex_lock(&edu->lock);
	edu->gone = true;
	edu_free_irq(edu);
	mutex_unlock(&edu->lock);

	pci_clear_master(pdev);
	pci_iounmap(pdev, edu->registers);
	pci_release_region(pdev, EDU_BAR);
	pci_disable_device(pdev);
	kref_put(&edu->users, edu_free);
}

static const struct pci_device_id edu_pci_ids[] = {
	{ PCI_DEVICE(EDU_VENDOR_ID, EDU_DEVICE_ID) },
	{ }
};
MODULE_DEVICE_TABLE(pci, edu_pci_ids);

static struct pci_driver edu_pci_driver = {
	.name = KBUILD_MODNAME,
	.id_table = edu_pci_ids,
	.probe = edu_probe,
	.remove = edu_remove,
	.dev_groups = edu_groups,
};

static int __init edu_init(void)
{
	return pci_register_driver(&edu_pci_driver);
}
module_init(edu_init);

static void __exit edu_exit(void)
{
	pci_unregister_driver(&edu_pci_driver);
	ida_destroy(&edu_ids);
}
module_exit(edu_exit);

MODULE_AUTHOR("The driverwright authors");
MODULE_DESCRIPTION("PCI driver for QEMU's edu device");
MODULE_LICENSE("GPL");
MODULE_VERSION("1.0.0");
