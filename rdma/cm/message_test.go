package cm

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/millrace/millrace/wire"
)

var (
	addrA = wire.AddrFrom4([4]byte{198, 18, 0, 1})
	addrB = wire.AddrFrom4([4]byte{198, 18, 0, 2})
)

// exemplar returns a message of a kind with distinct values in all of its fields.
func exemplar(k Kind) Message {
	m := Message{Kind: k, TID: 0x1122334455667788, LocalID: 0xa1a2a3a4, RemoteID: 0xb1b2b3b4}
	m.Private = bytes.Repeat([]byte{byte(k)}, k.PrivateLen())
	switch k {
	case REQ:
		m.RemoteID = 0
		m.Service, m.CAGUID, m.QPN, m.QKey, m.PSN = ServiceID(SpaceTCP, 7174), 0x0123456789abcdef, 0x123456, 0x77, 0xfffff0
		m.ResponderResources, m.InitiatorDepth, m.FlowControl, m.RNRRetries, m.SRQ = 5, 6, true, 7, true
		m.RemoteTimeout, m.LocalTimeout, m.MaxCMRetries, m.Transport, m.ExtTransport, m.Retries = 20, 21, 15, 1, 2, 3
		m.PKey, m.MTU = 0xffff, 3
		m.Path = Path{
			LocalLID: 1, RemoteLID: 2, Local: addrA, Remote: addrB, FlowLabel: 0xabcde, Rate: 18, TrafficClass: 0x68, HopLimit: 64, SL: 9,
			SubnetLocal: true, AckTimeout: 19,
		}
	case REP:
		m.CAGUID, m.QPN, m.QKey, m.PSN = 0x0123456789abcdef, 0x123456, 0x77, 0xfffff0
		m.ResponderResources, m.InitiatorDepth, m.FlowControl, m.RNRRetries, m.SRQ = 5, 6, true, 6, true
		m.AckDelay, m.Failover = 15, 2
	case MRA:
		m.Of, m.Timeout = 1, 24
	case REJ:
		m.Of, m.Reason, m.Info = 2, RejConsumer, []byte{1, 2, 3}
	case DREQ:
		m.QPN = 0x123456
	case SIDRREQ:
		m.RemoteID, m.PKey, m.Service = 0, 0xffff, ServiceID(SpaceUDP, 7174)
	case SIDRREP:
		m.RemoteID, m.Status, m.QPN, m.QKey, m.Service = 0, 1, 0x123456, 0x1234567, ServiceID(SpaceUDP, 7174)
	}
	return m
}

// TestMessages builds and parses a message of every kind.
func TestMessages(t *testing.T) {
	for k := REQ; k <= SIDRREP; k++ {
		want := exemplar(k)
		b := want.Append(nil)
		if len(b) != MADLen {
			t.Fatalf("%v: %d bytes", k, len(b))
		}
		var got Message
		if why := got.Parse(b); why != Taken || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %v\n%+v, want\n%+v", k, why, got, want)
		}
	}
}

// TestWrongMessages has each malformed datagram refused for its reason.
func TestWrongMessages(t *testing.T) {
	patch := func(k Kind, at int, v byte) []byte {
		m := exemplar(k)
		b := m.Append(nil)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want Reason
	}{
		"empty":                {nil, Truncated},
		"a byte short":         {patch(REQ, 0, 1)[:255], Truncated},
		"base version":         {patch(REQ, 0, 2), OtherClass},
		"class":                {patch(REQ, 1, 3), OtherClass},
		"class version":        {patch(REQ, 2, 1), OtherVersion},
		"method":               {patch(REQ, 3, 1), OtherMethod},
		"LAP":                  {patch(REQ, 17, 0x19), OtherAttribute},
		"class port info":      {patch(REQ, 17, 1), OtherAttribute},
		"MTU 0":                {patch(REQ, headerLen+50, 0), BadField},
		"MTU 6":                {patch(REQ, headerLen+50, 0x60), BadField},
		"queue pair 0":         {append(patch(REQ, 0, 1)[:headerLen+32], make([]byte, 256)...), BadField},
		"REJ with 73 of info":  {patch(REJ, headerLen+9, 73<<1), BadField},
		"REJ with 127 of info": {patch(REJ, headerLen+9, 0xff), BadField},
	} {
		var m Message
		if why := m.Parse(c.b); why != c.want {
			t.Errorf("%s: %v, want %v", name, why, c.want)
		}
	}
	rep := exemplar(REP)
	rep.QPN = 1
	var m Message
	if why := m.Parse(rep.Append(nil)); why != BadField {
		t.Errorf("REP with queue pair 1: %v", why)
	}
}

// TestServices converts ports and addresses as RDMA-CM does.
func TestServices(t *testing.T) {
	if s := ServiceID(SpaceTCP, 7174); s != 0x0000000001061c06 {
		t.Errorf("%#x", s)
	}
	if p, ok := ServicePort(SpaceTCP, 0x1061c06); p != 7174 || !ok {
		t.Error(p, ok)
	}
	for _, other := range []uint64{0x1111c06, 0x101061c06, 0x061c06} {
		if _, ok := ServicePort(SpaceTCP, other); ok {
			t.Errorf("%#x is a port", other)
		}
	}
	v6 := wire.Addr{0x20, 1, 0xd, 0xb8, 15: 9}
	for _, h := range []IPHeader{{Src: addrA, Dst: addrB, SrcPort: 40000}, {Src: v6, Dst: v6, SrcPort: 1}} {
		b := append(h.Append(nil), 7)
		if len(b) != IPHeaderLen+1 {
			t.Fatal(len(b))
		}
		got, rest, ok := ParseIPHeader(b)
		if !ok || got != h || len(rest) != 1 {
			t.Errorf("%+v %v %v", got, rest, ok)
		}
		for i := range IPHeaderLen {
			if _, _, ok := ParseIPHeader(b[:i]); ok {
				t.Errorf("%d bytes are a header", i)
			}
		}
		b[1] = 5 << 4
		if _, _, ok := ParseIPHeader(b); ok {
			t.Error("version 5")
		}
		b[1], b[0] = 4<<4, 1
		if _, _, ok := ParseIPHeader(b); ok {
			t.Error("major version 1")
		}
	}
	// As RDMA-CM writes IPv4: zeros in front of the address, not the mapped prefix.
	b := (&IPHeader{Src: addrA, Dst: addrB, SrcPort: 0x1234}).Append(nil)
	if !bytes.Equal(b[:20], []byte{0, 0x40, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 198, 18, 0, 1}) {
		t.Errorf("%x", b)
	}
	for bytes, code := range map[uint32]uint8{256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5, 1500: 3} {
		if c := MTUCode(bytes); c != code || bytes != 1500 && MTUBytes(code) != bytes {
			t.Errorf("MTU %d: %d", bytes, c)
		}
	}
}

// FuzzMessage has every accepted datagram built again: it must parse to the same message.
func FuzzMessage(f *testing.F) {
	for k := REQ; k <= SIDRREP; k++ {
		m := exemplar(k)
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Message
		if why := m.Parse(b); why >= Reasons {
			t.Fatalf("reason %d", why)
		} else if why != Taken {
			return
		}
		if why := again.Parse(m.Append(nil)); why != Taken || !reflect.DeepEqual(m, again) {
			t.Fatalf("%v\n%+v\n%+v", why, m, again)
		}
		if h, rest, ok := ParseIPHeader(m.Private); ok {
			if h2, _, ok := ParseIPHeader(append(h.Append(nil), rest...)); !ok || h2 != h {
				t.Fatalf("%+v\n%+v", h, h2)
			}
		}
	})
}
