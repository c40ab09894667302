package shim

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// layout is a C program that prints the sizes, offsets and constants of protocol.h.
const layout = `
#include <stdio.h>
#include <stddef.h>
#include "protocol.h"
#define S(t) printf("sizeof %s %zu\n", #t, sizeof(struct t))
#define O(t, f) printf("%s.%s %zu\n", #t, #f, offsetof(struct t, f))
#define C(c) printf("%s %d\n", #c, (int)c)
int main(void) {
	S(shim_addr); S(shim_request); S(shim_reply); S(shim_accepted); S(shim_datagram); S(shim_name); S(shim_interface); S(shim_memory);
	O(shim_interface, index); O(shim_interface, flags); O(shim_interface, mtu); O(shim_interface, prefix); O(shim_interface, mac); O(shim_interface, addr);
	O(shim_addr, family); O(shim_addr, port); O(shim_addr, scope); O(shim_addr, ip);
	O(shim_request, op); O(shim_request, version); O(shim_request, id); O(shim_request, addr); O(shim_request, level);
	O(shim_request, name); O(shim_request, arg); O(shim_request, len); O(shim_request, value);
	O(shim_reply, op); O(shim_reply, version); O(shim_reply, id); O(shim_reply, error); O(shim_reply, len);
	O(shim_reply, local); O(shim_reply, remote); O(shim_reply, value);
	O(shim_accepted, local); O(shim_accepted, remote); O(shim_accepted, memory); O(shim_memory, size); O(shim_memory, ends);
	O(shim_datagram, remote); O(shim_datagram, local); O(shim_datagram, ifindex); O(shim_datagram, tos);
	O(shim_datagram, hop_limit); O(shim_datagram, flags); O(shim_datagram, time);
	O(shim_name, magic); O(shim_name, version); O(shim_name, process); O(shim_name, unique); O(shim_name, local);
	O(shim_name, remote);
	C(SHIM_VERSION); C(SHIM_MARK_TCP4_CONNECTED); C(SHIM_MARK_TCP6_CONNECTED); C(SHIM_MARK_UDP4_CONNECTED); C(SHIM_MARK_INET); C(SHIM_MARK_UDP6_CONNECTED); C(SHIM_MARK_INET6);
	C(SHIM_EARLY_MASK); C(SHIM_EARLY); C(SHIM_EARLY_NODELAY); C(SHIM_EARLY_KEEPALIVE);
	C(SHIM_HELLO); C(SHIM_BIND); C(SHIM_CONNECT); C(SHIM_LISTEN); C(SHIM_NAMES); C(SHIM_SETOPT); C(SHIM_GETOPT);
	C(SHIM_RESOLVE); C(SHIM_INTERFACES); C(SHIM_RENEW); C(SHIM_RENEWABLE); C(SHIM_ERROR_REPORTED); C(SHIM_END_REPORTED); C(SHIM_REQUEST_VALUE); C(SHIM_REPLY_VALUE); 
	C(SHIM_DATAGRAM_PKTINFO); C(SHIM_DATAGRAM_TOS); C(SHIM_DATAGRAM_HOP_LIMIT); C(SHIM_DATAGRAM_MAPPED);
	C(SHIM_HEADERS); C(SHIM_ERRORS); C(SHIM_FORM_MASK); C(SHIM_FORM); C(SHIM_FORM_CONNECTED); C(SHIM_FORM_ERRORS); C(SHIM_FORM_QUEUE);
	C(SHIM_RELEASE); C(SHIM_MORE); C(SHIM_MORE_SIZE); C(SHIM_MORE_PIECE); C(SHIM_MORE_NAMELESS); C(SHIM_MORE_FAILED); C(SHIM_FORM_JOINS);
	C(SHIM_PENDING); C(SHIM_NOTICES); C(SHIM_TAKE); C(SHIM_HOLD); S(shim_pending);
	C(SHIM_WANT_PERMIT); C(SHIM_PERMIT); C(SHIM_DATAGRAM_STAMPING); C(SHIM_DATAGRAM_ORIGINAL); C(SHIM_DATAGRAM_OVERFLOW); S(shim_error); O(shim_error, info); O(shim_error, origin); O(shim_error, data); O(shim_error, time);
	printf("magic %s\n", SHIM_NAME_MAGIC);
	return 0;
}
`

