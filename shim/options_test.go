package shim

import (
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestOptionsAsOfLinux makes the same calls on a socket of the kernel and on one of the stack: before a connection and
// after.
func TestOptionsAsOfLinux(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	kernel, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(kernel)
	p := c.socket(unix.SOCK_STREAM, false)
	type call struct {
		level, name int
		values      []int // to set; each is read after it
	}
	calls := []call{
		{unix.SOL_SOCKET, unix.SO_TYPE, nil},
		{unix.SOL_SOCKET, unix.SO_DOMAIN, nil},
		{unix.SOL_SOCKET, unix.SO_PROTOCOL, nil},
		{unix.SOL_SOCKET, unix.SO_ACCEPTCONN, nil},
		{unix.SOL_SOCKET, unix.SO_ERROR, nil},
		{unix.SOL_SOCKET, unix.SO_SNDLOWAT, nil},
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, []int{1, 0, 7}},
		{unix.SOL_SOCKET, unix.SO_REUSEPORT, []int{1, 0}},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, []int{1, 0, 5}},
		{unix.SOL_SOCKET, unix.SO_PRIORITY, []int{3, 0}},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, []int{50000, 1}},
		{unix.SOL_SOCKET, unix.SO_SNDBUF, []int{50000}},
		{unix.SOL_SOCKET, unix.SO_BROADCAST, []int{1, 0}},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMP, nil},
		{unix.SOL_SOCKET, unix.SO_MARK, nil},
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, []int{1, 0, 3}},
		{unix.IPPROTO_TCP, unix.TCP_CORK, []int{1, 0}},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, []int{30, 0, 32768, 32767}},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, []int{30, 0}},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, []int{3, 0, 128}},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, []int{5000, -1, 0}},
		{unix.IPPROTO_TCP, unix.TCP_SYNCNT, []int{3, 0, 128}},
		{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, []int{10000}},
		{unix.IPPROTO_IP, unix.IP_TOS, []int{0x10, 0x20}},
		{unix.IPPROTO_IP, unix.IP_TTL, []int{7, 0, 256, 255, -1}},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, []int{0, 2, 1}},
		{unix.IPPROTO_TCP, 999, []int{1}},
		{unix.IPPROTO_SCTP, 1, []int{1}},
	}
	get := func(level, name int) (int, syscall.Errno) {
		r := p.ask(request{op: opGetOption, level: int32(level), name: int32(name), arg: 4}, p.fd)
		if r.errno != 0 || len(r.value) != 4 {
			return 0, r.errno
		}
		return int(int32(order.Uint32(r.value))), 0
	}
	set := func(level, name, v int) syscall.Errno {
		return p.ask(request{op: opSetOption, level: int32(level), name: int32(name), value: appendInt(nil, v)}, p.fd).errno
	}
	for _, x := range calls {
		compare := func(after string) {
			t.Helper()
			want, err := unix.GetsockoptInt(kernel, x.level, x.name)
			got, errno := get(x.level, x.name)
			if unknown(errnoOf(err)) && unknown(errno) {
				return
			}
			if got != want || errno != errnoOf(err) {
				t.Errorf("option %d %d %s: %d, %v; Linux: %d, %v", x.level, x.name, after, got, errno, want, err)
			}
		}
		if x.name != unix.SO_RCVBUF && x.name != unix.SO_SNDBUF && x.name != unix.TCP_NOTSENT_LOWAT { // what sysctls say
			compare("at first")
		}
		for _, v := range x.values {
			want := errnoOf(unix.SetsockoptInt(kernel, x.level, x.name, v))
			if got := set(x.level, x.name, v); got != want && !(unknown(got) && unknown(want)) {
				t.Errorf("option %d %d set to %d: %v; Linux: %v", x.level, x.name, v, got, want)
			}
			compare("after it was set")
		}
	}
}

// unknown reports whether an errno says that there is no such option.
func unknown(n syscall.Errno) bool { return n == syscall.ENOPROTOOPT || n == syscall.EOPNOTSUPP }

