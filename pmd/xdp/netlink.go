package xdp

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/internal/rtnl"
)

// Mode is where an interface runs its XDP program.
type Mode uint8

// The modes. ModeAny is native where the driver has it, and generic otherwise.
const (
	ModeAny Mode = iota
	ModeNative
	ModeGeneric
	ModeOffloaded
	ModeSeveral // programs in more than one mode
)

// String returns the name of the mode.
func (m Mode) String() string {
	return [...]string{"any", "native", "generic", "offloaded", "several"}[m]
}

// flags returns the flag of linux/if_link.h that selects the mode.
func (m Mode) flags() uint32 {
	return [...]uint32{0, unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_SKB_MODE, unix.XDP_FLAGS_HW_MODE, 0}[m]
}

// modes are the values of IFLA_XDP_ATTACHED.
var modes = map[uint32]Mode{1: ModeNative, 2: ModeGeneric, 3: ModeOffloaded, 4: ModeSeveral}

// attached returns the id and the mode of the program on an interface of the calling thread's namespace; 0: none.
func attached(ifindex int) (id uint32, mode Mode, err error) {
	l, err := rtnl.Dump(func() (netlink.Link, error) { return netlink.LinkByIndex(ifindex) })
	if err != nil {
		return 0, 0, fmt.Errorf("interface %d: %w", ifindex, err)
	}
	id, mode = attachedTo(l)
	return id, mode, nil
}

func attachedTo(l netlink.Link) (id uint32, mode Mode) {
	x := l.Attrs().Xdp
	if x == nil {
		return 0, ModeAny
	}
	return x.ProgId, modes[x.AttachMode]
}

// noProgram is the file descriptor that stands for none in setProgram.
const noProgram = -1

// setProgram makes the program with descriptor fd that of the interface, in the place of the one with descriptor old. Both
// may be noProgram. Where another program is there the error is EEXIST or EBUSY, and nothing changes.
func setProgram(ifindex, fd, old int, mode Mode) error {
	flags := mode.flags()
	if old == noProgram {
		flags |= unix.XDP_FLAGS_UPDATE_IF_NOEXIST
	} else {
		flags |= unix.XDP_FLAGS_REPLACE
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(ifindex)
	req.AddData(msg)
	attrs := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	add := func(kind int, v uint32) { attrs.AddRtAttr(kind, binary.NativeEndian.AppendUint32(nil, v)) }
	add(unix.IFLA_XDP_FD, uint32(fd))
	add(unix.IFLA_XDP_FLAGS, flags)
	if old != noProgram {
		add(unix.IFLA_XDP_EXPECTED_FD, uint32(old))
	}
	req.AddData(attrs)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// setAny is setProgram for a first program: without a mode it tries native, then generic.
func setAny(ifindex, fd int, mode Mode) error {
	if mode != ModeAny {
		return setProgram(ifindex, fd, noProgram, mode)
	}
	err := setProgram(ifindex, fd, noProgram, ModeNative)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ERANGE) || errors.Is(err, unix.E2BIG) {
		err = setProgram(ifindex, fd, noProgram, ModeGeneric)
	}
	return err
}
