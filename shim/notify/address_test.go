package notify

import (
	"bytes"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAddresses has the layout of struct sockaddr_in and sockaddr_in6.
func TestAddresses(t *testing.T) {
	for _, tc := range []struct {
		addr string
		v6   bool
		want []byte
	}{
		{"192.0.2.1:258", false, []byte{2, 0, 1, 2, 192, 0, 2, 1, 15: 0}},
		{"[2001:db8::1]:258", true, []byte{10, 0, 1, 2, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 23: 1, 27: 0}},
		{"[::ffff:192.0.2.1]:1", true, []byte{10, 0, 0, 1, 18: 0xff, 19: 0xff, 20: 192, 0, 2, 1, 27: 0}},
	} {
		a := netip.MustParseAddrPort(tc.addr)
		if got := encodeAddress(a, tc.v6); !bytes.Equal(got, tc.want) {
			t.Errorf("%v: % x, want % x", a, got, tc.want)
		}
		if got, _, err := decodeAddress(tc.want, tc.v6); err != nil || got != a {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
	if got := encodeAddress(netip.MustParseAddrPort("192.0.2.1:1"), true); !bytes.Equal(got, []byte{10, 0, 0, 1, 18: 0xff, 19: 0xff, 20: 192, 0, 2, 1, 27: 0}) {
		t.Errorf("an IPv4 address of an IPv6 socket: % x", got)
	}
	scoped := append(make([]byte, 24), 7, 0, 0, 0)
	scoped[0] = unix.AF_INET6
	if _, scope, err := decodeAddress(scoped, true); err != nil || scope != 7 {
		t.Errorf("scope %d, %v", scope, err)
	}
	if _, scope, err := decodeAddress(scoped[:24], true); err != nil || scope != 0 {
		t.Errorf("RFC 2133: scope %d, %v", scope, err)
	}
}

// FuzzAddress decodes what a program may have in memory.
func FuzzAddress(f *testing.F) {
	for _, b := range [][]byte{nil, {2}, {2, 0}, {2, 0, 1, 2, 192, 0, 2, 1, 15: 0}, {10, 0, 1, 2, 27: 1}, {10, 23: 0}, {0, 0}, {77, 0, 127: 0}} {
		f.Add(b, false)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, v6 bool) {
		a, _, err := decodeAddress(b, v6)
		if err != nil {
			if err != syscall.EINVAL && err != syscall.EAFNOSUPPORT {
				t.Fatal(err)
			}
			return
		}
		again, _, err := decodeAddress(encodeAddress(a, v6), v6)
		if err != nil || again != a || a.Addr().Is4() == v6 {
			t.Fatalf("%v comes back as %v, %v", a, again, err)
		}
	})
}

// TestStatus reads what the kernel writes in /proc.
func TestStatus(t *testing.T) {
	text := "Name:\tx\nTgid:\t12\nThreads:\t3\nSigPnd:\t0000000000000200\nShdPnd:\t0000000000000001\n" +
		"SigBlk:\t0000000000000004\nSigIgn:\t0000000001001000\nSigCgt:\t0000000000000000\n"
	want := status{process: 12, threads: 3, private: 0x200, shared: 1, blocked: 4, ignored: 0x1001000}
	if got, err := parseStatus([]byte(text)); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseStatus([]byte("Tgid:\tx\n")); err == nil {
		t.Error("no number is accepted")
	}
	if st, err := readStatus(uint32(syscall.Getpid())); err != nil || int(st.process) != syscall.Getpid() || st.threads == 0 {
		t.Errorf("%+v, %v", st, err)
	}
}
