package afpacket

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The filter's place at the ingress hook. It is the same for every Open of an interface: a later one
// replaces the filter that a killed process has left.
const (
	ingressPriority = 49149 // before those that tc chooses, from 49152 down, and behind hand-written ones
	ingressHandle   = 1
)

// ingressFilter is a filter at the ingress hook (tc clsact) that drops packets before the kernel's protocols
// see them. Packet sockets see them before that. It is a classic BPF program in tc's bpf classifier, so
// that the sockets and the hook run the same program, and no CAP_BPF is needed.
type ingressFilter struct {
	socket  *nl.NetlinkSocket // in the namespace that the device was opened in
	created bool              // the hook was not there, or a killed process has left it with its filter
}

// newIngressFilter opens the netlink socket with which the filter is changed. It is opened once, because a socket keeps
// the network namespace that it was made in.
func newIngressFilter() (*ingressFilter, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &ingressFilter{socket: s}, nil
}

// request starts a message to the kernel on the filter's own socket: the namespace of the calling thread may
// be another by now.
func (h *ingressFilter) request(kind, flags int) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(kind, unix.NLM_F_ACK|flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: h.socket}}
	return req
}

// install replaces the program of the filter. The kernel does so atomically: packets meet the old or the new
// program, never none.
func (h *ingressFilter) install(index int, prog []unix.SockFilter) error {
	h.created = h.created || h.present(index)
	req := h.request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(hook(index))
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("clsact")))
	switch _, err := req.Execute(unix.NETLINK_ROUTE, 0); {
	case err == nil:
		h.created = true
	case !errors.Is(err, unix.EEXIST):
		return err
	}
	req = h.request(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE)
	req.AddData(h.filter(index))
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(uint16(len(prog))))
	options.AddRtAttr(nl.TCA_BPF_OPS, unsafe.Slice((*byte)(unsafe.Pointer(&prog[0])), len(prog)*unix.SizeofSockFilter))
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	req.AddData(options)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	runtime.KeepAlive(prog)
	return err
}

// filter names the filter: interface, hook, priority and handle. tcm_info has the priority in its upper 16 bits and the
// protocol, in network byte order, in the lower (linux/rtnetlink.h).
func (h *ingressFilter) filter(index int) *nl.TcMsg {
	return &nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: ingressHandle,
		Parent: netlink.HANDLE_MIN_INGRESS,
		Info:   ingressPriority<<16 | uint32(htons(unix.ETH_P_ALL)),
	}
}

// remove deletes the filter, and the hook if it was not there before and no other filter uses it. An
// interface that is gone had both deleted with it.
func (h *ingressFilter) remove(index int) error {
	defer h.socket.Close()
	req := h.request(unix.RTM_DELTFILTER, 0)
	req.AddData(h.filter(index))
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !absent(err) {
		return err
	}
	if !h.created || !h.unused(index) {
		return nil
	}
	req = h.request(unix.RTM_DELQDISC, 0)
	req.AddData(hook(index))
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil && !absent(err) {
		return err
	}
	return nil
}

// RemoveStale removes the filter that a killed process has left at the ingress hook of an interface, in the
// network namespace of the calling thread, and the hook if no other filter uses it. Open does the same for
// its own device; this is for devices that another driver takes over: the kernel would go on dropping the
// packets that are named there, also after that driver has ended. A filter is left alone while a packet
// socket is open on the interface, which may be its owner's. It returns whether there was one.
func RemoveStale(name string) (bool, error) {
	i, err := lookUp(name)
	if err != nil {
		return false, err
	}
	h, err := newIngressFilter()
	if err != nil {
		return false, err
	}
	if !h.present(i.index) || socketOn(i.index) {
		h.socket.Close()
		return false, nil
	}
	h.created = true
	return true, h.remove(i.index)
}

// present reports whether the interface has a filter at this one's place.
func (h *ingressFilter) present(index int) bool {
	list, err := h.list(index, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return false
	}
	for _, m := range list {
		if at := nl.DeserializeTcMsg(m); at.Info>>16 == ingressPriority && at.Handle == ingressHandle {
			return true
		}
	}
	return false
}

// list returns the filters at one of the interface's hooks.
func (h *ingressFilter) list(index int, parent uint32) ([][]byte, error) {
	req := h.request(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
	return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
}

// socketOn reports whether a packet socket of the namespace is bound to the interface (packet(7)). In doubt
// it is true.
func socketOn(index int) bool {
	text, err := os.ReadFile("/proc/thread-self/net/packet") // sk RefCnt Type Proto Iface R Rmem User Inode
	if err != nil {
		return true
	}
	for _, line := range strings.Split(string(text), "\n") {
		if f := strings.Fields(line); len(f) > 4 && f[4] == strconv.Itoa(index) {
			return true
		}
	}
	return false
}

// absent reports whether the object to delete does not exist any more: ENODEV without the interface, ENOENT without the
// filter, EINVAL without the qdisc.
func absent(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL)
}

// hook names the qdisc of the interface's two hooks, ingress and egress (clsact, Linux 4.5).
func hook(index int) *nl.TcMsg {
	return &nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: netlink.HANDLE_CLSACT & 0xffff0000, Parent: netlink.HANDLE_CLSACT}
}

// unused reports whether no filter is left at the interface's two hooks. In doubt it is false: deleting the qdisc would
// delete the filters of others with it.
func (h *ingressFilter) unused(index int) bool {
	for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
		list, err := h.list(index, parent)
		if err != nil || len(list) > 0 {
			return false
		}
	}
	return true
}
