#!/bin/sh
# device_tree.sh OUTPUT - the files about the device of `holdfast run` that programs look for below
# /sys/class/infiniband and /dev/infiniband. src/preload/paths.c says which path leads where.
set -eu
rm -rf "$1"
device="$1/holdfast0/infiniband/holdfast0"
mkdir -p "$device/device" "$device/ports/1/gid_attrs/types" "$1/dev"
echo -1 >"$1/holdfast0/numa_node" # above it, as with a device on a bus: the rails may be anywhere
echo -1 >"$device/device/numa_node"
echo "1: CA" >"$device/node_type"
echo holdfast >"$device/fw_ver"
echo Ethernet >"$device/ports/1/link_layer"
echo "RoCE v2" >"$device/ports/1/gid_attrs/types/0"
: >"$1/dev/uverbs1024"
