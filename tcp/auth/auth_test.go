package auth

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/millrace/millrace/wire"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCMACHasTheVectorsOfRFC4493(t *testing.T) {
	const message = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
	key := [16]byte(unhex(t, "2b7e151628aed2a6abf7158809cf4f3c"))
	m := unhex(t, message)
	for n, want := range map[int]string{
		0:  "bb1d6929e95937287fa37d129b756746",
		16: "070a16b46b4d4144f79bdd9dd04a287c",
		40: "dfa66747de9ae63030ca32611497c827",
		64: "51f0bebf7e3b9d92fc49741779363cfe",
	} {
		c := newCMAC(key)
		for round := range 2 { // the second after a Reset, written in pieces
			c.Reset()
			for i := 0; i < n; i += 7 {
				c.Write(m[i:min(i+7, n)])
			}
			if got := hex.EncodeToString(c.Sum(nil)); got != want {
				t.Errorf("%d bytes, round %d: %s, want %s", n, round, got, want)
			}
		}
	}
}

// vector is one of RFC 9235.
type vector struct {
	section        string
	client, server uint32
	key, packet    []byte
}

func vectors(t *testing.T) (all []vector) {
	b, err := os.ReadFile("testdata/rfc9235.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		all = append(all, vector{
			f[0], binary.BigEndian.Uint32(unhex(t, f[1])), binary.BigEndian.Uint32(unhex(t, f[2])),
			unhex(t, f[3]), unhex(t, f[4]),
		})
	}
	if len(all) < 15 {
		t.Fatalf("only %d vectors", len(all))
	}
	return all
}

// parse takes an IP packet apart: the tuple as its receiver sees it, and the segment.
func parse(b []byte) (t wire.Tuple, seg wire.TCP) {
	if b[0]>>4 == 4 {
		h := wire.IPv4(b)
		t.Local, t.Remote = wire.AddrFrom4(h.Dst()), wire.AddrFrom4(h.Src())
		seg = wire.TCP(h.Payload())
	} else {
		h := wire.IPv6(b)
		t.Local, t.Remote = wire.Addr(h.Dst()), wire.Addr(h.Src())
		seg = wire.TCP(h.Payload())
	}
	t.LocalPort, t.RemotePort = seg.DstPort(), seg.SrcPort()
	return t, seg
}

// ends returns the auths of a vector's two ends: that of the sender of its packet, and of its receiver.
func (v *vector) ends() (from, to *State, seg wire.TCP) {
	tuple, seg := parse(bytes.Clone(v.packet))
	k := AOKey{SendID: 61, ReceiveID: 84, Secret: []byte("testvector"), SkipOptions: v.section[2] == '2'}
	if v.section[0] == '5' || v.section[0] == '7' {
		k.Algorithm = AOAES128
	}
	r := k
	r.SendID, r.ReceiveID = k.ReceiveID, k.SendID
	here, there := v.client, v.server
	if seg.SrcPort() == 179 {
		k, r, here, there = r, k, there, here
	}
	rev := tuple.Reverse()
	from, to = New(&Keys{AO: []AOKey{k}}, &rev, here), New(&Keys{AO: []AOKey{r}}, &tuple, there)
	if seg.Flags().Has(wire.FlagACK) {
		from.SetPeerISN(there)
		to.SetPeerISN(here)
	}
	return from, to, seg
}

