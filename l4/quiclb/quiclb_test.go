package quiclb

import (
	"bytes"
	"crypto/aes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"testing"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func codec(t testing.TB, c Config) *Codec {
	t.Helper()
	codec, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return codec
}

// The vectors of draft-ietf-quic-load-balancers-21, appendix B, and its worked example of four
// passes. The second one without a key is left out: its nonce has nine hexadecimal digits. The
// rotation bits of the last with a key are 0 in the draft's connection ID, and 3 beside it.
var vectors = []struct {
	name              string
	rotation          int
	sid, nonce, key   string
	first, ciphertext string
}{
	{"plain", 0, "c4605e", "4504cc4f", "", "07", "c4605e4504cc4f"},
	{"odd", 0, "ed793a", "ee080dbf", draftKey, "07", "20b1d07b359d3c"},
	{"server ID longer than nonce", 1, "ed793a51d49b8f5fab65", "ee080dbf48", draftKey, "2f", "cc381bc74cb4fbad2823a3d1f8fed2"},
	{"single pass", 2, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", draftKey, "50", "4dd2d05a7b0de9b2b9907afb5ecf8cc3"},
	{"even", 0, "ed793a51d49b8f5fab", "ee080dbf48c0d1e55d", draftKey, "12", "5779c9cc86beb3a3a4a3ca96fce4bfe0cdbc"},
	{"worked example", 0, "31441a", "9c69c275", "fdf726a9893ec05c0632d3956680baf0", "07", "67947d29be054a"},
}

const draftKey = "8f95f09245765f80256934e50c66207f"

func TestTheDraftsVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			sid, nonce := unhex(t, v.sid), unhex(t, v.nonce)
			c := Config{Rotation: v.rotation, ServerID: len(sid), Nonce: len(nonce)}
			if v.key != "" {
				c.Key = unhex(t, v.key)
			}
			q := codec(t, c)
			want := unhex(t, v.first+v.ciphertext)
			got, err := q.Encode(nil, NewServerID(sid), nonce)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("encoded %x, want %x (%v)", got, want, err)
			}
			id, ok := q.Decode(append(want, 1, 2, 3), &Scratch{}) // servers may add octets
			if !ok || id != NewServerID(sid) || id.String() != v.sid {
				t.Errorf("decoded %v %v, want %s", id, ok, v.sid)
			}
		})
	}
}

// slowDecode is the draft's text, word by word, on slices that grow.
func slowDecode(key, text []byte, sidLen int) []byte {
	block, _ := aes.NewCipher(key)
	if len(text) == 16 {
		out := make([]byte, 16)
		block.Decrypt(out, text)
		return out[:sidLen]
	}
	half := (len(text) + 1) / 2
	odd := len(text)%2 == 1
	left, right := bytes.Clone(text[:half]), bytes.Clone(text[len(text)/2:])
	clear := func() {
		if odd {
			left[half-1] &= 0xf0
			right[0] &= 0x0f
		}
	}
	clear()
	pass := func(n byte, to, from []byte) {
		in := append(bytes.Clone(from), make([]byte, 14-len(from))...)
		in = append(in, byte(len(text)), n)
		out := make([]byte, 16)
		block.Encrypt(out, in)
		for i := range to {
			to[i] ^= out[i]
		}
		clear()
	}
	pass(4, left, right)
	pass(3, right, left)
	pass(2, left, right)
	pass(1, right, left)
	whole := bytes.Clone(left)
	if odd {
		whole[half-1] |= right[0]
		right = right[1:]
	}
	return append(whole, right...)[:sidLen]
}

func TestEveryLengthDecodesAsTheDraftsTextDoes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for sid := MinServerID; sid <= MaxServerID; sid++ {
		for nonce := MinNonce; sid+nonce <= MaxTogether; nonce++ {
			key, rotation := random(KeyLen), rng.IntN(Rotations)
			q := codec(t, Config{Rotation: rotation, ServerID: sid, Nonce: nonce, Key: key})
			id, n := random(sid), random(nonce)
			cid, err := q.Encode(nil, NewServerID(id), n)
			if err != nil || len(cid) != q.Len() || cid[0] != byte(rotation<<5|(sid+nonce)) {
				t.Fatalf("%d+%d: %x, %v", sid, nonce, cid, err)
			}
			if bytes.Contains(cid, id) && sid > 2 {
				t.Errorf("%d+%d: the server ID shows", sid, nonce)
			}
			if got := slowDecode(key, cid[1:], sid); !bytes.Equal(got, id) {
				t.Errorf("%d+%d: the draft's text decodes %x, want %x", sid, nonce, got, id)
			}
			if got, ok := q.Decode(cid, &Scratch{}); !ok || got != NewServerID(id) {
				t.Errorf("%d+%d: decoded %v, want %x", sid, nonce, got, id)
			}
		}
	}
}