// TestOptionsReachTheConnection: what was set before connect(2), and after it.
func TestOptionsReachTheConnection(t *testing.T) {
	b := newBed(t, nil)
	l := b.listenPeer(t, "0")
	p := b.dial(t).socket(unix.SOCK_STREAM, false)
	for _, v := range []struct{ level, name, v int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77},
		{unix.IPPROTO_TCP, unix.TCP_SYNCNT, 3},
		{unix.IPPROTO_TCP, unix.TCP_LINGER2, -1},
		{unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 20},
		{unix.IPPROTO_IP, unix.IP_TOS, 0x20},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 100_000},
	} {
		if err := p.setInt(v.level, v.name, v.v); err != nil {
			t.Fatal(v, err)
		}
	}
	if r := p.ask(request{op: opSetOption, level: unix.IPPROTO_TCP, name: unix.TCP_CONGESTION, value: []byte("reno")}, p.fd); r.errno != 0 {
		t.Fatal(r.errno)
	}
	if r := p.ask(request{op: opSetOption, level: unix.IPPROTO_TCP, name: unix.TCP_CONGESTION, value: []byte("none such")}, p.fd); r.errno != syscall.ENOENT {
		t.Errorf("an unknown algorithm: %v", r.errno)
	}
	if err := p.connect(peerPort(l)); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct{ level, name, want int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 77},
		{unix.IPPROTO_TCP, unix.TCP_SYNCNT, 3},
		{unix.IPPROTO_TCP, unix.TCP_LINGER2, -1},
		{unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 1152},
		{unix.IPPROTO_IP, unix.IP_TOS, 0x20},
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 200_000},
	} {
		if got := p.getInt(v.level, v.name); got != v.want {
			t.Errorf("option %d %d of the connection is %d, want %d", v.level, v.name, got, v.want)
		}
	}
	r := p.ask(request{op: opGetOption, level: unix.IPPROTO_TCP, name: unix.TCP_CONGESTION, arg: 16}, p.fd)
	if text(r.value) != "reno" {
		t.Errorf("TCP_CONGESTION is %q", r.value)
	}
	r = p.ask(request{op: opGetOption, level: unix.IPPROTO_TCP, name: unix.TCP_INFO, arg: 256}, p.fd)
	var info unix.TCPInfo
	if want := min(int(unsafe.Sizeof(info)), maxReplyValue); r.errno != 0 || len(r.value) != want {
		t.Fatalf("TCP_INFO: %v, %d bytes", r.errno, len(r.value))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)), r.value)
	if info.State != linuxEstablished || info.Snd_mss == 0 || info.Pmtu != 1500 || info.Options&infoTimestamps == 0 || info.Rtt == 0 {
		t.Errorf("%+v", info)
	}
	if r := p.ask(request{op: opGetOption, level: unix.IPPROTO_TCP, name: unix.TCP_INFO, arg: 10}, p.fd); len(r.value) != 10 {
		t.Errorf("%d bytes in a buffer of 10", len(r.value))
	}
	if err := p.setInt(unix.IPPROTO_TCP, unix.TCP_NODELAY, 0); err != nil || p.getInt(unix.IPPROTO_TCP, unix.TCP_NODELAY) != 0 {
		t.Error("TCP_NODELAY does not change", err)
	}
	if err := p.setInt(unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 0); err != syscall.EINVAL {
		t.Error("a connection gives up its TCP_WINDOW_CLAMP", err)
	}
}

// TestV6Only: two sockets with the port of both families, one for each.
func TestV6Only(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p := c.socket(unix.SOCK_STREAM, true)
	if err := p.setInt(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
		t.Fatal(err)
	}
	local, err := p.listen("[::]:0", 1)
	if err != nil {
		t.Fatal(err)
	}
	q := c.socket(unix.SOCK_STREAM, false)
	if _, err := q.listen(netip.AddrPortFrom(netip.IPv4Unspecified(), local.Port()).String(), 1); err != nil {
		t.Errorf("the same port over IPv4: %v", err)
	}
	if err := p.setInt(unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != syscall.EINVAL {
		t.Errorf("V6ONLY of a bound socket: %v", err)
	}
}

// TestOptionsAreNotKeptTwice: what a program sets again and again takes no more memory of the node, nor do groups without end.
func TestOptionsAreNotKeptTwice(t *testing.T) {
	b := newBed(t, nil)
	c := b.dial(t)
	p, u := c.socket(unix.SOCK_STREAM, false), c.socket(unix.SOCK_SEQPACKET, false)
	set := func(of *program, name optionName, v ...byte) syscall.Errno {
		return of.ask(request{op: opSetOption, level: int32(name.level), name: int32(name.name), value: v}, of.fd).errno
	}
	ofLinger := nameS(unix.SO_LINGER)
	for i := range byte(100) {
		if errno := set(p, ofLinger, 1, 0, 0, 0, i, 0, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	if r := p.ask(request{op: opGetOption, level: int32(ofLinger.level), name: int32(ofLinger.name), arg: 8}, p.fd); r.errno != 0 || r.value[4] != 99 {
		t.Errorf("SO_LINGER is %v, %v", r.value, r.errno)
	}
	join, leave := name4(unix.IP_ADD_MEMBERSHIP), name4(unix.IP_DROP_MEMBERSHIP)
	group := func(i int) []byte { return []byte{239, 1, byte(i >> 8), byte(i), 0, 0, 0, 0} }
	for i := range maxGroups {
		if errno := set(u, join, group(i)...); errno != 0 {
			t.Fatal(i, errno)
		}
	}
	for _, bound := range []bool{false, true} {
		if bound {
			if r := u.ask(request{op: opBind, addr: netip.MustParseAddrPort("0.0.0.0:0")}, u.fd); r.errno != 0 {
				t.Fatal(r.errno)
			}
		}
		for _, tc := range []struct {
			name optionName
			of   int
			want syscall.Errno
		}{
			{join, 0, syscall.EADDRINUSE},
			{join, maxGroups, syscall.ENOBUFS},
			{leave, maxGroups, syscall.EADDRNOTAVAIL},
			{leave, 0, 0},
			{leave, 0, syscall.EADDRNOTAVAIL},
			{join, 0, 0},
		} {
			if errno := set(u, tc.name, group(tc.of)...); errno != tc.want {
				t.Errorf("bound %v: option %d of group %d: %v, not %v", bound, tc.name.name, tc.of, errno, tc.want)
			}
		}
	}
	b.mu.Lock()
	all := slices.Collect(maps.Keys(b.all))
	b.mu.Unlock()
	for _, k := range all {
		k.ops.Lock()
		k.mu.Lock()
		if len(k.late) > 1 || len(k.groups) > maxGroups {
			t.Errorf("%d late options, %d groups", len(k.late), len(k.groups))
		}
		k.mu.Unlock()
		k.ops.Unlock()
	}
	p.close()
	u.close()
	until(t, "the groups are left", func() bool { return b.Stats().Sockets == 0 })
}
