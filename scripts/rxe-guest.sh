# Sourced in the guest of rxe_vm.py: two hosts, a and b, with two rails each, all in one network namespace because that
# is where rxe of Linux 6.1 listens.
#
#   a0 10.10.0.1 (rxe_a0) ---- rail 0 ---- b0 10.10.0.3 (rxe_b0)
#   a1 10.10.0.2 (rxe_a1) ---- rail 1 ---- b1 10.10.0.4 (rxe_b1)
#
# and a wire to a network namespace "soft", where the kernel's RoCE does not hold port 4791, for soft NICs:
#
#   s0 10.10.1.1 (rxe_s0) ---------------- w0 10.10.1.2, 10.10.1.3
#
# All are of one subnet: rxe looks for a route through its own interface only. (An address of the form "peer" would do
# for IP, but becomes the GID of the other end.)
#
# Neighbours are told, since a packet that waits for one is sent late, long after the requester gave it up; and since
# a queue pair on its way to RTR waits for one for a second. An interface that goes down forgets them; it asks (often)
# for what it needs before it is told again, by a program that is running already.

# The neighbour at the other end of a wire, in the words of `ip -batch`.
meet() { # DEVICE
	case $1 in
	a[01]) echo "neigh replace 10.10.0.$((${1#a} + 3)) lladdr 02:00:00:00:0b:0${1#a} dev $1 nud permanent" ;;
	s0) echo "neigh replace 10.10.1.2 lladdr 02:00:00:00:0d:00 dev s0 nud permanent" ;;
	b[01]) echo "neigh replace 10.10.0.$((${1#b} + 1)) lladdr 02:00:00:00:0a:0${1#b} dev $1 nud permanent" ;;
	esac
}

ip link set lo up
sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.conf.all.rp_filter=0
for rail in 0 1; do
	ip link add a$rail address 02:00:00:00:0a:0$rail type veth peer name b$rail address 02:00:00:00:0b:0$rail
	for device in a$rail b$rail; do
		sysctl -qw net.ipv4.conf.$device.accept_local=1 net.ipv4.conf.$device.rp_filter=0 \
			net.ipv4.conf.$device.arp_ignore=1 net.ipv4.conf.$device.arp_announce=2 \
			net.ipv4.neigh.$device.retrans_time_ms=20 net.ipv4.neigh.$device.mcast_solicit=100
		ip link set $device mtu 4200 up
	done
	ip addr add 10.10.0.$((rail + 1))/24 dev a$rail
	ip addr add 10.10.0.$((rail + 3))/24 dev b$rail
done
ip netns add soft
ip link add s0 address 02:00:00:00:0c:00 type veth peer name w0 address 02:00:00:00:0d:00 netns soft
ip link set s0 mtu 4200 up
ip addr add 10.10.1.1/24 dev s0
for device in a0 a1 b0 b1 s0; do
	meet $device
done | ip -batch -
soft() { ip -netns soft "$@"; }
soft link set lo up
soft link set w0 mtu 4200 up
soft addr add 10.10.1.2/24 dev w0
soft addr add 10.10.1.3/24 dev w0
soft neigh replace 10.10.1.1 lladdr 02:00:00:00:0c:00 dev w0 nud permanent
for device in a0 a1 b0 b1 s0; do
	rdma link add rxe_$device type rxe netdev $device
done
ip -o monitor link | while read -r _ name flags _; do
	case $flags in *UP*) meet "${name%%@*}" ;; esac
done | ip -force -batch - 2>/dev/null &