func TestWhatIsNotOursIsNotDecoded(t *testing.T) {
	q := codec(t, Config{Rotation: 2, ServerID: 3, Nonce: 5})
	cid := []byte{0x40, 1, 2, 3, 4, 5, 6, 7, 8}
	if _, ok := q.Decode(cid, &Scratch{}); !ok {
		t.Error("ours is refused")
	}
	if _, ok := q.Decode(cid[:8], &Scratch{}); ok {
		t.Error("one octet too few")
	}
	for rotation := range 8 {
		cid[0] = byte(rotation<<5 | 8)
		if _, ok := q.Decode(cid, &Scratch{}); ok != (rotation == 2) {
			t.Errorf("rotation %d: %v", rotation, ok)
		}
	}
	if _, err := q.Encode(nil, NewServerID([]byte{1, 2}), make([]byte, 5)); !errors.Is(err, ErrConfig) {
		t.Error("a server ID that is too short was encoded")
	}
	if _, err := q.Encode(nil, NewServerID([]byte{1, 2, 3}), make([]byte, 4)); !errors.Is(err, ErrConfig) {
		t.Error("a nonce that is too short was encoded")
	}
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	for _, c := range []Config{
		{Rotation: 7, ServerID: 3, Nonce: 4},
		{Rotation: -1, ServerID: 3, Nonce: 4},
		{ServerID: 0, Nonce: 8},
		{ServerID: 16, Nonce: 4},
		{ServerID: 3, Nonce: 3},
		{ServerID: 15, Nonce: 5},
		{ServerID: 3, Nonce: 4, Key: make([]byte, 15)},
		{ServerID: 3, Nonce: 4, Key: []byte{}},
	} {
		if _, err := New(c); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestDestinationsOfBothForms(t *testing.T) {
	for _, c := range []struct {
		name, datagram, dcid string
		long, ok             bool
	}{
		{"empty", "", "", false, false},
		{"short", "4001020304050607", "01020304", false, true},
		{"short, cut", "400102", "0102", false, true},
		{"short, nothing behind", "40", "", false, true},
		{"long", "c00000000103aabbcc0411223344", "aabbcc", true, true},
		{"long, no ID", "c000000001000411223344", "", true, true},
		{"long, ID to the end", "800000000003aabbcc", "aabbcc", true, true},
		{"long, ID cut", "c00000000104aabbcc", "", true, false},
		{"long, no length", "c000000001", "", true, false},
	} {
		dcid, long, ok := Destination(unhex(t, c.datagram), 4)
		if hex.EncodeToString(dcid) != c.dcid || long != c.long || ok != c.ok {
			t.Errorf("%s: %x %v %v", c.name, dcid, long, ok)
		}
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	for _, v := range vectors {
		q, cid := vectorCodec(t, v.sid, v.nonce, v.key, v.rotation)
		datagram := append([]byte{0x40}, cid...)
		scratch := &Scratch{}
		if n := testing.AllocsPerRun(100, func() {
			dcid, _, _ := Destination(datagram, q.Len())
			q.Decode(dcid, scratch)
		}); n != 0 {
			t.Errorf("%s: %v allocations", v.name, n)
		}
	}
}

func vectorCodec(t testing.TB, sid, nonce, key string, rotation int) (*Codec, []byte) {
	c := Config{Rotation: rotation, ServerID: len(sid) / 2, Nonce: len(nonce) / 2}
	if key != "" {
		c.Key = unhex(t, key)
	}
	q := codec(t, c)
	cid, err := q.Encode(nil, NewServerID(unhex(t, sid)), unhex(t, nonce))
	if err != nil {
		t.Fatal(err)
	}
	return q, cid
}

func BenchmarkDecode(b *testing.B) {
	for _, v := range vectors {
		b.Run(v.name, func(b *testing.B) {
			q, cid := vectorCodec(b, v.sid, v.nonce, v.key, v.rotation)
			scratch := &Scratch{}
			for b.Loop() {
				q.Decode(cid, scratch)
			}
		})
	}
}

// FuzzDestination holds the parser to the layout of RFC 8999, read by offsets.
func FuzzDestination(f *testing.F) {
	f.Add([]byte{}, 8)
	f.Add([]byte{0x40, 1, 2, 3}, 8)
	f.Add([]byte{0xc0, 0, 0, 0, 1, 2, 0xaa, 0xbb, 0}, 8)
	f.Add([]byte{0xff, 0, 0, 0, 1, 255, 0xaa}, 0)
	q, err := New(Config{ServerID: 4, Nonce: 5, Key: make([]byte, KeyLen)})
	if err != nil {
		f.Fatal(err)
	}
	scratch := &Scratch{}
	f.Fuzz(func(t *testing.T, p []byte, short int) {
		if short < 0 {
			return
		}
		dcid, long, ok := Destination(p, short)
		if len(p) > 0 && long != (p[0] >= 0x80) {
			t.Fatal("wrong form")
		}
		if ok && long && (len(dcid) != int(p[5]) || !bytes.Equal(dcid, p[6:6+len(dcid)])) {
			t.Fatalf("%x", dcid)
		}
		if ok && !long && (len(dcid) > short || !bytes.Equal(dcid, p[1:1+len(dcid)])) {
			t.Fatalf("%x", dcid)
		}
		id, decoded := q.Decode(dcid, scratch)
		if decoded && NewServerID(slowDecode(make([]byte, KeyLen), dcid[1:q.Len()], 4)) != id {
			t.Fatalf("%x decodes to %v", dcid, id)
		}
	})
}
