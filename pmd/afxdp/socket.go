package afxdp

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/ring"
)

// socket is a bound AF_XDP socket with its rings mapped.
type socket struct {
	fd                 int
	fill, comp, rx, tx xring
	zeroCopy, wakeup   bool // as the kernel chose (XDP_OPTIONS); need_wakeup was asked for
	multi, busyPoll    bool // packets may span frames; the kernel polls the device in system calls
}

// openSocket opens a socket on a queue of an interface. The first socket of a device, for which
// owner is -1, registers the arena as UMEM; the others name its descriptor and share it.
func openSocket(cfg *Config, addr unix.SockaddrXDP, owner int, multi bool) (*socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	s := &socket{fd: fd, multi: multi}
	if owner < 0 {
		addr.Flags = bindFlags(cfg, multi)
		err = register(fd, cfg.arena(), cfg.Headroom-DefaultHeadroom)
	} else {
		addr.Flags, addr.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(owner) // the rest is as the owner's
	}
	if err == nil {
		err = s.setUp(cfg, &addr)
	}
	if err != nil {
		_ = s.close()
		return nil, err
	}
	return s, nil
}

// setUp makes the rings, sets options and binds. The order is the kernel's: bind fails with EINVAL without an rx or tx ring,
// and what was negotiated can be read only after it.
func (s *socket) setUp(cfg *Config, addr *unix.SockaddrXDP) error {
	if err := s.mapRings(cfg.Rings); err != nil {
		return err
	}
	if err := s.setBusyPoll(cfg.BusyPoll); err != nil {
		return err
	}
	// Kernels before 6.17 send at most 32 packets for each call and do not know the option.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, cfg.Rings.Tx)
	if err := s.bind(addr); err != nil {
		return err
	}
	var opts uint32
	if err := getsockopt(s.fd, unix.XDP_OPTIONS, unsafe.Pointer(&opts), unsafe.Sizeof(opts)); err != nil {
		return fmt.Errorf("read XDP_OPTIONS: %w", err)
	}
	s.zeroCopy = opts&unix.XDP_OPTIONS_ZEROCOPY != 0
	s.wakeup = !cfg.NoNeedWakeup
	return nil
}

// register makes the arena the UMEM of the socket (XDP_UMEM_REG, struct xdp_umem_reg), with frames as
// chunks. headroom is what the kernel leaves in front of a packet beyond its own 256 bytes
// (XDP_PACKET_HEADROOM).
func register(fd int, a *ring.Arena, headroom int) error {
	reg := unix.XDPUmemReg{
		Addr:     uint64(uintptr(unsafe.Pointer(&a.Mem[0]))),
		Len:      uint64(len(a.Mem)),
		Size:     uint32(a.FrameSize()),
		Headroom: uint32(headroom),
	}
	if err := setsockopt(fd, unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
		return fmt.Errorf("register %d bytes of memory: %w", len(a.Mem), err)
	}
	return nil
}

// mapRings makes the four rings. Each socket of a shared UMEM has a fill and a completion ring of its own,
// because each is bound to another queue (Linux 5.10).
func (s *socket) mapRings(size Rings) (err error) {
	for _, r := range []struct {
		to   *xring
		kind ringKind
		n    int
	}{{&s.fill, kindFill, size.Fill}, {&s.comp, kindComp, size.Completion}, {&s.rx, kindRx, size.Rx}, {&s.tx, kindTx, size.Tx}} {
		if *r.to, err = mapRing(s.fd, r.kind, r.n); err != nil {
			return err
		}
	}
	return nil
}

// setBusyPoll turns busy polling on (Documentation/networking/napi.rst). SO_PREFER_BUSY_POLL keeps interrupts
// masked while the application polls; without it the other two options change little.
func (s *socket) setBusyPoll(b BusyPoll) error {
	if b.Micros <= 0 {
		return nil
	}
	budget := b.Budget
	if budget <= 0 {
		budget = 64
	}
	for _, o := range []struct {
		name string
		opt  int
		v    int
	}{
		{"SO_PREFER_BUSY_POLL", unix.SO_PREFER_BUSY_POLL, 1},
		{"SO_BUSY_POLL", unix.SO_BUSY_POLL, b.Micros},
		{"SO_BUSY_POLL_BUDGET", unix.SO_BUSY_POLL_BUDGET, budget},
	} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o.opt, o.v); err != nil {
			return fmt.Errorf("%s: %w", o.name, err)
		}
	}
	s.busyPoll = true
	return nil
}

// bindWait is the time that bind waits for a queue of a socket that was just closed: the kernel releases it
// from a work queue, after close(2) has returned (xdp_umem_release_deferred).
const bindWait = time.Second

// bind binds the socket to its queue. EBUSY may be the driver's own earlier socket, so it is tried again for bindWait; a
// queue that another process holds stays busy and fails then.
func (s *socket) bind(addr *unix.SockaddrXDP) error {
	end := time.Now().Add(bindWait)
	err := unix.Bind(s.fd, addr)
	for errors.Is(err, unix.EBUSY) && time.Now().Before(end) {
		time.Sleep(5 * time.Millisecond)
		err = unix.Bind(s.fd, addr)
	}
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

// bindFlags returns the flags of struct sockaddr_xdp. Without XDP_COPY and XDP_ZEROCOPY the kernel chooses.
func bindFlags(cfg *Config, multi bool) uint16 {
	var f uint16
	switch cfg.Copy {
	case CopyOn:
		f |= unix.XDP_COPY
	case CopyOff:
		f |= unix.XDP_ZEROCOPY
	}
	if !cfg.NoNeedWakeup {
		f |= unix.XDP_USE_NEED_WAKEUP
	}
	if multi {
		f |= unix.XDP_USE_SG
	}
	return f
}

// close closes the socket. The kernel no longer uses the frames when it returns, so that they may go to
// their pool.
func (s *socket) close() error {
	err := unix.Close(s.fd)
	s.fd = -1
	for _, r := range []*xring{&s.fill, &s.comp, &s.rx, &s.tx} {
		err = errors.Join(err, r.unmap())
	}
	return err
}

// kernelStats reads the counters of the kernel for the socket (XDP_STATISTICS); zero where it has none.
func kernelStats(fd int) (st unix.XDPStatistics) {
	_ = getsockopt(fd, unix.XDP_STATISTICS, unsafe.Pointer(&st), unsafe.Sizeof(st))
	return st
}