// TestLayout compares the Go side with what a C compiler makes of protocol.h.
func TestLayout(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler (cc) to ask")
	}
	dir := t.TempDir()
	src, bin := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	if err := os.WriteFile(src, []byte(layout), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-std=c11", "-Wall", "-Werror", "-I", "preload", "-o", bin, src).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`sizeof shim_addr %d
sizeof shim_request %d
sizeof shim_reply %d
sizeof shim_accepted %d
sizeof shim_datagram %d
sizeof shim_name %d
sizeof shim_interface %d
sizeof shim_memory %d
shim_interface.index 16
shim_interface.flags 20
shim_interface.mtu 24
shim_interface.prefix 28
shim_interface.mac 32
shim_interface.addr 40
shim_addr.family 0
shim_addr.port 2
shim_addr.scope 4
shim_addr.ip 8
shim_request.op 0
shim_request.version 2
shim_request.id 4
shim_request.addr 8
shim_request.level 32
shim_request.name 36
shim_request.arg 40
shim_request.len 44
shim_request.value %d
shim_reply.op 0
shim_reply.version 2
shim_reply.id 4
shim_reply.error 8
shim_reply.len 12
shim_reply.local 16
shim_reply.remote 40
shim_reply.value %d
shim_accepted.local 0
shim_accepted.remote %d
shim_accepted.memory %d
shim_memory.size 0
shim_memory.ends 4
shim_datagram.remote 0
shim_datagram.local %d
shim_datagram.ifindex %d
shim_datagram.tos %d
shim_datagram.hop_limit %d
shim_datagram.flags %d
shim_datagram.time %d
shim_name.magic 0
shim_name.version 8
shim_name.process 12
shim_name.unique 16
shim_name.local %d
shim_name.remote %d
SHIM_VERSION %d
SHIM_MARK_TCP4_CONNECTED %d
SHIM_MARK_TCP6_CONNECTED %d
SHIM_MARK_UDP4_CONNECTED %d
SHIM_MARK_INET %d
SHIM_MARK_UDP6_CONNECTED %d
SHIM_MARK_INET6 %d
SHIM_EARLY_MASK %d
SHIM_EARLY %d
SHIM_EARLY_NODELAY %d
SHIM_EARLY_KEEPALIVE %d
SHIM_HELLO %d
SHIM_BIND %d
SHIM_CONNECT %d
SHIM_LISTEN %d
SHIM_NAMES %d
SHIM_SETOPT %d
SHIM_GETOPT %d
SHIM_RESOLVE %d
SHIM_INTERFACES %d
SHIM_RENEW %d
SHIM_RENEWABLE %d
SHIM_ERROR_REPORTED %d
SHIM_END_REPORTED %d
SHIM_REQUEST_VALUE %d
SHIM_REPLY_VALUE %d
SHIM_DATAGRAM_PKTINFO %d
SHIM_DATAGRAM_TOS %d
SHIM_DATAGRAM_HOP_LIMIT %d
SHIM_DATAGRAM_MAPPED %d
SHIM_HEADERS %d
SHIM_ERRORS %d
SHIM_FORM_MASK %d
SHIM_FORM %d
SHIM_FORM_CONNECTED %d
SHIM_FORM_ERRORS %d
SHIM_FORM_QUEUE %d
SHIM_RELEASE %d
SHIM_MORE %d
SHIM_MORE_SIZE %d
SHIM_MORE_PIECE %d
SHIM_MORE_NAMELESS %d
SHIM_MORE_FAILED %d
SHIM_FORM_JOINS %d
SHIM_PENDING %d
SHIM_NOTICES %d
SHIM_TAKE %d
SHIM_HOLD %d
sizeof shim_pending %d
SHIM_WANT_PERMIT %d
SHIM_PERMIT %d
SHIM_DATAGRAM_STAMPING %d
SHIM_DATAGRAM_ORIGINAL %d
SHIM_DATAGRAM_OVERFLOW %d
sizeof shim_error %d
shim_error.info %d
shim_error.origin %d
shim_error.data %d
shim_error.time %d
magic %s
`, addrSize, requestSize, replySize, acceptedSize, datagramSize, nameSize, interfaceSize, memorySize, requestValueAt, replyValueAt, acceptedRemoteAt, acceptedMemoryAt,
		addrSize, 2*addrSize, datagramTOSAt, datagramTOSAt+1, datagramFlagsAt, datagramTimeAt, nameLocalAt, nameRemoteAt,
		Version, markTCP4Connected, markTCP6Connected, markUDP4Connected, markInet, markUDP6Connected, markInet6,
		earlyMask, earlyOptions, earlyNoDelay, earlyKeepAlive,
		opHello, opBind, opConnect, opListen, opNames, opSetOption, opGetOption, opResolve, opInterfaces, opRenew, renewable[0], errorReported, endReported,
		maxRequestValue, maxReplyValue, wantPktInfo, wantTOS, wantHopLimit, wantMapped,
		opHeaders, opErrors, formMask, formValue, formConnected, formErrors, formQueue,
		opRelease, opMore, moreSize, morePiece, moreNameless, moreFailed, formJoins, opPending, noticesTaken, takeError, holdNotice, pendingSize, wantPermit, macSize, wantStamping, wantOriginal, wantOverflow, errorSize, errorInfoAt, errorFromAt, errorDataAt, errorTimeAt, nameMagic)
	if string(out) != want {
		t.Errorf("protocol.h and protocol.go differ:\n%s", diff(string(out), want))
	}
}

// diff returns the lines that differ.
func diff(a, b string) string {
	var out strings.Builder
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range max(len(x), len(y)) {
		var l, r string
		if i < len(x) {
			l = x[i]
		}
		if i < len(y) {
			r = y[i]
		}
		if l != r {
			fmt.Fprintf(&out, "C: %q, Go: %q\n", l, r)
		}
	}
	return out.String()
}

var addrs = []netip.AddrPort{
	{},
	netip.MustParseAddrPort("198.18.0.1:80"), netip.MustParseAddrPort("[2001:db8::1]:65535"),
	netip.MustParseAddrPort("[::ffff:198.18.0.1]:1"), netip.MustParseAddrPort("0.0.0.0:0"),
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, a := range addrs {
		for _, b := range addrs {
			q := request{op: opSetOption, id: 7, addr: a, level: -1, name: 2, arg: 3, value: []byte("value")}
			var buf [requestSize]byte
			q.encode(buf[:])
			got, err := decodeRequest(buf[:])
			if err != nil || got.op != q.op || got.id != 7 || got.addr != a || got.level != -1 || got.name != 2 || got.arg != 3 || string(got.value) != "value" {
				t.Fatalf("request %+v: %+v, %v", q, got, err)
			}
			r := reply{op: opConnect, id: 8, errno: syscall.EINPROGRESS, local: a, remote: b, value: []byte("x")}
			var out [replySize]byte
			r.encode(out[:])
			back, err := decodeReply(out[:])
			if err != nil || back.op != r.op || back.id != 8 || back.errno != r.errno || back.local != a || back.remote != b || string(back.value) != "x" {
				t.Fatalf("reply %+v: %+v, %v", r, back, err)
			}
			d := datagram{remote: a, local: b, iface: 9, tos: 0xb8, hopLimit: 3, flags: wantTOS | wantPktInfo}
			var head [datagramSize]byte
			d.encode(head[:])
			if dd, err := decodeDatagram(head[:]); err != nil || dd != d {
				t.Fatalf("datagram %+v: %+v, %v", d, dd, err)
			}
			n := name{process: 1, unique: 1 << 40, local: a, remote: b}
			var nb [nameSize]byte
			n.encode(nb[:])
			if nn, err := decodeName(nb[:]); err != nil || nn != n {
				t.Fatalf("name %+v: %+v, %v", n, nn, err)
			}
		}
	}
}

func TestRequestsOfAnotherLanguage(t *testing.T) {
	good := request{op: opHello}
	var b [requestSize]byte
	for what, spoil := range map[string]func() []byte{
		"short":     func() []byte { return b[:requestSize-1] },
		"long":      func() []byte { return append(b[:], 0) },
		"version":   func() []byte { b[2]++; return b[:] },
		"operation": func() []byte { b[0] = 0; return b[:] },
		"too high":  func() []byte { b[0] = byte(opRelease) + 1; return b[:] },
		"value":     func() []byte { order.PutUint32(b[44:], maxRequestValue+1); return b[:] },
		"family":    func() []byte { b[8] = 77; return b[:] },
	} {
		good.encode(b[:])
		if _, err := decodeRequest(spoil()); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// FuzzRequest decodes any bytes. What is a request encodes to the same again, apart from what has no meaning.
func FuzzRequest(f *testing.F) {
	for _, a := range addrs {
		for o := opHello; o <= opRelease; o++ {
			var b [requestSize]byte
			(&request{op: o, id: 1, addr: a, level: 6, name: 1, arg: 4, value: []byte{1, 0, 0, 0}}).encode(b[:])
			f.Add(b[:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := decodeRequest(b)
		if err != nil {
			return
		}
		var one, two [requestSize]byte
		q.encode(one[:])
		again, err := decodeRequest(one[:])
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		again.encode(two[:])
		if one != two || !bytes.Equal(again.value, q.value) || again.addr != q.addr {
			t.Fatalf("%+v and %+v", q, again)
		}
	})
}
