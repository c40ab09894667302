package notify

import (
	"runtime"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. An argument has 64 bits; the kernel uses the lower 32 of those looked at here, which
// come first on the little-endian machines that Millrace runs on.
const (
	dataCall = 0
	dataArch = 4
	dataArgs = 16
)

func dataArg(n int) uint32 { return uint32(dataArgs + 8*n) }

// archs are the names of architectures in struct seccomp_data.
var archs = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
}

// x32 is set in the numbers of the calls of a second ABI of amd64.
const x32 = 0x40000000

// passed are the options of SOL_SOCKET that have their effect on the AF_UNIX socket itself, and those that only such
// sockets have. The filter leaves them to the kernel.
var passed = []uint32{
	unix.SO_RCVTIMEO_OLD, unix.SO_SNDTIMEO_OLD, unix.SO_RCVTIMEO_NEW, unix.SO_SNDTIMEO_NEW, unix.SO_RCVLOWAT,
	unix.SO_PASSCRED, unix.SO_PEERCRED, unix.SO_PEERGROUPS, unix.SO_PEERSEC,
}

// Unsupervised is a flag of sendmsg(2), which means nothing to the kernel. With it the filter leaves the call alone: the process that
// installs it hands its descriptor to the Supervisor by such a call.
const Unsupervised = unix.MSG_RST

// returns are the verdicts of the filter on a call.
var (
	toKernel     = bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}
	toSupervisor = bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF}
)

func fails(errno unix.Errno) bpf.Instruction {
	return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
}

// only returns a block that runs where the accumulator is one of values; otherwise what follows it does.
func only(values []uint32, block ...bpf.Instruction) []bpf.Instruction {
	var b []bpf.Instruction
	for i, v := range values {
		b = append(b, bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(values) - i)}) // to the block
	}
	b = append(b, bpf.Jump{Skip: uint32(len(block))})
	return append(b, block...)
}

// join makes one list of several.
func join(parts ...[]bpf.Instruction) (all []bpf.Instruction) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// filter returns the program that chooses the calls for the supervisor. It sees numbers, not descriptors or memory, so
// that calls on sockets of the kernel come, too, if their arguments may be those of a socket of the stack.
func filter() []bpf.Instruction {
	inet := []uint32{unix.AF_INET, unix.AF_INET6}
	levels := []uint32{unix.IPPROTO_IP, unix.IPPROTO_IPV6, unix.IPPROTO_TCP, unix.IPPROTO_UDP}
	always := []uint32{
		unix.SYS_SENDMMSG, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, // their addresses are in memory, as those of sendmsg(2)
		unix.SYS_BIND, unix.SYS_CONNECT, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	}
	socket := append([]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(0), Size: 4}}, append(only(inet, toSupervisor), toKernel)...)
	option := join(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(1), Size: 4}},
		only(levels, toSupervisor),
		only([]uint32{unix.SOL_SOCKET}, join([]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(2), Size: 4}}, only(passed, toKernel), []bpf.Instruction{toSupervisor})...),
		[]bpf.Instruction{toKernel},
	)
	// send(2) and recv(2) have no address, so that moving data costs nothing. The kernel would take bytes for MSG_ERRQUEUE.
	queue := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArg(3), Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.MSG_ERRQUEUE, SkipTrue: 1}, toSupervisor,
	}
	// A datagram with MSG_MORE joins others, which AF_UNIX does not know. Streams have the flag, too: the Supervisor passes them on.
	more := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArg(3), Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: unix.MSG_MORE, SkipTrue: 1}, toSupervisor,
	}
	addressed := join(
		[]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(4), Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 3}},
		[]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(4) + 4, Size: 4}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0, SkipTrue: 1}},
		[]bpf.Instruction{toKernel, toSupervisor},
	)
	message := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArg(2), Size: 4}, bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: Unsupervised, SkipTrue: 1}, toSupervisor, toKernel,
	}
	return join(
		foreign(),
		only([]uint32{unix.SYS_SENDMSG}, message...),
		only([]uint32{unix.SYS_SOCKET}, socket...),
		only(always, toSupervisor),
		only([]uint32{unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT}, option...),
		only([]uint32{unix.SYS_RECVFROM}, append(queue, addressed...)...),
		only([]uint32{unix.SYS_SENDTO}, append(more, addressed...)...),
		only([]uint32{unix.SYS_IO_URING_SETUP}, fails(unix.ENOSYS)), // its sockets would be the kernel's
		[]bpf.Instruction{toKernel},
	)
}

// confinement returns the program of Confine. What it forbids reaches a network, or frames of one: families that stay within
// the machine (AF_UNIX, AF_ALG) and that ask about it (AF_NETLINK) are permitted.
func confinement() []bpf.Instruction {
	networks := []uint32{
		unix.AF_INET, unix.AF_INET6, unix.AF_PACKET, unix.AF_XDP, unix.AF_VSOCK, unix.AF_SMC, unix.AF_RDS, unix.AF_TIPC, unix.AF_CAN,
		unix.AF_BLUETOOTH, unix.AF_IEEE802154, unix.AF_KEY,
	}
	socket := join([]bpf.Instruction{bpf.LoadAbsolute{Off: dataArg(0), Size: 4}}, only(networks, fails(unix.EACCES)), []bpf.Instruction{toKernel})
	return join(
		foreign(),
		only([]uint32{unix.SYS_SOCKET}, socket...),
		only([]uint32{unix.SYS_IO_URING_SETUP}, fails(unix.ENOSYS)), // a ring makes sockets without socket(2)
		[]bpf.Instruction{toKernel},
	)
}

// foreignSockets are the calls of the other ABI of a machine that make sockets, and io_uring_setup.
var foreignSockets = map[string][]uint32{
	"amd64":   {102, 359, unix.SYS_IO_URING_SETUP}, // 386: socketcall, socket
	"arm64":   {281, unix.SYS_IO_URING_SETUP},      // arm: socket
	"riscv64": {198, unix.SYS_IO_URING_SETUP},      // riscv32: socket
}

// foreign begins the filter: it leaves the number of the call in the accumulator. Programs of another ABI get no socket
// at all, rather than one of the kernel's stack in silence: its numbers are others, and on 386 one call stands for all.
func foreign() []bpf.Instruction {
	number := []bpf.Instruction{bpf.LoadAbsolute{Off: dataCall, Size: 4}}
	other := join(number, only(foreignSockets[runtime.GOARCH], fails(unix.EAFNOSUPPORT)), []bpf.Instruction{toKernel})
	own := number
	if runtime.GOARCH == "amd64" {
		own = append(own, bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: x32, SkipTrue: 1}, fails(unix.ENOSYS))
	}
	begin := []bpf.Instruction{
		bpf.LoadAbsolute{Off: dataArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: archs[runtime.GOARCH], SkipTrue: uint8(len(other))},
	}
	return join(begin, other, own)
}
