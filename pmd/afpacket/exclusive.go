package afpacket

import (
	"errors"
	"runtime"
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
	created bool              // the hook was not there
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
		req := nl.NewNetlinkRequest(unix.RTM_GETTFILTER, unix.NLM_F_DUMP)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: h.socket}}
		req.AddData(&nl.TcMsg{Family: nl.FAMILY_ALL, Ifindex: int32(index), Parent: parent})
		list, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWTFILTER)
		if err != nil || len(list) > 0 {
			return false
		}
	}
	return true
}
