"""QEMU guests as Kubernetes nodes: real Debian kernels, kubelet, containerd, and a PCI device to drive.

root_tree -> disk: what every guest's disk holds     images: container images on a second disk, loaded beforehand
cpio -> initramfs: what brings the disk up           guest_files: what one guest alone gets (certificates, names)
emulation -> machine: QEMU's command line            guest: one guest, booted and asked; guests: all of a testbed's
script: a kernel that runs some shell and ends, without a disk or a cluster
"""