func TestAOHasTheVectorsOfRFC9235(t *testing.T) {
	for _, v := range vectors(t) {
		from, to, seg := v.ends()
		want := bytes.Clone(seg)
		if !to.Verify(seg) {
			t.Errorf("%s: does not verify", v.section)
		}
		opt := option(seg, wire.TCPOptAO, aoOptionLen)
		clear(opt[4:])
		from.signSegment(seg)
		if !bytes.Equal(seg, want) {
			t.Errorf("%s: signed %x, want %x", v.section, seg, want)
		}
		isn := [2]uint32{v.client, v.server}
		if seg.SrcPort() == 179 {
			isn = [2]uint32{v.server, v.client}
		}
		if seg.Flags()&(wire.FlagSYN|wire.FlagACK) == wire.FlagSYN {
			isn[1] = 0
		}
		tuple, _ := parse(v.packet)
		rev := tuple.Reverse()
		if key := kdf(&from.keys.AO[0], kdfContext(&rev, isn[0], isn[1])); !bytes.Equal(key, v.key) {
			t.Errorf("%s: traffic key %x, want %x", v.section, key, v.key)
		}
	}
}

func TestAOCoversTheRightBytes(t *testing.T) {
	for _, v := range vectors(t) {
		_, _, seg := v.ends()
		for i := range seg {
			_, to, seg := v.ends()
			seg[i] ^= 1
			inOptions := i >= wire.TCPLen && i < seg.DataOffset()
			opt := option(seg, wire.TCPOptAO, aoOptionLen)
			at := -1
			if opt != nil {
				at = cap(seg) - cap(opt)
			}
			free := i == 16 || i == 17 || to.keys.AO[0].SkipOptions && inOptions && (i < at || i >= at+aoOptionLen)
			if i == 12 || opt == nil {
				continue // another header length: no option there
			}
			if got := to.Verify(seg); got != free {
				t.Errorf("%s: byte %d changed: verified %v, want %v", v.section, i, got, free)
			}
		}
	}
}

// pairOf returns the auths of the two ends of a connection, as they are after the handshake.
func pairOf(client, server *Keys) (c, s *State) {
	tuple := wire.Tuple{
		Local: wire.AddrFrom4([4]byte{198, 18, 0, 1}), Remote: wire.AddrFrom4([4]byte{198, 18, 0, 2}),
		LocalPort: 40000, RemotePort: 179,
	}
	rev := tuple.Reverse()
	c, s = New(client, &tuple, 0xffffff00), New(server, &rev, 77)
	c.SetPeerISN(77)
	s.SetPeerISN(0xffffff00)
	return c, s
}

// segmentOf returns a segment of c with its signature.
func segmentOf(c *State, seq uint32, payload string) wire.TCP {
	b := wire.AppendTCP(nil, &wire.TCPHeader{
		SrcPort: c.tuple.LocalPort, DstPort: c.tuple.RemotePort, Seq: seq, Ack: c.irs + 1,
		Flags: wire.FlagACK, Window: 1000, Options: c.AppendOption(wire.AppendNOP(nil, 2)),
	})
	seg := wire.TCP(append(b, payload...))
	c.signSegment(seg)
	return seg
}

func TestMD5IsThatOfRFC2385(t *testing.T) {
	k := &Keys{MD5: []byte("secret")}
	c, s := pairOf(k, k)
	seg := segmentOf(c, 1000, "payload")
	h := md5.New()
	h.Write([]byte{198, 18, 0, 1, 198, 18, 0, 2, 0, 6, 0, byte(len(seg))})
	head := bytes.Clone(seg[:20])
	head[16], head[17] = 0, 0
	h.Write(head)
	h.Write([]byte("payloadsecret"))
	if got := option(seg, wire.TCPOptMD5, md5OptionLen)[2:]; !bytes.Equal(got, h.Sum(nil)) {
		t.Errorf("digest %x, want %x", got, h.Sum(nil))
	}
	if !s.Verify(seg) {
		t.Error("a right digest was refused")
	}
	for i := range seg {
		bad := bytes.Clone(seg)
		bad[i] ^= 0x10
		free := i == 16 || i == 17                                  // checksum
		if i != 12 && i != 20 && i != 21 && s.Verify(bad) != free { // not where the option is found no more
			t.Errorf("byte %d changed: verified %v", i, !free)
		}
	}
	other, _ := pairOf(&Keys{MD5: []byte("Secret")}, k)
	if s.Verify(segmentOf(other, 1000, "payload")) {
		t.Error("another password verified")
	}
	if s.Verify(nil) {
		t.Error("a merged segment verified")
	}
}

