#!/bin/sh
# device_tree.sh OUTPUT - the files about the device of `holdfast run` that programs look for below
# /sys/class/infiniband and /dev/infiniband. src/preload/paths.c says which path leads where.
set -eu
rm -rf "$1"
device="$1/holdfast0/infiniband/holdfast0"
mkdir -p "$device/device" "$device/ports/1/gid_attrs/types" "$device/ports/1/gid_attrs/ndevs" "$1/dev"
echo -1 >"$1/holdfast0/numa_node" # above it, as with a device on a bus: the rails may be anywhere
echo -1 >"$device/device/numa_node"
# Of the device on its bus, as NCCL reads them for its topology; the class is that of a network controller.
echo 0x020700 >"$device/device/class"
echo "16.0 GT/s PCIe" >"$device/device/max_link_speed"
echo 16 >"$device/device/max_link_width"
echo "1: CA" >"$device/node_type"
echo holdfast >"$device/fw_ver"
echo Ethernet >"$device/ports/1/link_layer"
echo "RoCE v2" >"$device/ports/1/gid_attrs/types/0"
echo "100 Gb/sec (4X EDR)" >"$device/ports/1/rate"
echo lo >"$device/ports/1/gid_attrs/ndevs/0" # UCX asks for the route to a peer through it
mkdir -p "$device/device/net/lo" # its address is that of tests which connect by rdma_cm
: >"$1/dev/uverbs1024"