func TestAOCountsSequenceNumbersBeyond32Bits(t *testing.T) { // RFC 5925 6.2
	k := &Keys{AO: []AOKey{{Secret: []byte("k")}}}
	c, s := pairOf(k, k)
	seq := uint64(0xffffff01)
	var first wire.TCP
	for range 12 {
		seg := segmentOf(c, uint32(seq), "x")
		if first == nil {
			first = bytes.Clone(seg)
		}
		if !s.Verify(seg) {
			t.Fatalf("at %#x: refused", seq)
		}
		if got := s.received.of(uint32(seq)); got != uint32(seq>>32) {
			t.Fatalf("at %#x: extension %d", seq, got)
		}
		old := segmentOf(c, uint32(seq)-1<<20, "old")
		if seq > 1<<33 && !s.Verify(old) {
			t.Fatalf("at %#x: one from before was refused", seq)
		}
		seq += 1 << 30
	}
	if s.Verify(first) {
		t.Error("a segment of 8 GiB ago verified: replay")
	}
}

func TestAORollsKeysOver(t *testing.T) { // RFC 5925 6.1
	a := AOKey{SendID: 1, ReceiveID: 2, Secret: []byte("old")}
	b := AOKey{SendID: 3, ReceiveID: 4, Secret: []byte("new"), Algorithm: AOAES128}
	mirror := func(k AOKey) AOKey { k.SendID, k.ReceiveID = k.ReceiveID, k.SendID; return k }
	c, s := pairOf(&Keys{AO: []AOKey{a}}, &Keys{AO: []AOKey{mirror(a)}})
	exchange := func(step string, from, to *State, id, next uint8) {
		t.Helper()
		seg := segmentOf(from, from.iss+1, step)
		opt := option(seg, wire.TCPOptAO, aoOptionLen)
		if opt[2] != id || opt[3] != next {
			t.Errorf("%s: KeyID %d, RNextKeyID %d; want %d, %d", step, opt[2], opt[3], id, next)
		}
		if !to.Verify(seg) {
			t.Errorf("%s: refused", step)
		}
	}
	exchange("old", c, s, 1, 2)
	s.SetKeys(&Keys{AO: []AOKey{mirror(b), mirror(a)}})
	exchange("server signs with the old key, asks for the new", s, c, 2, 3)
	exchange("client has none", c, s, 1, 2)
	c.SetKeys(&Keys{AO: []AOKey{b, a}})
	exchange("client still signs with the old, asks for the new", c, s, 1, 4)
	exchange("server does as asked", s, c, 4, 3)
	exchange("client does as asked", c, s, 3, 4)
	c.SetKeys(&Keys{AO: []AOKey{b}})
	s.SetKeys(&Keys{AO: []AOKey{mirror(b)}})
	exchange("the old key is gone", s, c, 4, 3)
	exchange("on both sides", c, s, 3, 4)
	old, _ := pairOf(&Keys{AO: []AOKey{a}}, &Keys{AO: []AOKey{a}})
	if s.Verify(segmentOf(old, 1, "late")) {
		t.Error("a key that is gone verified")
	}
}

func TestSignaturesAllocateNothing(t *testing.T) {
	for name, k := range map[string]*Keys{
		"md5":  {MD5: []byte("x")},
		"sha1": {AO: []AOKey{{Secret: []byte("x")}}},
		"aes":  {AO: []AOKey{{Secret: []byte("x"), Algorithm: AOAES128}}},
	} {
		c, s := pairOf(k, k)
		seg := segmentOf(c, 1000, strings.Repeat("x", 1400))
		if n := testing.AllocsPerRun(20, func() {
			c.signSegment(seg)
			if !s.Verify(seg) {
				t.Fatal("refused")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
